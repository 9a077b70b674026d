"""The archive of Java's classes: what its name depends on, who writes it, and that a Java starts from it, or without it."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from crewel.pipeline import class_archive
from crewel.pipeline.class_archive import ClassArchive, _end
from crewel.pipeline.java_startup import java_properties, unpacked_home
from tests.server_process import ROOT

BUILD = {"java.vm.version": "17.0.15+6", "java.vm.vendor": "Debian"}
WRITES = 'for each; do case "$each" in -XX:SharedArchiveFile=*) echo whole > "${each#*=}";; esac; done'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of Spark in a directory whose name has a space."""
    home = tmp_path / "a cache"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark.jar").write_text("spark")
    return home


def java(directory: Path, script: str) -> str:
    """A home of Java with a program that does what it is told."""
    program = directory / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(directory / "java")


def names(home: Path) -> list[str]:
    return sorted(each.name for each in home.iterdir() if each.name != "jars")


def write(archive: ClassArchive, java_home: str) -> None:
    thread = archive.write(java_home, str(archive.path.parent / "jars" / "spark.jar"))
    assert thread is not None
    thread.join()


def test_the_name_depends_on_java_and_on_the_jars(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ClassArchive.of(home, BUILD)
    assert ClassArchive.of(home, {**BUILD, "user.dir": "/"}) == first
    found = {first, ClassArchive.of(home, {**BUILD, "java.vm.version": "21"})}
    os.utime(home / "jars" / "spark.jar", (0, 0))
    found.add(ClassArchive.of(home, BUILD))
    monkeypatch.setattr(class_archive, "CLASSES", home / "jars" / "spark.jar")
    found.add(ClassArchive.of(home, BUILD))
    assert len(found) == 4


def test_the_archive_replaces_those_of_other_builds_and_is_used_when_it_is_whole(home: Path, tmp_path: Path) -> None:
    old, new = (ClassArchive.of(home, {"java.vm.version": each}) for each in ("17", "21"))
    java_home = java(tmp_path, WRITES)
    assert old.options == ""
    write(old, java_home)
    write(new, java_home)
    assert names(home) == [new.path.name]
    assert new.options.startswith(f'"-XX:SharedArchiveFile={new.path}" ')
    assert new.write(java_home, str(home / "jars" / "spark.jar")) is None, "it is there"


def test_two_commands_that_write_at_once_leave_one_archive(home: Path, tmp_path: Path) -> None:
    archive, java_home = ClassArchive.of(home, BUILD), java(tmp_path, WRITES)
    threads = [archive.write(java_home, str(home / "jars" / "spark.jar")) for _ in range(2)]
    for each in threads:
        if each is not None:  # the other was very quick
            each.join()
    assert (names(home), archive.path.read_text()) == ([archive.path.name], "whole\n")


def test_a_java_that_cannot_write_it_leaves_nothing(home: Path, tmp_path: Path) -> None:
    archive = ClassArchive.of(home, BUILD)
    write(archive, java(tmp_path, f"{WRITES}; exit 1"))
    assert names(home) == []
    assert archive.write(str(tmp_path / "java"), f"{home}/jars/spark.jar:/elsewhere/other.jar") is None


def test_a_command_that_ends_ends_what_writes_the_archive(home: Path, tmp_path: Path) -> None:
    process, thread = ClassArchive.of(home, BUILD)._start(
        Path(java(tmp_path, f"{WRITES}; exec sleep 100"), "bin", "java"), ""
    )
    _end(process, thread)
    assert (process.returncode, names(home)) == (-9, [])


def test_a_cache_that_is_full_or_gone_means_no_archive(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, java_home = ClassArchive.of(home, BUILD), java(tmp_path, WRITES)
    with monkeypatch.context() as patched:
        patched.setattr(class_archive, "_LEAST_DISK", 2**80)
        assert archive.write(java_home, str(home / "jars" / "spark.jar")) is None
    gone = ClassArchive(tmp_path / "gone" / archive.path.name)
    assert gone.write(java_home, str(tmp_path / "gone" / "spark.jar")) is None


def test_what_killed_commands_have_left_is_removed_and_what_is_being_written_is_not(home: Path, tmp_path: Path) -> None:
    archive = ClassArchive.of(home, BUILD)
    for name, age in (("classes-1.abandoned", 7200), ("classes-1.growing", 60)):
        (home / name).touch()
        os.utime(home / name, (time.time() - age,) * 2)
    write(archive, java(tmp_path, WRITES))
    assert names(home) == sorted((archive.path.name, "classes-1.growing"))


def test_java_starts_from_an_archive_and_says_nothing_of_one_that_is_broken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a list of a few classes, which is quick."""
    properties = java_properties(os.environ)
    (home / "few.gz").write_bytes(gzip.compress(b"java/lang/Object\njava/util/zip/CRC32C\nno/such/Class\n"))
    monkeypatch.setattr(class_archive, "CLASSES", home / "few.gz")
    (home / "jars" / "spark.jar").unlink()
    archive = ClassArchive.of(home, properties)
    thread = archive.write(properties["java.home"], str(home / "jars"))
    assert thread is not None
    thread.join()

    def version(*more: str) -> str:
        line = [f"{properties['java.home']}/bin/java", *options, "-cp", str(home / "jars"), *more, "-version"]
        ended = subprocess.run(line, capture_output=True, text=True, check=True)
        assert ended.stdout == ""
        return ended.stderr

    options = [archive.options.partition('" ')[0].strip('"'), *archive.options.partition('" ')[2].split()]
    plain, whole = version(), archive.path.read_bytes()
    assert "sharing" in version("-Xshare:on")
    archive.path.chmod(0o600)
    for broken in (b"", b"broken", whole[: len(whole) // 2], whole[:50_000] + bytes(50_000) + whole[100_000:]):
        archive.path.write_bytes(broken)
        assert version() == plain.replace(", sharing", "")


def test_a_command_starts_from_the_archive_that_another_has_written(spark: SparkSession, tmp_path: Path) -> None:
    """The session of all tests writes it, unless it was there before."""
    home = unpacked_home(Path(pyspark.__file__).parent, os.environ)
    assert home is not None
    archive = ClassArchive.of(home, java_properties(os.environ))
    for thread in threading.enumerate():
        if thread.name == archive.path.name:
            thread.join(100)
    assert archive.path.exists()
    log = tmp_path / "loaded"
    script = (
        "from crewel.pipeline.connection import Address\n"
        "from crewel.pipeline.spark_session import session\n"
        f"session(Address('redis://nowhere'), settings={{'spark.driver.extraJavaOptions': '-Xlog:class+load:file={log}'}})"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "app")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    classes = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    shared = sum(line.endswith("shared objects file") for line in classes)
    assert shared > 0.9 * len(classes) > 0
