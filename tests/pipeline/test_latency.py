"""Latencies and backlog, from small frames."""

from pyspark.sql import SparkSession

from crewel.pipeline.transformations.latency import backlog, latency, movements
from crewel.storage.streams import BUCKETS_MS
from tests.pipeline.frames import frame, of_rows, silver, time, told

MINUTE = 60_000


def _buckets(**counts: int) -> list[int]:
    return [counts.get(f"b{bound}", 0) for bound in BUCKETS_MS] + [counts.get("more", 0)]


def _naive(ms: int) -> object:
    return time(ms).astimezone().replace(tzinfo=None)


def test_percentiles_are_the_bounds_of_their_buckets(spark: SparkSession) -> None:
    settled = [
        {"channel": "/a", "at": time(1), "count": 90, "sum_ms": 90, "buckets": _buckets(b1=90)},
        {"channel": "/a", "at": time(2), "count": 10, "sum_ms": 910, "buckets": _buckets(b10=8, b500=1, more=1)},
        {"channel": "/a", "at": time(MINUTE), "count": 1, "sum_ms": 7_200_000, "buckets": _buckets(more=1)},
        {"channel": "/b", "at": time(1), "count": 2, "sum_ms": 3, "buckets": _buckets(b1=1, b2=1)},
    ]
    found = latency(frame(spark, "event_settled", settled))
    assert told(found, "channel", "minute", "count", "mean_ms", "p50_ms", "p90_ms", "p99_ms") == [
        ("/a", _naive(0), 100, 10.0, 1.0, 1.0, 500.0),
        ("/a", _naive(MINUTE), 1, 7_200_000.0, None, None, None),
        ("/b", _naive(0), 2, 1.5, 1.0, 2.0, 2.0),
    ]
    assert found.where("channel = '/a' AND count = 100").first()["buckets"] == _buckets(b1=90, b10=8, b500=1, more=1)


def test_what_waits_is_what_was_owed_and_has_not_ended(spark: SparkSession) -> None:
    at = [MINUTE, 2 * MINUTE, 3 * MINUTE]
    tables = silver(
        spark,
        fact_published=[{"ms": at[0], "log_id": 10, "channel": "/a"}, {"ms": at[1], "log_id": 20, "channel": "/a"}],
        # Two patterns of one session match: it is owed the message once.
        intervals=[
            {"session": "client/joe/1", "pattern": "/a", "from_id": 0},
            {"session": "client/joe/1", "pattern": "/*", "from_id": 0},
            {"session": "client/ann/1", "pattern": "/**", "from_id": 10},
        ],
        fact_addressed=[{"ms": at[0], "log_id": 11, "receiver": "client/joe", "is_queue": True}],
        fact_leased=[{"ms": at[1], "log_id": 11, "queue": "client/joe", "session": "client/joe/1"}],
        fact_ended=[
            {"ms": at[2], "log_id": 10, "receiver": "client/joe/1", "reason": "settled"},
            {"ms": at[2], "log_id": 11, "receiver": "client/joe/1", "reason": "settled"},
        ],
    )
    assert told(backlog(movements(tables)), "minute", "owed", "ended", "waiting") == [
        (_naive(at[0]), 2, 0, 2),
        (_naive(at[1]), 3, 1, 4),
        (_naive(at[2]), 0, 2, 2),
    ]


def test_subscriptions_that_begin_or_end_within_a_minute_hold_a_part_of_it(spark: SparkSession) -> None:
    ids = [10, 20, 30]
    minutes = [MINUTE, 2 * MINUTE]
    tables = silver(
        spark,
        fact_published=[
            {"ms": at, "seq": each, "log_id": at + each, "channel": "/a"} for at in minutes for each in ids
        ],
        intervals=[
            {"session": "joe", "pattern": "/a", "from_id": MINUTE + 10, "until_id": MINUTE + 20},
            {"session": "joe", "pattern": "/a", "from_id": MINUTE + 20},
            {"session": "joe", "pattern": "/*", "from_id": MINUTE + 25, "until_id": 2 * MINUTE + 5},
            {"session": "ann", "pattern": "/**", "from_id": 0, "until_id": 2 * MINUTE + 10},
            {"session": "eve", "pattern": "/a", "from_id": MINUTE + 30, "until_id": 2 * MINUTE + 9},
            {"session": "eve", "pattern": "/b", "from_id": 0},
        ],
    )
    assert told(backlog(movements(tables)), "minute", "owed") == [
        (_naive(minutes[0]), 2 + 3),
        (_naive(minutes[1]), 3 + 1),
    ]


def test_what_waits_is_right_again_after_ends_of_what_was_pending_before_the_first_fact(spark: SparkSession) -> None:
    """Five ends of earlier deliveries; then three become pending, of which one ends."""
    rows = [(time(MINUTE), 0, 5), (time(2 * MINUTE), 3, 0), (time(3 * MINUTE), 0, 1), (time(4 * MINUTE), 0, 3)]
    moved = of_rows(spark, rows, "minute TIMESTAMP, owed BIGINT, ended BIGINT")
    assert [row[1] for row in told(backlog(moved), "minute", "waiting")] == [0, 3, 2, 0]
