"""Failing receivers, from small frames."""

from datetime import datetime
from typing import Any

from pyspark.sql import Row, SparkSession

from crewel.pipeline.transformations.receivers import held_times, receivers
from tests.pipeline.frames import frame, silver, time, told

S = 1000
SINCE, UNTIL = time(100 * S), time(200 * S)


def _naive(ms: int) -> datetime:
    return time(ms).astimezone().replace(tzinfo=None)  # as Spark gives it


def _settled(session: str, number: int, at_s: int, lag_ms: int = 10) -> list[dict[str, Any]]:
    return [
        {
            "ms": at_s * S + i,
            "log_id": (at_s * S + i - lag_ms) * 1000,
            "receiver": session,
            "reason": "settled",
            "number": i,
        }
        for i in range(number)
    ]


def _failed(session: str, number: int, at_s: int) -> list[dict[str, Any]]:
    return [{"session": session, "happened": time(at_s * S + i), "index": i} for i in range(number)]


def _rows(spark: SparkSession, **tables: Any) -> dict[str, Row]:
    found = receivers(silver(spark, **tables), SINCE, UNTIL)
    return {row["session"]: row for row in found.collect()}


def test_receivers_are_compared_with_their_past_and_their_peers(spark: SparkSession) -> None:
    names = ("ann", "bob", "joe", "old", "slow")
    rows = _rows(
        spark,
        intervals=[{"session": name, "pattern": "/a"} for name in names],
        fact_ended=[
            *_settled("ann", 10, 150),
            *_settled("bob", 10, 150, 20),
            *_settled("joe", 8, 150),
            *_settled("old", 8, 150),
            *_settled("old", 8, 50),
            *_settled("slow", 4, 150, 5000),
            *_settled("slow", 4, 50),
        ],
        event_failed=[*_failed("joe", 4, 150), *_failed("old", 4, 150), *_failed("old", 4, 50)],
    )
    assert not rows["ann"]["is_sick"]
    assert not rows["bob"]["is_sick"]
    assert (rows["joe"]["settled"], rows["joe"]["failed"], round(rows["joe"]["failure_rate"], 2)) == (8, 4, 0.33)
    assert rows["joe"]["peers_failure_rate"] == 0.0
    assert rows["joe"]["why"] == ["fails 33 % of its messages"]
    assert not rows["old"]["is_sick"]  # it has always been so
    assert (rows["slow"]["lag_median_ms"], rows["slow"]["past_lag_median_ms"]) == (5000.0, 10.0)
    assert rows["slow"]["peers_lag_median_ms"] == 10.0
    assert rows["slow"]["why"] == ["takes 5000 ms, usually 10 ms"]


def test_receivers_on_hold_absent_or_with_redeliveries_are_failing(spark: SparkSession) -> None:
    rows = _rows(
        spark,
        fact_held=[
            {"ms": 150 * S, "session": "held", "who": "joe"},
            {"ms": 110 * S, "session": "was"},
            {"ms": 120 * S, "session": "short"},
        ],
        fact_released=[{"ms": 130 * S, "session": "was"}, {"ms": 121 * S, "session": "short"}],
        event_opened=[{"session": "away", "happened": time(90 * S)}],
        event_closed=[{"session": "away", "happened": time(160 * S), "reason": "expired"}],
        event_redelivered=[{"session": "again", "count": 6, "until": time(150 * S)}],
        fact_ended=_settled("again", 6, 150),
    )
    assert (rows["held"]["held_ms"], rows["held"]["why"]) == (50 * S, ["on hold for 50 % of the time, and still is"])
    assert not rows["short"]["is_sick"]
    assert rows["was"]["why"] == ["on hold for 20 % of the time"]
    assert (rows["away"]["polling_ms"], rows["away"]["why"]) == (60 * S, ["absent for 60 % of the time"])
    assert (rows["again"]["redelivery_rate"], rows["again"]["why"]) == (0.5, ["50 % of its messages are redelivered"])


def test_a_holdback_ends_with_its_release_or_its_session(spark: SparkSession) -> None:
    found = held_times(
        frame(
            spark,
            "fact_held",
            [{"ms": each, "session": name} for each, name in ((1, "a"), (2, "a"), (5, "a"), (3, "b"))],
        ),
        frame(spark, "fact_released", [{"ms": 4, "session": "a"}]),
        frame(
            spark,
            "fact_sessions",
            [{"ms": 9, "session": "b", "what": "closed"}, {"ms": 2, "session": "b", "what": "opened"}],
        ),
    )
    assert told(found, "session", "begin", "end") == [
        ("a", _naive(1), _naive(4)),
        ("a", _naive(5), None),
        ("b", _naive(3), _naive(9)),
    ]
