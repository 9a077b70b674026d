"""What import-linter cannot say: what an extension may know, and that settings are obeyed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewel.settings.table import declared
from tests.house.source import ROOT, modules, shown, tree

EXTENSIONS_MAY_IMPORT = {"bayeux", "broker", "delivery", "errors", "extension", "extensions", "metrics", "settings"}


def imported(file: Path) -> Iterator[str]:
    """Yield the full names that a module imports, `from crewel import x` as crewel.x."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_extensions_import_what_is_offered_to_them_and_nothing_else() -> None:
    wrong = [
        f"{shown(file)} imports {name}"
        for file in modules()
        if file.is_relative_to(ROOT / "extensions")
        for name in imported(file)
        if name.startswith("crewel.") and name.split(".")[1] not in EXTENSIONS_MAY_IMPORT
    ]
    assert not wrong


def test_nobody_imports_relatively() -> None:
    relative = [
        shown(file)
        for file in modules()
        for node in ast.walk(tree(file))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


@pytest.mark.parametrize("name", list(declared()))
def test_every_setting_is_obeyed_somewhere(name: str) -> None:
    """A setting that nothing reads would be a promise that nobody keeps."""
    read = re.compile(rf"\.{name.rpartition('.')[2]}\b")
    settings = ROOT / "app" / "crewel" / "settings"
    readers = [
        shown(file) for file in modules() if not file.is_relative_to(settings) and read.search(file.read_text("utf-8"))
    ]
    assert readers
