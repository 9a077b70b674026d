"""`crewel pages`: fetches the browser client for the chat and the operator's page."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from crewel.errors import CrewelError

_LISTS = ("package.json", "package-lock.json")
"""What is installed, in exact versions with their hashes; both files are part of the package."""
_TIMEOUT_S = 300


def pages() -> None:
    """Fetch the official browser client and the charts from npm, for the chat and the operator's page.

    An installation from a checkout or from git lacks them, and serves everything else; a published package has them. The
    command needs npm, which comes with Node.js, and permission to write into the installation.
    """
    from crewel.pages import STATIC

    npm = shutil.which("npm")
    if npm is None:
        raise CrewelError("npm is not found: install Node.js with npm (Debian and Ubuntu: apt-get install nodejs npm)")
    with tempfile.TemporaryDirectory(prefix="crewel-pages-") as directory:
        for name in _LISTS:
            shutil.copy(STATIC / name, directory)
        _install(npm, directory)
        try:
            shutil.copytree(Path(directory, "vendor"), STATIC / "vendor", dirs_exist_ok=True)
        except OSError as error:
            raise CrewelError(f"{STATIC / 'vendor'} cannot be written: {error.strerror or error}") from None
    print(f"installed in {STATIC / 'vendor'}; start the server again")


def _install(npm: str, directory: str) -> None:
    """Raises `CrewelError` with what npm said last."""
    command = [npm, "ci", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", directory]
    try:
        ended = subprocess.run(  # noqa: S603 - npm as the path has it, and no word of a stranger
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CrewelError(f"npm did not end within {_TIMEOUT_S} s: `{' '.join(command)}`") from None
    if ended.returncode != 0:
        said = (ended.stderr or ended.stdout).strip().splitlines()
        raise CrewelError(f"npm failed with status {ended.returncode}: {said[0] if said else 'it printed nothing'}")
