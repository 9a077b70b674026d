"""Days and facts that are not kept any more: they do not come back, and are no loss to the audit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import audit, backfill, compact
from crewel.pipeline.jobs.repair import repair
from crewel.pipeline.schemas import FINDINGS, RAW, TABLES
from crewel.pipeline.tables import Tables
from tests.pipeline.conftest import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

JOE = "client/joe/1"
FIRST = date(2026, 9, 20)


def at_ms(number: int) -> int:
    return round(datetime(FIRST.year, FIRST.month, FIRST.day + number, 12, tzinfo=UTC).timestamp() * 1000)


def test_what_is_removed_on_purpose_stays_away_and_is_not_called_lost(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    begin = at_ms(0) * 1000 - 1
    streams.fact("subscribed", {"session": JOE, "patterns": ["/a"], "from": begin}, f"{at_ms(0)}-0")
    for number in range(3):
        log_id = at_ms(number) * 1000
        streams.fact("published", {"first": log_id, "channels": ["/a"]}, f"{at_ms(number)}-1")
        if number:  # each ends on the next day
            earlier = [{"session": JOE, "reason": "settled", "ids": [at_ms(number - 1) * 1000]}]
            streams.fact("ended", {"ended": earlier}, f"{at_ms(number)}-2")
    streams.client.hset(
        streams.keys.session(JOE),
        mapping={"owner": "t", "at": at_ms(9) * 1000, "s:/a": begin, f"o:{at_ms(2) * 1000}": ""},
    )
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=1)
    assert backfill.run(spark, options).entries == 6
    tables = Tables(spark, tmp_path)
    gold = tables.read(TABLES["backlog"]).count()
    result = compact.tidy(tables, today=FIRST + timedelta(days=2), keep_days=2)
    assert result.forgotten == 2 + 1  # two entries, and a row of silver beside the subscription
    assert (tables.retained_from, tables.forgotten) == (FIRST + timedelta(days=1), 2)
    assert tables.read(TABLES["backlog"]).count() == gold == 3
    assert backfill.run(spark, options).entries == 0

    found = audit.run(spark, audit.Options(address=streams.address, directory=tmp_path))
    assert (found.messages, found.counts, found.unread) == (2, dict.fromkeys(FINDINGS, 0), 0), found.findings
    # The store trims what the tables have: that changes nothing, also for what is removed later.
    streams.client.xtrim(streams.keys.facts, maxlen=1, approximate=False)
    assert compact.tidy(tables, today=FIRST + timedelta(days=3), keep_days=2).forgotten == 4
    assert tables.read(RAW).count() == 2
    found = audit.run(spark, audit.Options(address=streams.address, directory=tmp_path))
    assert (found.messages, found.counts, found.unread) == (1, dict.fromkeys(FINDINGS, 0), 0), found.findings


def test_losses_and_holds_stay_when_their_days_are_removed(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """The store has lost a subscription, which stays in the tables, and the loss says that it does not hold."""
    first = at_ms(0)
    streams.fact("held", {"session": JOE, "who": "ann", "since": first, "code": "", "reason": ""}, f"{first}-0")
    streams.fact("subscribed", {"session": JOE, "patterns": ["/a"], "from": first * 1000}, f"{first + 100}-0")
    loss = {"node": "heron", "from": first * 1000, "until": first * 1000 + 1, "messages": 0, "first": [], "last": []}
    streams.fact("lost", {**loss, "fact": f"{first}-0", "met": first + 200}, f"{first + 201}-0")
    streams.fact("published", {"first": at_ms(2) * 1000, "channels": ["/a"]}, f"{at_ms(2)}-0")
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=1, gold=False)
    assert backfill.run(spark, options).entries == 4
    tables = Tables(spark, tmp_path)
    compact.tidy(tables, today=FIRST + timedelta(days=2), keep_days=1)
    assert tables.retained_from == FIRST + timedelta(days=2)
    counts = {name: tables.rows(TABLES[name]) for name in ("fact_held", "fact_subscribed", "fact_lost", "corrupt")}
    assert counts == {"fact_held": 1, "fact_subscribed": 1, "fact_lost": 1, "corrupt": 0}
    found = audit.run(spark, audit.Options(address=streams.address, directory=tmp_path))
    assert found.counts == dict.fromkeys(FINDINGS, 0), found.findings
    assert repair(tables) == []


def test_gold_is_made_of_a_day_before_it_is_removed(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.fact("published", {"first": at_ms(0) * 1000, "channels": ["/a"]}, f"{at_ms(0)}-0")
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=1, gold=False)
    assert backfill.run(spark, options).entries == 1
    tables = Tables(spark, tmp_path)
    compact.tidy(tables, today=FIRST + timedelta(days=1), keep_days=1)
    assert tables.rows(TABLES["fact_published"]) == 0
    assert [row["persistent"] for row in tables.read(TABLES["capacity"]).collect()] == [1]


def test_a_loss_of_the_store_is_known_when_the_facts_around_it_are_trimmed(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """A backup was restored that lacks two messages. Others follow, and the store trims all but the newest facts."""
    first = at_ms(0)

    def publish(*numbers: int, ends: bool = False) -> None:
        for number in numbers:
            log_id = (first + number) * 1000
            streams.fact("published", {"first": log_id, "channels": ["/a"]}, f"{first + number}-1")
            if ends:
                ended = [{"session": JOE, "reason": "settled", "ids": [log_id]}]
                streams.fact("ended", {"ended": ended}, f"{first + number}-2")

    def restart() -> None:
        streams.client.delete(streams.keys.facts)
        streams.fact("subscribed", {"session": JOE, "patterns": ["/a"], "from": first * 1000 - 1}, f"{first}-0")
        publish(1, ends=True)

    def audited() -> audit.Result:
        return audit.run(spark, audit.Options(address=streams.address, directory=tmp_path))

    record = {"owner": "t", "at": (first + 99_999) * 1000, "s:/a": first * 1000 - 1}
    streams.client.hset(streams.keys.session(JOE), mapping=record)
    restart()
    publish(2, 3)
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=1, gold=False)
    assert backfill.run(spark, options).entries == 5
    restart()
    rolled_back = {**dict.fromkeys(FINDINGS, 0), "rolled back": 1}
    found = audited()
    assert (found.counts, found.unread) == (rolled_back, 0), found.findings
    publish(10, 11, ends=True)
    assert backfill.run(spark, options).entries == 4
    for kept in (3, 1):
        streams.client.xtrim(streams.keys.facts, maxlen=kept, approximate=False)
        again = audited()
        assert (again.counts, again.unread) == (rolled_back, 0), again.findings
        assert again.findings == found.findings
    other = Address(streams.address.url, f"{streams.address.prefix}other:")
    audit.run(
        spark, audit.Options(address=other, directory=tmp_path)
    )  # an empty store has nothing to tell later audits
    assert Tables(spark, tmp_path).rows(TABLES["losses"]) == 1
    assert audited().findings == found.findings


def test_a_loss_that_is_none_does_not_stay(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """An audit asked another store, which has none of the facts."""
    for number in (1, 2):
        streams.fact("erased", {"channel": "/a"}, f"{at_ms(0)}-{number}")
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=1, gold=False)
    backfill.run(spark, options)
    other = Address(streams.address.url, f"{streams.address.prefix}other:")
    found = audit.run(spark, audit.Options(address=other, directory=tmp_path))
    assert found.counts["rolled back"] == 1
    found = audit.run(spark, audit.Options(address=streams.address, directory=tmp_path))
    assert found.counts == dict.fromkeys(FINDINGS, 0), found.findings
    assert Tables(spark, tmp_path).rows(TABLES["losses"]) == 0
