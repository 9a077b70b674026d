"""The repository's own files, as the house tests look at them."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COMMAND = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
# While the tests are collected, for unit tests start no process.
_LISTED = subprocess.run(_COMMAND, cwd=ROOT, capture_output=True, check=True, timeout=30, text=True).stdout
_LINKED = ("extensions", "pipeline")  # directories at the top that the package links to


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return all files of the repository that are text, without what is installed or made."""
    files = (ROOT / name for name in _LISTED.split("\0") if name)
    return tuple(file for file in files if file.is_file() and not file.is_symlink() and _is_text(file))


@cache
def modules() -> tuple[Path, ...]:
    """Return the Python files of the product: the package, the extensions and the pipeline."""
    return tuple(
        file
        for file in tracked_files()
        if file.suffix == ".py" and file.relative_to(ROOT).parts[0] in {"app", *_LINKED}
    )


@cache
def tree(file: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(file.read_text("utf-8"), str(file))


def shown(file: Path) -> str:
    """Return a file's name as people write it, from the top of the repository."""
    return file.relative_to(ROOT).as_posix()


def dotted(file: Path) -> str:
    """Return the name under which a module of the product is imported."""
    path = file.relative_to(ROOT).with_suffix("")
    parts = ("crewel", *path.parts) if path.parts[0] in _LINKED else path.parts[1:]
    return ".".join(parts).removesuffix(".__init__")


def _is_text(file: Path) -> bool:
    return b"\0" not in file.read_bytes()[:8192]


tracked_files()  # asks git while tests are collected: a unit test starts no process
