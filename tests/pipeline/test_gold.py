"""Gold that is brought up to date is what it is if it is made at once, and only hours are made that something was added to."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame

from crewel.pipeline.delta import Batch
from crewel.pipeline.jobs import gold
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.tables import Tables
from tests.pipeline.frames import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGIN_MS = 1_790_000_000_000 // DAY_MS * DAY_MS
JOE = "client/joe/1"
NAMES = ("intervals", "latency", "backlog", "capacity")

Rows = dict[str, list[dict[str, Any]]]


def day(number: int) -> date:
    return datetime.fromtimestamp((BEGIN_MS + number * DAY_MS) / 1000, UTC).date()


def at(number: int, hour: int) -> int:
    return BEGIN_MS + number * DAY_MS + hour * HOUR_MS


def a_day(number: int, ends_of: int) -> Rows:
    """A message in the first hour of a day and one in the last, and ends of those of the same or an earlier day."""
    made: Rows = {"fact_published": [], "fact_ended": [], "event_settled": []}
    for hour in (0, 23):
        ms = at(number, hour)
        published = {"ms": ms, "log_id": ms * 1000, "channel": "/a", "bytes": 1.0}
        ended = {"ms": ms, "seq": 1, "log_id": at(ends_of, hour) * 1000, "receiver": JOE, "reason": "settled"}
        made["fact_published"].append(published)
        made["fact_ended"].append({**ended, "bytes": 1.0})
        made["event_settled"].append(
            {"ms": ms, "channel": "/a", "count": 1, "sum_ms": 5, "buckets": [0, 1], "bytes": 1.0}
        )
    return made


def subscribed(number: int) -> Rows:
    fact = {"ms": at(number, 0), "session": JOE, "pattern": "/*", "begins": True, "from_id": at(number, 0) * 1000 - 1}
    return {"fact_subscribed": [fact]}


def add(spark: SparkSession, tables: Tables, number: int, *parts: Rows) -> list[str]:
    """Add rows as a batch, and bring gold up to date; return what was said of it.

    The rows of each hour are a file of their own. Of a file, the first and the last millisecond are known, and all hours from
    one to the other are made again.
    """
    names = {name for part in parts for name in part}
    for name in sorted(names):
        rows = sorted((row for part in parts for row in part.get(name, ())), key=hour_of)
        hours = [frame(spark, name, list(of_hour)) for _, of_hour in groupby(rows, hour_of)]
        tables.write(TABLES[name], reduce(DataFrame.unionByName, hours), Batch("fill", number))
    told: list[str] = []
    gold.write(tables, told.append)
    return told


def hour_of(row: dict[str, Any]) -> int:
    ms: int = row["ms"]
    return ms // HOUR_MS


def made(tables: Tables) -> dict[str, list[str]]:
    return {name: sorted(map(str, tables.read(TABLES[name]).collect())) for name in NAMES}


def test_days_that_come_one_by_one_and_late_make_the_same_gold(spark: SparkSession, tmp_path: Path) -> None:
    first, second = (a_day(number, ends_of=number) for number in range(2))
    tables, at_once = Tables(spark, tmp_path / "one"), Tables(spark, tmp_path / "other")
    add(spark, tables, 1, second)
    assert {row["waiting"] for row in tables.read(TABLES["backlog"]).collect()} == {0}  # there was no subscription
    # A late day, with a subscription that holds the messages of all days.
    late = add(spark, tables, 2, first, subscribed(0))
    assert late == ["intervals: 1 hours", "latency: 2 hours", "backlog: 2 hours", "capacity: 2 hours"]
    assert add(spark, tables, 3) == []
    add(spark, at_once, 1, first, second, subscribed(0))
    assert made(tables) == made(at_once)
    backlog = tables.read(TABLES["backlog"]).orderBy("minute").collect()
    assert [(row["owed"], row["ended"], row["waiting"]) for row in backlog] == [*[(1, 1, 0)] * 4]
    rows = tables.read(TABLES["capacity"], days=[day(0), day(1)]).orderBy("hour").collect()
    assert [(row["persistent"], row["deliveries"], row["trend"]) for row in rows] == [
        (1, 1, None), (1, 1, None), (1, 1, 1.0), (1, 1, None),
    ]  # fmt: skip


def an_hour(number: int, hour: int, count: int) -> Rows:
    """So many messages, and their ends, within an hour."""
    rows: Rows = {"fact_published": [], "fact_ended": [], "event_settled": []}
    for minute in range(count):
        ms = at(number, hour) + minute * 60_000
        rows["fact_published"].append({"ms": ms, "log_id": ms * 1000, "channel": "/a", "bytes": 1.0})
        ended = {"ms": ms + 1, "seq": 1, "log_id": ms * 1000, "receiver": JOE, "reason": "settled", "bytes": 1.0}
        rows["fact_ended"].append(ended)
        settled = {"ms": ms, "channel": "/a", "count": 1, "sum_ms": 5, "buckets": [0, 1], "bytes": 1.0}
        rows["event_settled"].append(settled)
    return rows


def test_more_of_one_hour_makes_that_hour_again_also_after_files_were_merged(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables, at_once = Tables(spark, tmp_path / "one"), Tables(spark, tmp_path / "other")
    add(spark, tables, 1, subscribed(0), an_hour(0, 3, 2), an_hour(0, 4, 4), an_hour(0, 5, 3), an_hour(1, 0, 2))
    more = an_hour(0, 4, 6)
    more = {name: rows[4:] for name, rows in more.items()}
    told = ["latency: 1 hours", "backlog: 1 hours", "capacity: 1 hours"]
    assert add(spark, tables, 2, more) == told
    for name in ("fact_published", "fact_ended", "event_settled"):
        before, after = tables.compact(TABLES[name], day(2), 2)
        assert before > after > 0
    assert add(spark, tables, 3) == []
    last = {name: rows[2:] for name, rows in an_hour(1, 0, 3).items()}
    assert add(spark, tables, 4, last) == told
    add(spark, at_once, 1, subscribed(0), an_hour(0, 3, 2), an_hour(0, 4, 6), an_hour(0, 5, 3), an_hour(1, 0, 3))
    assert made(tables) == made(at_once)
    rows = tables.read(TABLES["capacity"]).orderBy("hour").collect()
    assert [(row["persistent"], row["trend"]) for row in rows] == [(2, None), (6, 3.0), (3, 0.5), (3, None)]
