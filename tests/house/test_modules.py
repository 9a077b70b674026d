"""How a page of code may look: size, docstrings, and that each module stands alone."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.house.imports import circles, dependencies
from tests.house.source import ROOT, dotted, modules, shown, tracked_files, tree

WALL_LINES = 800
FUNCTION_LINES = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def line_count(file: Path) -> int:
    return len(file.read_text("utf-8").splitlines())


def test_no_module_is_longer_than_the_wall() -> None:
    too_long = {shown(file): count for file in modules() if (count := line_count(file)) > WALL_LINES}
    assert not too_long


def test_a_file_name_stands_once_in_the_package() -> None:
    """What a traceback or a search names is one module. Users name both plugins for pytest: these names stay."""
    files = [
        file for file in modules() if file.is_relative_to(ROOT / "app") and file.stem not in {"__init__", "plugin"}
    ]
    times = Counter(file.name for file in files)
    assert not sorted(shown(file) for file in files if times[file.name] > 1)


def test_the_name_of_each_test_has_a_subject() -> None:
    """In a list of failures a name stands alone: what `it` is, or what `and` continues, is not to be seen there."""
    begins = re.compile(r"test_(and|but|he|it|nor|or|she|so|they)_")
    tests = (file for file in tracked_files() if file.suffix == ".py" and file.is_relative_to(ROOT / "tests"))
    functions = ((file, name) for file in tests for name in re.findall(r"def (test_\w+)\(", file.read_text("utf-8")))
    nameless = [f"{shown(file)}: {name}" for file, name in functions if begins.match(name)]
    assert not nameless


def test_no_function_is_longer_than_a_page() -> None:
    too_long = {
        f"{shown(file)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for file in modules()
        for node in ast.walk(tree(file))
        if isinstance(node, Function) and node.end_lineno and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    }
    assert not too_long


@pytest.fixture(scope="module")
def import_first() -> Iterator[Callable[[Iterable[str]], str]]:
    """Import modules in a process that has imported no other of ours; return "imported", or the traceback."""
    command = [sys.executable, "-W", "error", str(ROOT / "tests" / "house" / "importer.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def first(names: Iterable[str]) -> str:
            print(*names, file=process.stdin, flush=True)
            told: str = json.loads(process.stdout.readline())
            return told

        yield first
        process.stdin.close()
        assert process.wait(10) == 0


OF_PIPELINE = [pytest.param(False, marks=pytest.mark.server), pytest.param(True, marks=pytest.mark.pipeline)]


@pytest.mark.parametrize("is_of_pipeline", OF_PIPELINE)
def test_all_modules_can_be_imported_without_a_warning(
    is_of_pipeline: bool, import_first: Callable[[Iterable[str]], str]
) -> None:
    names = [name for name in map(dotted, modules()) if name.startswith("crewel.pipeline") is is_of_pipeline]
    assert names
    assert import_first(names) == "imported"


@pytest.mark.server
@pytest.mark.parametrize("name", sorted(set().union(*circles(dependencies()))))
def test_each_module_of_a_circle_can_be_imported_first(name: str, import_first: Callable[[Iterable[str]], str]) -> None:
    """Where the import of a module begins makes a difference only in a circle: what it imports otherwise has been imported
    whole when it goes on."""
    assert not name.startswith("crewel.pipeline")
    assert import_first([name]) == "imported"
