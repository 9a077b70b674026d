"""That the examples of docs/how-to/testing.md and docs/how-to/salesforce.md run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from crewel.mock.script import FAULTS, Script
from tests.house.source import ROOT

pytestmark = pytest.mark.server

PAGE = (ROOT / "docs" / "how-to" / "testing.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SALESFORCE = (ROOT / "docs" / "how-to" / "salesforce.md").read_text("utf-8")
CONFTEST = re.compile(r'```python title="conftest.py"\n(.*?)```', re.DOTALL)


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    tests = [example for example in EXAMPLES if "def test_" in example and "unittest" not in example]
    for number, example in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(example)
    (tmp_path / "conftest.py").write_text(*CONFTEST.findall(PAGE))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stdout
    assert "4 passed" in ended.stdout


def test_the_unittest_of_the_page_passes(tmp_path: Path) -> None:
    (example,) = [example for example in EXAMPLES if "unittest" in example]
    (tmp_path / "test_news.py").write_text(example)
    command = [sys.executable, "-W", "error", "-m", "unittest"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "Ran 1 test" in ended.stderr


def test_the_tests_of_clients_of_salesforce_pass(tmp_path: Path) -> None:
    for number, example in enumerate(re.findall(r"```python\n(.*?)```", SALESFORCE, re.DOTALL)):
        (tmp_path / f"test_{number}.py").write_text(example)
    (tmp_path / "conftest.py").write_text(*CONFTEST.findall(SALESFORCE))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


def test_the_faults_of_the_page_are_those_of_the_script() -> None:
    [rules] = [each for each in re.findall(r"```text\n(.*?)```", SALESFORCE, re.DOTALL) if "connect" in each]
    script = Script(rules)
    operations = ["connect"] * 4 + ["subscribe", "connect", "connect"]
    faults = [script.fault_of(each) for each in operations]
    assert faults == [None, None, None, "unknown client", "invalid replay id", "half body", None]
    assert {each for each in FAULTS if f"`{each}`" not in SALESFORCE} == set()


def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    (script,) = [example for example in EXAMPLES if "asyncio.run" in example]
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "hello\n0\n"), ended.stderr
