"""That Crewel conforms, over each transport, and what the command prints and writes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from crewel.cli.conformance import conformance
from crewel.conformance.check_table import CHECKS, Outcome
from crewel.conformance.runner import Report
from crewel.conformance.verdicts import TRANSPORTS
from crewel.errors import SettingsError
from crewel.testing import Server
from tests.conformance.conftest import RunChecks
from tests.template import Command

pytestmark = pytest.mark.server
ALL = {
    "bayeux.transports": ",".join(("websocket", "long-polling", "callback-polling")),
    "bayeux.timeout_ms": 60_000,  # above the limit: what is held is seen to be
}


def ids(report: Report, outcome: Outcome) -> set[str]:
    """The checks that ended like this, on any transport."""
    return {each.check.id for each in report.results if each.outcome is outcome}


def command(*arguments: str) -> tuple[int, str, str]:
    """The status of the command, and what it wrote."""
    with Command(["conformance", *arguments], stdout=PIPE, stderr=PIPE, text=True) as process:
        out, err = process.communicate(timeout=110)
    return process.returncode, out, err


def test_a_piped_list_has_at_most_100_columns() -> None:
    status, out, _ = command("--list")
    assert status == 0
    assert 60 < max(map(len, out.splitlines())) <= 100


@pytest.mark.crewel(settings=ALL)
def test_crewel_passes_every_check_on_every_transport(crewel: Server, run_checks: RunChecks) -> None:
    report = run_checks(crewel.url)
    assert {each.transport for each in report.results} == set(TRANSPORTS)
    assert ids(report, Outcome.FAILED) == ids(report, Outcome.NOT_OFFERED) == set()
    assert ids(report, Outcome.UNTESTED) == {"expiry", "timestamp-format"}


def test_crewel_with_its_defaults_names_what_it_does_not_offer(crewel: Server, run_checks: RunChecks) -> None:
    """The checks that look at what is offered: all others do not know the transports that they do not run on."""
    looking = [name for name in CHECKS if name.startswith("handshake-") or name.endswith("-polling-offered")]
    report = run_checks(crewel.url, only=looking)
    assert report.offered == ["websocket", "long-polling"]
    assert ids(report, Outcome.FAILED) == ids(report, Outcome.UNTESTED) == set()
    missing = {each.transport for each in report.results if each.outcome is Outcome.NOT_OFFERED}
    assert missing == {"callback-polling", "long-polling"}
    (offer,) = [each for each in report.results if each.check.id == "callback-polling-offered"]
    assert (offer.outcome, offer.detail) == (Outcome.NOT_OFFERED, "the types are ['websocket', 'long-polling']")


@pytest.mark.crewel(settings={"bayeux.max_interval_ms": 200})
def test_a_silent_session_is_seen_to_end(crewel: Server, run_checks: RunChecks) -> None:
    report = run_checks(crewel.url, only=["expiry"], transports=["long-polling"], expiry_s=3)
    assert [each.outcome for each in report.results] == [Outcome.PASSED]


def test_the_command_reports_as_text_html_and_json(crewel: Server, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    checks = ["--only=callback-polling-offered", "--only=handshake-fields"]
    status, out, err = command(crewel.url, *checks, f"--html={page}", "--limit=30")
    assert (status, err) == (0, "")
    assert "callback-polling-offered" in out
    assert "handshake-fields" not in out  # it passed
    assert '<tr id="handshake-fields">' in page.read_text("utf-8")
    status, out, _ = command(crewel.url, *checks, "--json", "--strict", "--limit=30")
    assert status == 0  # a transport that is off by default is no failure
    report = json.loads(out)
    assert report["summary"]["SHOULD"] == {"passed": 0, "failed": 0, "not offered": 1, "untested": 0}
    assert [each["id"] for each in report["checks"]] == ["callback-polling-offered", "handshake-fields"]


def test_a_report_that_cannot_be_written_is_printed_all_the_same(crewel: Server, tmp_path: Path) -> None:
    page = tmp_path / "missing" / "report.html"
    status, out, err = command(crewel.url, "--only=callback-polling-offered", f"--html={page}", "--limit=30")
    assert "callback-polling-offered" in out
    assert (status, err) == (1, f"crewel: {page}: No such file or directory\n")


def test_a_report_is_written_though_nothing_reads_the_text(crewel: Server, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    reading, writing = os.pipe()
    os.close(reading)
    words = ["conformance", crewel.url, "--only=callback-polling-offered", f"--html={page}", "--limit=30"]
    with Command(words, stdout=writing, stderr=PIPE, text=True) as process:
        os.close(writing)
        process.communicate(timeout=110)
    assert '<tr id="callback-polling-offered">' in page.read_text("utf-8")


def test_a_recommendation_that_is_not_followed_fails_a_strict_run_only(crewel: Server) -> None:
    check = (crewel.url, "--only=expiry", "--only=meta-id", "--transport=long-polling", "--expiry=0.01", "--limit=30")
    assert command(*check)[0] == 0
    assert command(*check, "--strict")[0] == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "ftp://x"}, "URL: expected http://… or https://…, got 'ftp://x'"),
        ({"url": "http://127.0.0.1:9/cometd"}, "no Bayeux server answers at http://127.0.0.1:9/cometd"),
        ({"url": "http://joe:secret@127.0.0.1:9/cometd"}, "no Bayeux server answers at http://127.0.0.1:9/cometd"),
        ({"url": "http://x", "only": ["no"]}, "--only: there is no check 'no'; --list shows all"),
        (
            {"url": "http://x", "transport": ["smoke"]},
            "--transport: expected long-polling, callback-polling, websocket, got",
        ),
        ({"url": "http://x", "header": ["no"]}, "--header: expected `Name: value`, got 'no'"),
    ],
)
def test_what_cannot_be_run_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        conformance(**options)
    assert str(refused.value).startswith(why)
