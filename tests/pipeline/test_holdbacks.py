"""The holdback watch: its state and timers by hand. `test_alerts.py` has it in a real stream, whose timers wake it."""

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import TwsTester

from crewel.pipeline.jobs import holdback_watch
from crewel.pipeline.jobs.batches import Written
from crewel.pipeline.transformations.holdbacks import Watch, steps
from tests.pipeline.conftest import Streams
from tests.pipeline.frames import frame, time, told

LIMIT_MS = 60_000
JOE = "client/joe/1"


@pytest.fixture
def tester() -> TwsTester:
    return TwsTester(Watch(LIMIT_MS), timeMode="ProcessingTime")


def _held(ms: int, since_ms: int, code: str = "user.update.holdback") -> Row:
    return Row(session=JOE, ms=ms, seq=0, since_ms=since_ms, code=code, who=JOE, reason="full")


def _over(ms: int) -> Row:
    return Row(session=JOE, ms=ms, seq=0, since_ms=None, code=None, who=None, reason=None)


def test_who_is_held_for_longer_than_the_limit_is_told_once(tester: TwsTester) -> None:
    tester.setProcessingTime(10_000)
    assert tester.test(JOE, [_held(9_000, 9_000)]) == []
    assert tester.setProcessingTime(68_999) == []
    (alert,) = tester.setProcessingTime(69_000)
    assert alert.asDict() == {
        "session": JOE,
        "since": time(9_000),
        "raised": time(69_000),
        "held_ms": LIMIT_MS,
        "code": "user.update.holdback",
        "who": JOE,
        "reason": "full",
    }
    assert tester.setProcessingTime(500_000) == []


def test_who_is_released_in_time_is_not_told(tester: TwsTester) -> None:
    tester.setProcessingTime(10_000)
    tester.test(JOE, [_held(9_000, 9_000)])
    tester.test(JOE, [_over(9_500)])
    assert tester.setProcessingTime(500_000) == []


def test_rows_of_one_batch_count_in_the_order_of_their_places(tester: TwsTester) -> None:
    tester.setProcessingTime(10_000)
    tester.test(JOE, [_held(9_800, 9_800), _over(9_500), _held(9_000, 9_000)])
    assert tester.setProcessingTime(69_799) == []
    assert [row["since"] for row in tester.setProcessingTime(69_800)] == [time(9_800)]


def test_another_hold_of_a_held_session_begins_nothing_anew(tester: TwsTester) -> None:
    tester.setProcessingTime(10_000)
    tester.test(JOE, [_held(9_000, 9_000, "user.a"), _held(9_900, 9_900, "user.b")])
    assert [row["code"] for row in tester.setProcessingTime(69_000)] == ["user.a"]


def test_what_was_read_late_is_told_at_once(tester: TwsTester) -> None:
    tester.setProcessingTime(500_000)
    tester.test(JOE, [_held(9_000, 9_000)])
    assert [row["held_ms"] for row in tester.setProcessingTime(500_001)] == [491_001]


def test_the_last_release_or_end_of_a_session_counts() -> None:
    rows = {
        "fact_released": pa.table({"session": ["a", "a", "b"], "ms": [5, 9, 7]}),
        "fact_sessions": pa.table({"session": ["b", "a"], "ms": [8, 20], "what": ["closed", "opened"]}),
    }
    assert Written({**rows}).released() == {"a": 9, "b": 8}


def test_a_release_takes_away_the_alert_of_its_holdback_and_not_of_a_later_one(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts = {"earlier": {"since": 99}, "same": {"since": 100}, "later": {"since": 101}, "held": {"since": 1}}
    for session, alert in alerts.items():
        streams.client.hset(streams.keys.alerts, session, orjson.dumps(alert))
    streams.client.hset(streams.keys.alerts, "broken", "{")
    monkeypatch.setattr(holdback_watch, "_PORTION", 4)
    released = dict.fromkeys(("earlier", "later", "broken", "never held", "same"), 100)
    for _ in range(2):  # as after a crash
        holdback_watch.end(streams.address, released)
        assert {*streams.client.hkeys(streams.keys.alerts)} == {b"later", b"held"}


def test_releases_and_ends_of_sessions_end_holdbacks(spark: SparkSession) -> None:
    found = steps(
        frame(spark, "fact_held", [{"ms": 1, "session": "a", "since": time(1)}]),
        frame(spark, "fact_released", [{"ms": 2, "session": "a"}]),
        frame(
            spark,
            "fact_sessions",
            [{"ms": 3, "session": "b", "what": "closed"}, {"ms": 4, "session": "b", "what": "opened"}],
        ),
    )
    assert told(found, "session", "ms", "since_ms") == [("a", 1, 1), ("a", 2, None), ("b", 3, None)]
