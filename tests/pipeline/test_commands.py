"""Commands that start Spark, as people see them: what they print, and nothing of Spark's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crewel.pipeline.connection import Address
from crewel.pipeline.output import in_one_line
from tests.server_process import ROOT

LIMIT_S = 100


def started(directory: Path, address: Address, *arguments: str) -> subprocess.Popen[str]:
    environ = {"CREWEL_STORAGE__URL": address.url, "CREWEL_STORAGE__PREFIX": address.prefix, "NO_COLOR": "1"}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CREWEL_")}
    return subprocess.Popen(
        [sys.executable, "-m", "crewel.pipeline", *arguments],
        cwd=directory,
        env={**inherited, "PYTHONPATH": str(ROOT / "app"), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_condition_that_names_what_there_is_not_is_told_in_a_few_words(address: Address, tmp_path: Path) -> None:
    """Neither Java nor Spark adds a word, also when they start and stop."""
    with started(tmp_path, address, "redrive", "--dry-run", "--quiet", "--where", "error_cod = 'x'") as command:
        out, words = command.communicate(timeout=LIMIT_S)
    assert (command.returncode, out) == (2, "")
    assert words.startswith("Usage: crewel pipeline redrive ")
    assert "there is no column error_cod; there are at, attempts" in words
    assert len(words) < 1000


def test_an_interrupt_ends_it_without_a_word(address: Address, tmp_path: Path) -> None:
    with started(tmp_path, address, "report") as command:
        assert command.stderr is not None
        told = [command.stderr.readline(), command.stderr.readline()]
        assert [line.split("  ")[-1] for line in told] == ["starting Spark\n", "reading\n"]
        command.send_signal(signal.SIGINT)
        assert command.wait(LIMIT_S) == 130
        assert command.communicate(timeout=LIMIT_S) == ("", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "An error occurred while calling o1.load.\n: java.lang.IllegalStateException: It is stopped\n\tat x",
            "It is stopped",
        ),
        ("An error occurred while calling None.x.\n: It broke", "It broke"),
        ("[SOME.CLASS] It broke. SQLSTATE: 42703\nmore", "It broke."),
        ("Traceback\ncrewel.errors.tree.StoreUnavailable: the store is unavailable\n", "the store is unavailable"),
        ("", "ValueError"),
    ],
)
def test_what_went_wrong_fits_into_a_line(text: str, words: str) -> None:
    assert in_one_line(ValueError(text)) == words
