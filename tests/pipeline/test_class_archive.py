"""The archive of Java's classes: what its name depends on, who writes it, and that a Java starts from it, or without it."""

from __future__ import annotations

import gzip
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from crewel.pipeline import class_archive
from crewel.pipeline.class_archive import ClassArchive, write
from crewel.pipeline.java_startup import java_properties, unpacked_home
from tests.server_process import ROOT
from tests.store_process import until

BUILD = {"java.vm.version": "17.0.15+6", "java.vm.vendor": "Debian"}
FEW = b"java/util/zip/CRC32C\nno/such/Class\norg/apache/spark/deploy/SparkSubmit\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of Spark in a directory whose name has a space."""
    home = tmp_path / "a cache"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark.jar").write_text("spark")
    return home


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of few classes, of which an archive is written quickly."""
    (tmp_path / "few.gz").write_bytes(gzip.compress(FEW))
    monkeypatch.setattr(class_archive, "CLASSES", tmp_path / "few.gz")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Instead of a Java that loads classes: whether it succeeds, call for call."""
    answers = [True] * 9

    def load_all(java: str, class_path: str, path: Path) -> bool:
        path.write_text("whole\n")
        return answers.pop(0)

    monkeypatch.setattr(class_archive, "_load_all", load_all)
    return answers


def names(home: Path) -> list[str]:
    return sorted(each.name for each in home.iterdir() if each.name != "jars")


def test_the_name_depends_on_java_and_on_the_jars(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ClassArchive.of(home, BUILD)
    assert ClassArchive.of(home, {**BUILD, "user.dir": "/"}) == first
    found = {first, ClassArchive.of(home, {**BUILD, "java.vm.version": "21"})}
    os.utime(home / "jars" / "spark.jar", (0, 0))
    found.add(ClassArchive.of(home, BUILD))
    monkeypatch.setattr(class_archive, "CLASSES", home / "jars" / "spark.jar")
    found.add(ClassArchive.of(home, BUILD))
    assert len(found) == 4


@pytest.mark.usefixtures("loaded")
def test_the_archive_replaces_those_of_other_builds_and_is_used_when_it_is_whole(home: Path) -> None:
    old, new = (ClassArchive.of(home, {"java.vm.version": each}) for each in ("17", "21"))
    assert old.options == ""
    for each in (old, new):
        write(each, "java", "")
    assert old.path is None
    path = new.path
    assert path is not None
    assert names(home) == [path.name]
    assert new.options.startswith(f'"-XX:SharedArchiveFile={path}" ')
    path.write_text("cut")
    assert (new.path, new.options) == (None, "")
    write(new, "java", "")
    assert new.path == path


def test_what_another_process_writes_is_left_to_it_unless_it_was_killed(home: Path, loaded: list[bool]) -> None:
    archive = ClassArchive.of(home, BUILD)
    unfinished = archive.stem.with_suffix(".unfinished")
    unfinished.touch()
    write(archive, "java", "")
    assert names(home) == [unfinished.name]
    os.utime(unfinished, (time.time() - 7200,) * 2)
    for _ in range(2):  # it is there the second time
        write(archive, "java", "")
    assert archive.path is not None
    assert names(home) == [archive.path.name]
    assert len(loaded) == 8


def test_a_java_that_cannot_write_it_and_a_full_disk_leave_nothing(
    home: Path, loaded: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = ClassArchive.of(home, BUILD)
    loaded[0] = False
    write(archive, "java", "")
    assert (names(home), len(loaded)) == ([], 8)
    monkeypatch.setattr(class_archive, "_LEAST_DISK", 2**80)
    write(archive, "java", "")
    assert (names(home), len(loaded)) == ([], 8)


@pytest.mark.parametrize("delay_s", [0.0, 60.0])
def test_a_process_that_ends_or_has_run_for_a_while_leaves_it_to_another(
    home: Path, tmp_path: Path, delay_s: float
) -> None:
    """Which has the lowest priority, and leaves nothing if its Java cannot write it."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\nnice > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/nice; exit 1\n")
    java.chmod(0o755)
    ended = python(
        "from pathlib import Path\n"
        "from crewel.pipeline import class_archive\n"
        f"class_archive._DELAY_S = {delay_s}\n"
        f"archive = class_archive.ClassArchive(Path({str(home / 'classes-1')!r}))\n"
        f"archive.write_later({str(tmp_path)!r}, {str(home)!r})\n"
        f"while {delay_s} == 0 and not Path({str(tmp_path)!r}, 'nice').exists(): pass\n"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    until((tmp_path / "nice").exists)
    assert int((tmp_path / "nice").read_text()) == 19
    until(lambda: names(home) == [])


def test_jars_of_ones_own_have_no_archive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive.threading, "Timer", None)
    ClassArchive.of(home, BUILD).write_later("/java", f"{home}/jars/spark.jar:/elsewhere/other.jar")


@pytest.mark.timeout(300)  # it starts Spark, which takes long beside other tests
@pytest.mark.usefixtures("few")
def test_a_command_starts_from_the_archive_and_says_nothing_of_one_that_is_broken(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark._jvm is not None
    cache = {"XDG_CACHE_HOME": str(tmp_path / "a cache")}
    home = unpacked_home(Path(pyspark.__file__).parent, cache)
    assert home is not None
    properties = java_properties(os.environ)
    program, archive = f"{properties['java.home']}/bin/java", ClassArchive.of(home, properties)
    class_path = spark._jvm.java.lang.System.getProperty("java.class.path")
    class_path = class_path.replace(os.environ["SPARK_HOME"], str(home))
    write(archive, program, class_path)
    log = tmp_path / "loaded"
    ended = python(
        "from pathlib import Path\n"
        "from crewel.pipeline import class_archive\n"
        f"class_archive.CLASSES = Path({str(class_archive.CLASSES)!r})\n"
        "from crewel.pipeline.connection import Address\n"
        "from crewel.pipeline.spark_session import session\n"
        f"java = {{'spark.driver.extraJavaOptions': '-Xlog:class+load:file={log}'}}\n"
        "session(Address('redis://nowhere'), settings=java).stop()",
        **cache,
        SPARK_HOME="",
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    (line,) = (line for line in log.read_text().splitlines() if " org.apache.spark.deploy.SparkSubmit " in line)
    assert "shared objects file" in line

    path, options = archive.path, shlex.split(archive.options)
    assert path is not None
    whole = path.read_bytes()
    path.chmod(0o600)
    for broken in (b"broken", whole[:50_000] + bytes(50_000) + whole[100_000:], bytes(len(whole))):
        path.write_bytes(broken)
        words = [program, *options, "-cp", class_path, "-version"]
        told = subprocess.run(words, capture_output=True, text=True, check=True)
        assert (told.stdout, len(told.stderr.splitlines())) == ("", 3), told.stderr


def python(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "app"), **environ}
    return subprocess.run(
        [sys.executable, "-c", script],
        env={name: value for name, value in environment.items() if value},
        capture_output=True,
        text=True,
        timeout=100,
    )
