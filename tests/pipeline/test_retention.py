"""Days that are not kept any more: they do not come back, and are no loss to the audit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crewel.pipeline.jobs import audit, backfill, compact
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
