"""`python -m crewel.pipeline`, and what spark-submit is given."""

import sys

from crewel.errors import CrewelError
from crewel.pipeline.cli import run

if __name__ == "__main__":
    try:
        run()
    except CrewelError as error:
        print(f"crewel: {error}", file=sys.stderr)
        sys.exit(1)
