"""Both clients under pyright, as programs that use them have them; `make check` has them under mypy --strict."""

import json
import os
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
MARKED = {number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if "# type: ignore" in line}


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What pyright says of the Python client and of both programs."""
    tmp_path = tmp_path_factory.mktemp("pyright")
    wrong = tmp_path / WRONG.name
    wrong.write_text(WRONG.read_text().replace("# type: ignore", "# as mypy says: "))  # which pyright would obey
    programs = (ROOT / "app" / "crewel" / "client", GOOD, wrong)
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


def test_pyright_finds_no_fault_in_both_clients_and_in_a_program(pyright: list[dict[str, Any]]) -> None:
    assert [each for each in pyright if Path(each["file"]).name != WRONG.name] == []


def test_pyright_refuses_what_is_wrong(pyright: list[dict[str, Any]]) -> None:
    assert {each["range"]["start"]["line"] + 1 for each in pyright if Path(each["file"]).name == WRONG.name} == MARKED
