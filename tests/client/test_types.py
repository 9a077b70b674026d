"""Both clients under mypy --strict and pyright, as programs that use them have them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server_process import ROOT

pytestmark = pytest.mark.server

LIMIT_S = 110.0
HERE = Path(__file__).parent
GOOD, WRONG = HERE / "typed_program.py", HERE / "typed_wrongly.py"
MARKED = {number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("# wrong")}


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of both programs, with all its rules."""
    tmp_path = tmp_path_factory.mktemp("mypy")
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {ROOT / 'app'}\nplugins = pydantic.mypy\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "mypy.ini",
        "--cache-dir",
        str(ROOT / ".cache" / "mypy-programs"),
    ]
    for program in (GOOD, WRONG):
        (tmp_path / program.name).write_text(program.read_text())
    command += [GOOD.name, WRONG.name]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S).stdout
    assert said.splitlines()[-1].endswith("in 1 file (checked 2 source files)"), said
    return said


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What pyright says of the Python client and of both programs."""
    tmp_path = tmp_path_factory.mktemp("pyright")
    programs = (ROOT / "app" / "crewel" / "client", GOOD, WRONG)
    node = ROOT / "tests" / "interop" / "node_modules" / "pyright" / "index.js"
    assert node.is_file(), "make .cache/stamps/interop installs it"
    config = {
        "include": [os.path.relpath(each, tmp_path) for each in programs],
        "extraPaths": [str(ROOT / "app")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = ["node", str(node), "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    said = json.loads(ended.stdout)
    assert said["summary"]["filesAnalyzed"] >= len(programs)
    found: list[dict[str, Any]] = said["generalDiagnostics"]
    return found


def test_mypy_infers_the_types_of_payloads(mypy: str) -> None:
    assert GOOD.name not in mypy


def test_mypy_refuses_what_is_wrong(mypy: str) -> None:
    assert {int(line) for line in re.findall(r"^typed_wrongly\.py:(\d+): error", mypy, re.M)} == MARKED


def test_pyright_finds_no_fault_in_both_clients_and_in_a_program(pyright: list[dict[str, Any]]) -> None:
    assert [each for each in pyright if Path(each["file"]) != WRONG] == []


def test_pyright_refuses_what_is_wrong(pyright: list[dict[str, Any]]) -> None:
    assert {each["range"]["start"]["line"] + 1 for each in pyright if Path(each["file"]) == WRONG} == MARKED
