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


def mypy(tmp_path: Path, program: Path) -> str:
    """What mypy says of the program, with all its rules."""
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
    copy = tmp_path / program.name
    copy.write_text(program.read_text())
    return subprocess.run([*command, copy.name], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S).stdout


def pyright(tmp_path: Path, *programs: Path) -> list[dict[str, Any]]:
    """What pyright says of the programs."""
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


def test_mypy_infers_the_types_of_payloads(tmp_path: Path) -> None:
    assert "Success: no issues found" in mypy(tmp_path, GOOD)


def test_mypy_refuses_what_is_wrong(tmp_path: Path) -> None:
    assert {int(line) for line in re.findall(r"^typed_wrongly\.py:(\d+): error", mypy(tmp_path, WRONG), re.M)} == MARKED


def test_pyright_finds_no_fault_in_both_clients_and_in_a_program(tmp_path: Path) -> None:
    assert pyright(tmp_path, ROOT / "app" / "crewel" / "client", GOOD) == []


def test_pyright_refuses_what_is_wrong(tmp_path: Path) -> None:
    assert {each["range"]["start"]["line"] + 1 for each in pyright(tmp_path, WRONG)} == MARKED
