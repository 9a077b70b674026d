"""`crewel pipeline` as far as it needs no Spark: its commands, wrong usage, and what it says where something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError
from typer.testing import CliRunner, Result

from crewel.errors import CrewelError, SettingsError, StoreUnavailable
from crewel.pipeline import cli, job_runner, spark_session
from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import doctor, report
from crewel.pipeline.jobs.lock import writing
from crewel.version import VERSION
from tests.cli.command import Ended, crewel
from tests.server_process import ROOT
from tests.store_process import StoreProcess, shared_store

COMMANDS = {"live", "backfill", "report", "audit", "query", "redrive", "compact", "doctor"}
TOO_LONG = "x" * 300
WITHOUT_EXTRA = (
    "the pipeline needs pyspark: pip install '.[pipeline]' in a checkout, or"
    f" pip install 'crewel-{VERSION}-py3-none-any.whl[pipeline]' with the wheel"
)


def pipeline(directory: Path, *arguments: str, **environ: str) -> Ended:
    return crewel("pipeline", *arguments, directory=directory, environ=environ)


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command in this process, as it runs without any setting; one that comes to start Spark fails the test."""
    for name in [name for name in os.environ if name.startswith("CREWEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spark_session, "session", lambda *_: pytest.fail("Spark was started"))
    return lambda *arguments: CliRunner().invoke(cli.app, arguments)


def test_pipeline_lists_its_commands(tmp_path: Path) -> None:
    ended = pipeline(tmp_path, "--help")
    assert ended.status == 0
    assert {line.split()[0] for line in ended.out.splitlines() if line.startswith("  ") and line.strip()} >= COMMANDS
    assert ended.out.startswith("Usage: crewel pipeline ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["redrive"], "--where"),
        (["backfill", "--config", "nowhere.toml"], "nowhere.toml: there is no such file"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(tmp_path: Path, arguments: list[str], words: str) -> None:
    ended = pipeline(tmp_path, *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert words in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lives"], "No such command"),
        (["backfill", "--from", "yesterday"], "2026-11-20T15:30"),
        (["backfill", "--from", "999999d"], "2026-11-20T15:30"),
        (["backfill", "--to", "0001-01-01T00:00+05:00"], "2026-11-20T15:30"),
        (["live", "--keep-days", "999999"], "--keep-days"),
        (["compact", "--keep", "99999999"], "--keep"),
        (["audit", "--config", TOO_LONG], "File name too long"),
        (["report", "--html", TOO_LONG], "File name too long"),
        (["report", "--spark", "ui.enabled"], "spark.sql.shuffle.partitions=64"),
        (["live", "--trigger", "0"], "--trigger"),
        (["redrive", "--where", "true", "--rate", "0"], "--rate"),
        (["report", "--from", "2026-11-20", "--to", "2026-11-19"], "--from has to be before --to"),
        (["audit", "--from", "2999-01-01"], "before now"),
        (["report", "--html", "no/such/report.html"], "nothing can be written to no/such"),
        (["report", "--html", "."], "this is a directory"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_is_right(
    invoke: Callable[..., Result], arguments: list[str], words: str
) -> None:
    ended = invoke(*arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert words in ended.stderr


def without(tmp_path: Path, module: str) -> dict[str, str]:
    """An environment in which a package is not there."""
    hook = (
        "import importlib.util as u, sys\n"
        "found = u.find_spec\n"
        f"u.find_spec = lambda name, package=None: None if name == {module!r} else found(name, package)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(hook)
    return {"PYTHONPATH": f"{tmp_path}:{ROOT / 'app'}"}


def test_pipeline_without_its_extra_names_the_command_that_installs_it(tmp_path: Path) -> None:
    ended = pipeline(tmp_path, "live", **without(tmp_path, "pyspark"))
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == f"crewel: {WITHOUT_EXTRA}\n"


@pytest.mark.parametrize("command", sorted(COMMANDS - {"doctor", "live", "query", "redrive"}))
def test_each_command_looks_for_the_extra_first(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None if name == "pyspark" else find_spec(name))
    ended = invoke(command)
    assert isinstance(ended.exception, SettingsError)
    assert (str(ended.exception), ended.output) == (WITHOUT_EXTRA, "")


def test_pipeline_without_java_says_so(tmp_path: Path) -> None:
    ended = pipeline(tmp_path, "report", PATH=str(tmp_path), JAVA_HOME="")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("crewel: the pipeline needs Java: apt-get install default-jre-headless")


def test_a_missing_store_is_reported_before_spark_starts(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "_REACH_S", 0.2)
    monkeypatch.setenv("CREWEL_STORAGE__URL", "redis://:secret@127.0.0.1:1")
    ended = invoke("report")
    assert isinstance(ended.exception, StoreUnavailable)
    told = str(ended.exception)
    assert "redis://127.0.0.1:1: the store has been away for 0 s" in told
    assert "CREWEL_STORAGE__URL says where the store is" in told
    assert "secret" not in told
    assert "Spark" not in ended.output + told


@pytest.mark.parametrize("command", [("report",), ("redrive", "--where", "true")])
def test_an_address_of_a_server_that_cannot_be_read_is_refused_without_its_password(
    invoke: Callable[..., Result], command: tuple[str, ...]
) -> None:
    ended = invoke(*command, "--url", "http://joe:[wdFsEcReT]@store")
    assert isinstance(ended.exception, SettingsError)
    assert str(ended.exception).startswith("--url takes an address such as http://")
    assert "wdFsEcReT" not in f"{ended.exception}{ended.exception.__cause__}{ended.output}"


def test_a_job_that_waits_for_the_store_says_why(tmp_path: Path) -> None:
    told: list[str] = []
    store = StoreProcess(tmp_path, requirepass="right")
    try:
        job_runner._reach(Address(store.url), told.append, waits=True)
    finally:
        store.close()
    (words,) = told
    assert words.startswith(f"unix:{store.socket}: the store refuses this user and password: ")
    assert words.endswith("; waiting for it")


def test_a_table_whose_log_is_broken_ends_a_command_with_one_line() -> None:
    words = r"\Athe tables: the log is broken \(CREWEL_PIPELINE__DEBUG"
    with pytest.raises(CrewelError, match=words), job_runner._as_commands_end():
        raise DeltaError("the log is broken\nin many words")


def test_a_missing_server_is_reported_before_spark_starts(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_CHECK_S", 0.2)
    ended = invoke("redrive", "--where", "true", "--url", "http://127.0.0.1:1/cometd")
    assert isinstance(ended.exception, CrewelError)
    assert str(ended.exception).startswith("http://127.0.0.1:1/cometd has not answered for 0 s: ")
    assert "Spark" not in ended.output


def test_a_wrong_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = pipeline(tmp_path, "report", "--dir", "file")
    assert (ended.status, ended.err) == (1, "crewel: file: File exists\n")
    ended = pipeline(tmp_path, "compact", "--dir", "empty")
    assert (ended.status, ended.err) == (1, "crewel: empty: there are no tables; --dir says where they are\n")


@pytest.mark.parametrize(
    ("is_quiet", "is_json", "has_paths"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_a_quiet_report_does_not_list_what_it_wrote(
    capsys: pytest.CaptureFixture[str], is_quiet: bool, is_json: bool, has_paths: bool
) -> None:
    found = report.Result(letters=3, poison=0, sick=[], paths=["gold/triage/v1", "report.html"])
    common = job_runner.Common("data", None, None, Path("crewel.toml"), is_json, is_quiet)
    job_runner.show(found, common)
    out = capsys.readouterr().out
    assert "letters" in out
    assert ("report.html" in out) is has_paths


def test_pipeline_doctor_prints_faults_with_advice(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.1)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    ended = invoke("doctor")
    assert ended.exit_code == 1
    found = {line.split()[0]: line for line in ended.stdout.splitlines()}
    assert "wrong" in found["java"]
    assert "apt-get install default-jre-headless" in found["java"]
    assert "wrong" in found["store"], "there is no server here"
    assert "spark" not in found, "which is not tried without Java"
    as_json = [json.loads(line) for line in invoke("doctor", "--json").stdout.splitlines()]
    assert {each["check"]: each["state"] for each in as_json} == {name: line.split()[1] for name, line in found.items()}


def test_a_directory_that_may_not_be_looked_at_is_no_traceback(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests may look everywhere, but at no name that is too long."""
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.1)
    ended = invoke("doctor", "--no-spark", "--dir", TOO_LONG)
    assert isinstance(ended.exception, SystemExit | None)
    assert "tables" in {line.split()[0] for line in ended.stdout.splitlines()}
    ended = invoke("compact", "--dir", TOO_LONG)
    assert isinstance(ended.exception, CrewelError)
    assert str(ended.exception).endswith("File name too long")


def imported(modules: str, condition: str) -> str:
    """Return which modules a process of its own has after these imports, as it prints them."""
    script = f"import sys, {modules}\nprint([name for name in sys.modules if {condition}])"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "app")}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_server_imports_nothing_of_the_pipeline() -> None:
    others = "name.startswith('crewel.pipeline.') or name in ('pyspark', 'pandas', 'pyarrow')"
    assert imported("crewel.server, crewel.cli.main", others) == "[]\n"


def test_a_process_that_reads_for_spark_imports_neither_settings_nor_the_store_of_a_server() -> None:
    """Spark starts these processes often: what they import is a second of processor time each."""
    others = "name in ('pydantic', 'crewel.settings.server_settings', 'crewel.storage.store')"
    assert imported("crewel.pipeline.source", others) == "[]\n"


@pytest.mark.parametrize("job", ["live", "backfill"])
def test_a_job_is_refused_before_spark_starts(tmp_path: Path, job: str) -> None:
    with writing(tmp_path, "the live job"):
        ended = pipeline(tmp_path, job, "--dir", str(tmp_path), CREWEL_STORAGE__URL=shared_store().url)
    assert ended.status == 1
    assert ended.err.splitlines()[-1] == (
        f"crewel: {tmp_path}: the live job adds to these tables, and only one job may at a time"
    )
    assert "starting Spark" not in ended.err
