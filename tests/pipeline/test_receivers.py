"""Failing receivers, from small frames."""

from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from crewel.pipeline.few_rows import keep
from crewel.pipeline.transformations.receivers import held_times, receiver_times, receivers
from tests.pipeline.frames import frame, of_rows, silver, time, told

S = 1000
SINCE, UNTIL = time(100 * S), time(200 * S)


def _naive(ms: int) -> datetime:
    return time(ms).astimezone().replace(tzinfo=None)  # as Spark gives it


def _settled(session: str, number: int, at_s: int, lag_ms: int = 10) -> list[dict[str, Any]]:
    ids = _ids(number, at_s, -lag_ms)
    return [
        {"ms": at_s * S + i, "log_id": log_id, "receiver": session, "reason": "settled", "number": i}
        for i, log_id in enumerate(ids)
    ]


def _ids(number: int, at_s: int, late_ms: float) -> list[int]:
    """So many messages, one each millisecond."""
    return [round((at_s * S + i + late_ms) * 1000) for i in range(number)]


def _shapes(number: int, at_s: int, sender: str) -> list[dict[str, Any]]:
    """Samples of what was settled."""
    return [
        {"log_id": log_id, "index": at, "channel": "/a", "shape": "{n: number}", "sender": sender}
        for at, log_id in enumerate(_ids(number, at_s, -10))
    ]


def _failed(session: str, number: int, at_s: int) -> list[dict[str, Any]]:
    return [{"session": session, "happened": time(at_s * S + i), "index": i} for i in range(number)]


CAUSED = (
    "ids ARRAY<STRING>, receiver STRING, cause STRING, last_at TIMESTAMP, takers BIGINT, rejecters BIGINT,"
    " log_id BIGINT, either STRING, codes ARRAY<STRING>, channel STRING, sender STRING, shape STRING, body STRING"
)


def _caused(spark: SparkSession) -> DataFrame:
    found = [
        (["7"], "excused", "message", time(150 * S), 0, 2, 7, None),
        (["8"], "excused", "channel", time(150 * S), 0, 2, 8, None),
        *(([str(each)], "alone", "receiver", time(150 * S), each % 2, 1, each, None) for each in range(4)),
        (["9"], "alone", "receiver", time(50 * S), 0, 1, 9, None),
        *(([str(each)], "lone", "receiver", time(each * S), 0, 1, each, "client/shop/1") for each in (150, 151, 152)),
        *(([str(each)], "daily", "receiver", time(150 * S), 0, 1, each, None) for each in _ids(6, 150, -9.5)),
    ]
    rest = (["user.x"], "/a", "client/shop/1", "{n: number}")
    return of_rows(spark, [(*row, *rest, f'{{"data":{{"n":{row[0][0]},"country":"CH"}}}}') for row in found], CAUSED)


def _queued(queue: str, *at_s: int) -> list[dict[str, Any]]:
    """Messages that came to the queue of a group, one each time."""
    return [{"ms": at * S, "log_id": at, "receiver": queue, "is_queue": True} for at in at_s]


NAMES = ("ann", "bob", "joe", "old", "slow")
TABLES: dict[str, list[dict[str, Any]]] = {
    "intervals": [
        *({"session": name, "pattern": "/a"} for name in NAMES),
        *({"session": name, "pattern": "/b"} for name in ("back", "carl", "dora")),
        *({"session": name, "pattern": "/c"} for name in ("one", "two")),
        *({"session": "mostly", "pattern": each} for each in ("/ticks/*", "/ticks/0")),
    ],
    "fact_addressed": [
        *_queued("group:/jobs/* idle", 104, 110, 120),
        *_queued("group:/jobs/* left", 104),
        *_queued("group:/jobs/* busy", 104, 110, 120),
        *_queued("group:/jobs/* long", 104, 110, 120),
        *_queued("group:/jobs/* new", 190),
    ],
    "fact_leased": [
        *(
            {"ms": 189 * S, "log_id": each, "queue": "client/fresh", "session": "fresh"}
            for each in _ids(4, 190, -70 * S)
        ),
        *(
            {"ms": ms, "log_id": 104, "queue": f"group:/jobs/* {name}", "session": f"worker/{name}"}
            for name, ms in (("idle", 105 * S), ("left", 105 * S), ("long", 105 * S), ("busy", 130 * S))
        ),
    ],
    "fact_returned": [{"ms": 115 * S, "log_id": 104, "queue": "group:/jobs/* left"}],
    "fact_ended": [
        *(row for at_s in (50, 150) for row in _settled("gap", 30, at_s)),
        *_settled("gap", 4, 190, 70 * S),
        {"ms": 106 * S, "log_id": 104, "receiver": "worker/idle", "reason": "settled"},
        {"ms": 115 * S, "log_id": 104, "receiver": "worker/left", "reason": "returned"},
        *_settled("first", 3, 190, 70 * S),
        *_settled("fresh", 4, 190, 70 * S),
        *(row for name in ("phone", "tablet") for row in (*_settled(name, 30, 50), *_settled(name, 4, 50, 70 * S))),
        *(row for name in ("phone", "tablet") for row in (*_settled(name, 30, 150), *_settled(name, 4, 190, 70 * S))),
        *(row for name in ("one", "two") for row in (*_settled(name, 30, 150), *_settled(name, 4, 190, 70 * S))),
        *_settled("ann", 10, 150),
        *_settled("bob", 10, 150, 20),
        *_settled("joe", 8, 150),
        *_settled("old", 8, 150),
        *_settled("old", 8, 50),
        *_settled("slow", 4, 150, 5000),
        *_settled("slow", 4, 50),
        *_settled("excused", 1, 150),
        *_settled("daily", 40, 50),
        *_settled("daily", 6, 150),
        *_settled("again", 6, 150),
        *_settled("back", 9, 50),
        *_settled("back", 9, 190, 80 * S),
        *(row for name in ("carl", "dora") for row in _settled(name, 9, 150)),
        *(row for name in ("kept", "brief") for row in (*_settled(name, 9, 50), *_settled(name, 9, 150, 20 * S))),
    ],
    "event_shape": [*_shapes(40, 50, "client/shop/0"), *_shapes(6, 150, "client/shop/1")],
    "event_failed": [
        *({**each, "message_id": str(7 + at % 2)} for at, each in enumerate(_failed("excused", 4, 150))),
        *_failed("joe", 4, 150),
        *_failed("old", 4, 150),
        *_failed("old", 4, 50),
        *_failed("mostly", 8, 150),
    ],
    "fact_held": [
        {"ms": 150 * S, "session": "held", "who": "joe"},
        {"ms": 110 * S, "session": "was"},
        {"ms": 120 * S, "session": "short"},
        *({"ms": 110 * S, "session": each} for each in ("kept", "brief")),
    ],
    "fact_released": [
        {"ms": 130 * S, "session": "was"},
        {"ms": 121 * S, "session": "short"},
        {"ms": 140 * S, "session": "kept"},
        {"ms": 111 * S, "session": "brief"},
    ],
    "event_opened": [
        *({"session": each, "happened": time(90 * S)} for each in ("away", "there")),
        {"session": "back", "happened": time(10 * S)},
    ],
    "event_closed": [
        {"session": "away", "happened": time(160 * S), "reason": "expired", "silent_ms": 70 * S},
        # It got transient messages only, and no fact tells of them: its last request was just before.
        {"session": "there", "happened": time(160 * S), "reason": "expired", "silent_ms": 1 * S},
        {"session": "unknown", "happened": time(160 * S), "reason": "expired"},
    ],
    "event_redelivered": [{"session": "again", "count": 6, "until": time(150 * S)}],
    "event_traffic": [
        {"channel": f"/ticks/{each}", "published": 396, "until": time(150 * S), "index": each} for each in (0, 1)
    ],
}
"""Of all receivers, which have a pattern in common only within one test."""


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Row]:
    """What is found of each receiver, of all at once."""
    found = receivers(silver(spark, **TABLES), _caused(spark), SINCE, UNTIL, keep)
    return {row["session"]: row for row in found.collect()}


def test_receivers_are_compared_with_their_past_and_their_peers(rows: dict[str, Row]) -> None:
    assert not rows["ann"]["is_sick"]
    assert not rows["bob"]["is_sick"]
    assert (rows["joe"]["settled"], rows["joe"]["failed"], round(rows["joe"]["failure_rate"], 2)) == (8, 4, 0.33)
    assert rows["joe"]["peers_failure_rate"] == 0.0
    assert rows["joe"]["why"] == ["fails 33 % of its messages"]
    assert not rows["old"]["is_sick"]  # it has always been so
    assert (rows["slow"]["lag_median_ms"], rows["slow"]["past_lag_median_ms"]) == (5000.0, 10.0)
    assert rows["slow"]["peers_lag_median_ms"] == 10.0
    assert rows["slow"]["why"] == ["takes 5 s, usually 10 ms: slow or away"]
    assert (rows["excused"]["failed"], rows["excused"]["excused"], rows["excused"]["why"]) == (4, 4, [])
    assert (rows["alone"]["rejected"], rows["alone"]["others_took"]) == (4, 2)
    assert rows["alone"]["why"] == ["rejected 4 messages, 2 of them taken by others"]
    # Until yesterday the publisher had another name: that tells what it rejects from what it took then, and says nothing.
    assert rows["daily"]["why"] == ["rejected 6 messages"]
    either = "it took /a until 1970-01-01 00:02:30; either it changed then, or client/shop/1"
    assert rows["lone"]["why"] == [f"rejected 3 messages: {either}"]


def test_receivers_on_hold_absent_or_with_redeliveries_are_failing(rows: dict[str, Row]) -> None:
    assert (rows["held"]["held_ms"], rows["held"]["why"]) == (50 * S, ["on hold for 50 % of the time, and still is"])
    assert not rows["short"]["is_sick"]
    assert rows["was"]["why"] == ["on hold for 20 % of the time"]
    assert (rows["away"]["polling_ms"], rows["away"]["why"]) == (60 * S, ["absent for 60 % of the time"])
    assert (rows["there"]["polling_ms"], rows["there"]["is_sick"]) == (S, False)
    assert "unknown" not in rows
    assert (rows["again"]["redelivery_rate"], rows["again"]["why"]) == (0.5, ["50 % of its messages are redelivered"])


def test_a_receiver_that_was_away_and_is_back_is_not_said_to_be_slow_only(rows: dict[str, Row]) -> None:
    """Nothing is written when a client is lost or back: what waited meanwhile is acknowledged late, as by a slow one."""
    assert (rows["back"]["polling_ms"], rows["back"]["why"]) == (0, ["takes 1.3 min, usually 10 ms: slow or away"])
    assert not rows["carl"]["is_sick"]


def test_a_receiver_that_was_on_hold_for_as_long_need_not_be_slow_or_away(rows: dict[str, Row]) -> None:
    assert rows["kept"]["why"] == ["on hold for 30 % of the time", "takes 20 s, usually 10 ms"]
    assert rows["brief"]["why"] == ["takes 20 s, usually 10 ms: slow or away"]


def test_a_receiver_is_named_for_some_messages_that_waited_although_most_did_not(rows: dict[str, Row]) -> None:
    """One that was away for a while: what waited was late, and the median is as usual. For phones this is usual."""
    assert rows["gap"]["why"] == ["takes up to 1.2 min for 4 of its messages: slow or away"]
    assert rows["gap"]["lag_median_ms"] == 10.0
    assert rows["first"]["why"] == ["takes up to 1.2 min for 3 of its messages: slow or away"], (
        "nothing to compare with"
    )
    for name in ("phone", "tablet", "one", "two"):
        assert rows[name]["why"] == [], "as before, or as its peers"
    assert rows["fresh"]["why"] == [], "its messages waited in a queue until it came"


def test_a_group_whose_messages_no_member_takes_is_failing(rows: dict[str, Row]) -> None:
    idle, left = rows["group:/jobs/* idle"], rows["group:/jobs/* left"]
    assert idle["why"] == ["has no member that takes messages; 2 queued since 1970-01-01 00:01:50"]
    assert left["why"] == ["has no member that takes messages; 1 queued since 1970-01-01 00:01:55"]
    # One got a message since, one works on a message for a long time, and of one the message is new.
    assert not {f"group:/jobs/* {name}" for name in ("busy", "long", "new")} & rows.keys()


def test_a_rate_counts_the_transient_messages_that_a_receiver_got(rows: dict[str, Row]) -> None:
    row = rows["mostly"]
    assert (row["transient"], row["failed"], row["failure_rate"], row["why"]) == (792, 8, 0.01, [])


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


def test_the_times_of_receivers_are_those_on_hold_absent_and_failing_by_their_own_fault(spark: SparkSession) -> None:
    made = silver(
        spark,
        fact_held=[{"ms": 10 * S, "session": "held"}],
        event_closed=[{"session": "away", "happened": time(60 * S), "reason": "expired", "silent_ms": 60 * S}],
        event_failed=[
            *_failed("joe", 2, 61),
            *_failed("joe", 1, 125),
            *({**each, "message_id": "7"} for each in _failed("excused", 1, 61)),
        ],
    )
    found = receiver_times(made, _caused(spark))
    assert told(found, "session", "what", "begin", "end", "failed") == [
        ("away", "absent", _naive(0), _naive(60 * S), 0),
        ("held", "on hold", _naive(10 * S), None, 0),
        ("joe", "fails", _naive(60 * S), _naive(120 * S), 2),
        ("joe", "fails", _naive(120 * S), _naive(180 * S), 1),
    ]
