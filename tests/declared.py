"""Hide the packages that a level does not declare: each level of the Makefile runs with this.

`.venv` may hold what other levels need. A test that imports that would pass there, and fail where only its own level was
prepared.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = {
    "python": "requirements.lock",
    "docs": "requirements-docs.lock",
    "pipeline": "requirements-pipeline.lock",
    "object-store": "tests/pipeline/object_store/requirements.lock",
}
"""The packages that a step of the preparation installs, by the name of the step."""
DECLARED: Final = os.environ.get("DECLARED", "").split()
"""The steps that the level declares, from the Makefile."""


def undeclared(declared: Iterable[str]) -> frozenset[str]:
    """Return the modules of all packages that these steps do not install, and others do."""
    steps = set(declared)
    installed = {name for step, lock in LOCKS.items() if step in steps for name in _packages(lock)}
    others = {name for step, lock in LOCKS.items() if step not in steps for name in _packages(lock)}
    return frozenset(module for name in others - installed for module in _modules(name))


def _packages(lock: str) -> list[str]:
    return re.findall(r"^([a-z0-9._-]+)==", (ROOT / lock).read_text("utf-8"), re.MULTILINE)


def _modules(package: str) -> set[str]:
    """Return the modules and packages of Python that a package installs; none if it is not here."""
    try:
        found = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return set()
    return set(re.findall(r"^([A-Za-z_]\w*)[/.]", found.read_text("RECORD") or "", re.MULTILINE))


class DeclaredFinder(PathFinder):
    """Finds modules as Python does, and hidden ones not at all."""

    hidden: frozenset[str] = frozenset()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `PathFinder.find_spec`."""
        return None if fullname in cls.hidden else super().find_spec(fullname, path, target)


def pytest_report_header() -> str:
    """Say why a package that is installed cannot be imported."""
    return f"declared: {', '.join(DECLARED)}; packages of other levels are hidden (tests/declared.py)"


if DECLARED:
    DeclaredFinder.hidden = undeclared(DECLARED)
    sys.meta_path[sys.meta_path.index(PathFinder)] = DeclaredFinder
