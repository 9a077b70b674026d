"""`python -m tests.upgrade 1.1.0`: write the store of a release, which later versions must open, beside this file.

Run it once for each release that changes the layout of the store, at the commit of its tag.
"""

import sys
import tempfile
from pathlib import Path

from tests.cli.command import crewel
from tests.server_process import Server
from tests.upgrade import scene


def main(version: str) -> None:
    """Write the backup of a store that has the whole scene."""
    file = Path(__file__).parent / f"{version}.backup"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server = Server(["--port=0", *(f"--set={each}" for each in scene.KEPT)], directory)
        try:
            assert crewel("--version", directory=directory).out.split()[-1] == version, f"this is not {version}"
            scene.write(server)
            ended = crewel("backup", str(file), directory=directory)
            assert ended.status == 0, ended
            print(ended.out, end="")
        finally:
            server.end_well()


if __name__ == "__main__":
    main(sys.argv[1])
