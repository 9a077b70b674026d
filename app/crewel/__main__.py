"""`python -m crewel` is the command `crewel`."""

from crewel.cli.main import run

if __name__ == "__main__":
    run()
