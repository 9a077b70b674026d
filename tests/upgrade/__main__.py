"""`python -m tests.upgrade 1.1.0`: write the store of a release, which later versions must open, beside this file.

Run it for each release that changes the layout of the store, and again when the scene has grown: the release is taken from the
history of the repository.
"""

import sys
import tempfile
from pathlib import Path

from tests.cli.command import crewel
from tests.server_process import Server
from tests.upgrade import scene
from tests.upgrade.releases import checked_out


def main(version: str) -> None:
    """Write the backup of a store that has the whole scene."""
    file = Path(__file__).parent / f"{version}.backup"
    with tempfile.TemporaryDirectory() as name:
        release = checked_out(version, Path(name) / "tree")
        directory = Path(name) / "server"
        directory.mkdir()
        server = Server(["--port=0", *(f"--set={each}" for each in scene.KEPT)], directory, release.environ)
        try:
            assert crewel("--version", directory=directory, environ=release.environ).out.split()[-1] == version
            scene.write(server)
            ended = crewel("backup", str(file), directory=directory, environ=release.environ)
            assert ended.status == 0, ended
            print(ended.out, end="")
        finally:
            server.end_well()


if __name__ == "__main__":
    main(sys.argv[1])
