"""How Spark is started, and what is said when something is missing that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from crewel.errors import SettingsError
from crewel.pipeline import spark_session
from crewel.pipeline.java_startup import unpacked_home
from crewel.pipeline.spark_session import INSTALL_EXTRA, INSTALL_JAVA, LEAST_JAVA, java_version, ready, session
from tests.server_process import ROOT


def java(directory: Path, script: str) -> dict[str, str]:
    """An environment with a Java that does what it is told."""
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(directory)}


def test_everything_is_there_on_this_machine() -> None:
    ready()
    found = java_version()
    assert found is not None
    assert found >= LEAST_JAVA


def test_java_is_found_where_java_home_says(tmp_path: Path) -> None:
    assert java_version(java(tmp_path, "echo '    java.specification.version = 21' >&2")) == 21


def test_an_old_java_is_known_by_its_old_name(tmp_path: Path) -> None:
    assert java_version(java(tmp_path, "echo '    java.specification.version = 1.8' >&2")) == 8


@pytest.mark.parametrize("script", ["exit 1", "echo hello"])
def test_a_java_that_does_not_work_is_none(tmp_path: Path, script: str) -> None:
    assert java_version(java(tmp_path, script)) is None


def test_no_java_at_all_is_none(tmp_path: Path) -> None:
    assert java_version({"PATH": str(tmp_path)}) is None
    assert java_version({"JAVA_HOME": str(tmp_path)}) is None


def test_what_is_missing_is_said_with_the_command_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "java_version", lambda: None)
    with pytest.raises(SettingsError) as without_java:
        ready()
    assert INSTALL_JAVA in str(without_java.value)
    monkeypatch.setattr(spark_session, "java_version", lambda: 11)
    with pytest.raises(SettingsError, match="17 or newer, here is 11"):
        ready()
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None)
    with pytest.raises(SettingsError) as without_extra:
        ready()
    assert INSTALL_EXTRA in str(without_extra.value)


def test_the_time_zone_that_the_tables_depend_on_cannot_be_set() -> None:
    with pytest.raises(SettingsError, match=r"spark\.sql\.session\.timeZone: the tables need UTC"):
        session(settings={"spark.sql.session.timeZone": "Asia/Tokyo"})


def run(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "app"), **environ},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_every_module_can_be_imported_where_no_spark_runs(tmp_path: Path) -> None:
    script = (
        "import importlib, pkgutil, crewel.pipeline as p\n"
        "for each in pkgutil.walk_packages(p.__path__, 'crewel.pipeline.'):\n"
        "    importlib.import_module(each.name)\n"
    )
    ended = run(script, PATH=str(tmp_path), JAVA_HOME="")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_java_says_at_its_start_is_passed_on_but_for_the_greetings() -> None:
    script = (
        "import os, sys\n"
        "from crewel.pipeline.java_startup import without_greetings\n"
        "with without_greetings():\n"
        "    child = os.popen('echo WARNING: Using incubator modules: x >&2; echo trouble >&2; printf half >&2')\n"
        "    child.read()\n"
        "import threading\n"
        "for each in threading.enumerate()[1:]: each.join(10)\n"
        "print('after', file=sys.stderr)\n"
    )
    ended = run(script)
    assert ended.returncode == 0
    assert ended.stderr == "trouble\nhalfafter\n"


def test_java_is_started_from_the_installed_spark_without_the_archive_of_its_python(tmp_path: Path) -> None:
    installed, cache = tmp_path / "pyspark", {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for part in ("bin", "jars", "python/lib"):
        (installed / part).mkdir(parents=True)
    home = unpacked_home(installed, cache)
    assert home is not None
    assert {each.name: each.resolve() for each in home.iterdir()} == {
        "bin": installed / "bin",
        "jars": installed / "jars",
    }
    (installed / "conf").mkdir()
    assert unpacked_home(installed, cache) == home
    assert (home / "conf").resolve() == installed / "conf", "which came later"
    (tmp_path / "file").touch()
    assert unpacked_home(installed, {"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


def test_processes_of_spark_import_what_is_installed(spark: SparkSession) -> None:
    """And so do not compile it at each start."""
    found = spark.range(1, numPartitions=1).mapInArrow(_where_pyspark_is, "path STRING").collect()[0]["path"]
    assert found == pyspark.__file__


def test_java_is_asked_once_what_a_name_stands_for(spark: SparkSession) -> None:
    java = spark._jvm
    assert java is not None
    assert java.functions is java.functions
    assert java.functions.col is java.functions.col
    assert java.java.lang.System is java.java.lang.System
    assert java.functions.col("a").toString() == "a"
    assert java.functions.col("b").toString() == "b"
    with pytest.raises(Py4JError, match="does not exist"):
        _ = java.functions.unheard_of


def _where_pyspark_is(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"path": [pyspark.__file__]})
