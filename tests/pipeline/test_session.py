"""What is said when something is missing that Spark needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from crewel.errors import SettingsError
from crewel.pipeline import session
from crewel.pipeline.session import INSTALL_EXTRA, INSTALL_JAVA, LEAST_JAVA, java_version, ready


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
    monkeypatch.setattr(session, "java_version", lambda: None)
    with pytest.raises(SettingsError) as without_java:
        ready()
    assert INSTALL_JAVA in str(without_java.value)
    monkeypatch.setattr(session, "java_version", lambda: 11)
    with pytest.raises(SettingsError, match="17 or newer, here is 11"):
        ready()
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(SettingsError) as without_extra:
        ready()
    assert INSTALL_EXTRA in str(without_extra.value)
