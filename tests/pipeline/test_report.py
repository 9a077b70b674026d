"""The report of a real server: from rejections to the page that names their cause."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from crewel.errors import StoreUnavailable
from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import audit, report
from crewel.pipeline.jobs.inputs import Inputs
from crewel.pipeline.jobs.report import (
    Options,
    _audited,
    _backlog,
    _begin,
    _by_channel,
    _by_finding,
    _by_slot,
    _rows,
    _run_audit,
    _times_of,
    _within,
    answers,
    run,
)
from crewel.pipeline.report.slots import ALL, of_bars, of_points
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.tables import Tables
from crewel.storage.streams import BUCKETS_MS
from tests.admin.desk import SETS, STORED, Receiver, publish
from tests.conftest import StartServer
from tests.pipeline.frames import frame, silver, told
from tests.server_process import Server
from tests.store_process import until

pytestmark = pytest.mark.timeout(300)  # a report has many jobs of Spark, which take long beside other tests

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
NAMES = ["client/ann/1", "client/joe/1"]
REJECTED = 8
"""Messages of another shape, which all receivers reject."""


def test_the_page_names_the_message_that_all_rejected_and_the_command_that_removes_it(
    spark: SparkSession,
    address: Address,
    start_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = (f"storage.url={address.url}", f"storage.prefix={address.prefix}", "events.flush_ms=50")
    server = start_server(*SETS, *stored)
    receivers = [Receiver(server).be(name.removeprefix("client/")) for name in NAMES]
    for each in receivers:
        each.subscribe("/orders")
    publish(server, "/orders", 4)
    for each in receivers:
        messages = each.take_all()
        each.reject(messages[:1])
        each.accept(messages[1:])
    tills = _change_of_the_publisher(server)
    with address.client() as client:
        until(lambda: client.xlen(address.keys.dead) == len(NAMES) + REJECTED * len(tills))
        until(lambda: any(b"total: number" in fields[b"d"] for _, fields in client.xrange(address.keys.events)))
    tables = Tables(spark, tmp_path)
    tables.create()
    assert _audited(tables) is None, "there was no audit yet"
    page, lines = tmp_path / "report.html", list[str]()
    options = Options(address=address, directory=tmp_path, html=page, url=server.url)
    result = run(spark, options)
    assert (result.letters, result.poison, result.sick) == (2 + REJECTED * len(tills), 1, [])
    shown = json.loads((tmp_path / "report.json").read_text())
    (row,) = shown["poison"]
    assert (row["channel"], row["names"], row["why"]) == ("/orders", NAMES, "2 receivers rejected it, none took it")
    causes = [(each["cause"], each["letters"]) for each in shown["triage"]]
    assert causes == [*[("channel", REJECTED)] * len(tills), ("message", 1), ("message", 1)]
    assert sum(each["letters"] for each in shown["deaths"]) == 2 + REJECTED * len(tills)
    (channel,) = shown["failing_channels"]
    assert (channel["channel"], channel["publishers"], channel["names"]) == ("/totals", ["client/shop/1"], tills)
    assert (channel["shape"], channel["earlier_shape"]) == ("{n: number, sum: number}", "{n: number, total: number}")
    assert (channel["messages"], channel["published"], channel["earlier"]) == (REJECTED, REJECTED, 12)
    assert "Find out what <code>client/shop/1</code> changed" in page.read_text()
    assert "fix the program" not in page.read_text()
    assert shown["times"] == []
    assert f"crewel dead-letters discard {' '.join(row['dead_letters'])}" in page.read_text()
    assert len(row["dead_letters"]) == 2
    assert shown["audit"] == [], "the report runs the audit"
    assert "<b>0</b><span>not accounted for</span>" in page.read_text()
    link = f"{server.url.removesuffix('/cometd')}/admin/#/message/{row['message_id']}"
    assert f'<a href="{link}">' in page.read_text()

    def is_away(*_: object) -> None:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(audit, "run", is_away)
    _run_audit(spark, options, lines.append)
    assert lines == ["the page has the findings of the last audit: it is away"]
    assert shown["audited"] is not None


def _change_of_the_publisher(server: Server) -> list[str]:
    """A publisher sends another field from some message on, and all three receivers reject it; return their names."""
    tills = [Receiver(server).be(f"till/{number}") for number in range(1, 4)]
    for each in tills:
        each.subscribe("/totals")
    shop = Receiver(server).be("shop/1")
    for number in range(12 + REJECTED):
        shop.publish("/totals", {"n": number, ("total" if number < 12 else "sum"): 1}, ext=STORED)
    for each in tills:
        messages = each.take_all()
        each.accept(messages[:12])
        each.reject(messages[12:])
    return [f"client/till/{number}" for number in range(1, 4)]


def test_dead_letters_of_a_report_are_those_of_its_time(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one receiver and reason, some died before the time that is asked for, some in it, and some after it."""
    # Causes are another matter: of tables that Spark knows to be empty they cost nothing.
    causes = report.causes.causes
    monkeypatch.setattr(report.causes, "causes", lambda _, keep: causes(silver(spark), keep))
    at_ms = round(BEGIN.timestamp() * 1000)
    ended = [
        {"ms": at_ms + hour * 3_600_000, "log_id": hour, "receiver": NAMES[0], "reason": "dead", "code": "user.x"}
        for hour in (-2, -1, 0, 1, 2, 5)
    ]
    inputs = cast("Inputs", SimpleNamespace(silver=silver(spark, fact_ended=ended)))
    found = answers(inputs, BEGIN, BEGIN + timedelta(hours=3))
    assert found.older == 2
    for name in ("triage", "incidents", "deaths"):
        assert sum(row["letters"] for row in found.tables[name].collect()) == 6
        assert sum(row["letters"] for row in found.shown[name].collect()) == 3


def test_a_cause_that_lasts_is_of_all_times_that_it_touches(spark: SparkSession) -> None:
    hours = ((-3, -2), (-2, 1), (1, 2), (1, 9), (4, 5))
    rows = [
        {"message_id": str(at), "first_at": BEGIN + timedelta(hours=first), "last_at": BEGIN + timedelta(hours=last)}
        for at, (first, last) in enumerate(hours)
    ]
    found = _within(frame(spark, "poison", rows), "poison", BEGIN, BEGIN + timedelta(hours=3))
    assert told(found, "message_id") == [("1",), ("2",), ("3",)]


def test_the_findings_of_the_audit_are_counted_and_the_most_urgent_are_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, tmp_path)
    names = ("damaged table", "lost", "rolled back", "twice", "lost", "unknown")
    rows = [{"finding": name, "log_id": at, "receiver": "client/joe/1"} for at, name in enumerate(names)]
    tables.replace(TABLES["audit"], frame(spark, "audit", rows))
    first = _audited(tables)
    assert first is not None
    assert [(row["finding"], row["log_id"]) for row in first] == [
        ("lost", 1), ("lost", 4), ("twice", 3), ("damaged table", 0), ("rolled back", 2), ("unknown", 5),
    ]  # fmt: skip
    assert {*first[0]} == {*TABLES["audit"].names}
    assert [*_by_finding(tables.read(TABLES["audit"])).items()] == [
        ("lost", 2), ("twice", 1), ("damaged table", 1), ("rolled back", 1), ("unknown", 1),
    ]  # fmt: skip


def test_what_is_known_by_minute_is_shown_by_slots_of_a_long_time(spark: SparkSession) -> None:
    minutes = [BEGIN + timedelta(minutes=each) for each in (0, 1, 59, 60)]
    rows = [{"minute": at, "owed": 2, "ended": 1, "waiting": number} for number, at in enumerate(minutes, 1)]
    found = _by_slot(frame(spark, "backlog", rows), of_points(BEGIN, BEGIN + timedelta(days=30)), BEGIN)
    assert told(found, "owed", "ended", "waiting") == [(2, 1, 4), (6, 3, 3)]
    weeks = frame(spark, "backlog", rows).select(_begin("minute", ALL[-1]).alias("week")).distinct().collect()
    assert [row["week"].astimezone(UTC).strftime("%A %F") for row in weeks] == ["Monday 2026-11-16"]


def test_what_waits_is_shown_where_nothing_moved(spark: SparkSession, tmp_path: Path) -> None:
    """The last movement was two days before, the next one is after the time that is asked for."""
    tables, until = Tables(spark, tmp_path), BEGIN + timedelta(hours=24)
    rows = [
        {"minute": (at := BEGIN + timedelta(hours=hours)), "date": at.date(), "owed": 9, "ended": 4, "waiting": waiting}
        for hours, waiting in ((-200, 4), (-50, 7), (-49, 5), (30, 1))
    ]
    tables.replace(TABLES["backlog"], frame(spark, "backlog", rows))
    found = _rows(_backlog(tables, BEGIN, until, of_points(BEGIN, until)), ["minute"])
    assert found == [{"minute": BEGIN, "owed": 0, "ended": 0, "waiting": 5}]


def test_all_of_the_time_in_which_receivers_failed_is_shown_and_each_time_on_hold(spark: SparkSession) -> None:
    """Two fail in a thousand minutes each, and one has been on hold since before the time that is asked for."""
    minute, until = timedelta(minutes=1), BEGIN + timedelta(minutes=1000)
    rows = [
        {"session": name, "what": "fails", "begin": (at := BEGIN + each * minute), "end": at + minute, "failed": 1}
        for name in NAMES
        for each in range(1000)
    ]
    rows.append({"session": NAMES[0], "what": "on hold", "begin": BEGIN - minute})
    held, *fails = _times_of(frame(spark, "receiver_times", rows), NAMES, BEGIN, until, of_bars(BEGIN, until))
    assert (held["session"], held["what"], held["begin"], held["end"]) == (NAMES[0], "on hold", BEGIN - minute, None)
    for name in NAMES:
        own = [row for row in fails if row["session"] == name]
        assert (min(row["begin"] for row in own), max(row["end"] for row in own)) == (BEGIN, until)
        assert sum(row["failed"] for row in own) == 1000


def test_the_slowest_channel_comes_first_also_if_it_takes_more_than_an_hour(spark: SparkSession) -> None:
    rows = [
        {
            "minute": BEGIN,
            "channel": f"/{at}",
            "count": 5,
            "buckets": [5 * (at == each) for each in range(len(BUCKETS_MS) + 1)],
        }
        for at in (0, len(BUCKETS_MS), 3)
    ]
    found = [(row["channel"], row["p99_ms"]) for row in _by_channel(frame(spark, "latency", rows), BEGIN)]
    assert found == [(f"/{len(BUCKETS_MS)}", None), ("/3", 10.0), ("/0", 1.0)]
