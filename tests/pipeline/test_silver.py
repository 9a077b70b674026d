"""Facts and events are typed; what cannot be understood is kept apart, and stops nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from pyspark.sql import functions as f

from crewel.pipeline.delta import Batch, DeltaLog
from crewel.pipeline.schemas import EVENTS as EVENT_TABLES
from crewel.pipeline.schemas import FACTS as FACT_TABLES
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.schemas.table import BATCH
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import dead_letters, intervals, minutes, silver, split, wide
from crewel.pipeline.transformations.shapes import EVENTS, FACT_TYPES, FACTS
from crewel.storage import facts as stored_facts
from crewel.storage import streams
from tests.pipeline.frames import frame, time, told, with_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOE = "client/joe/1"
RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(autouse=True, scope="module")
def both_ways(spark: SparkSession) -> Iterator[None]:
    """What these tests hold of silver, a pass over the entries makes too: all tables, row by row.

    Each entry makes its own rows, so one comparison does for those of all tests. Without entries it makes none.
    """
    ENTRIES.clear()
    yield
    entries = frame(spark, "raw", ENTRIES)
    tables = silver.tables(entries)
    made = split.split(wide.wide(entries, {*tables}).toArrow())
    for name, rows in tables.items():
        known = sorted(map(repr, rows.select(*TABLES[name].names).toArrow().to_pylist()))
        assert sorted(map(repr, made[name].to_pylist() if name in made else [])) == known, name
    counted, once = minutes.minutes(tables), split.minutes(made)
    assert counted is not None
    assert once is not None
    assert sorted(map(repr, once.to_pylist())) == sorted(map(repr, counted.toArrow().to_pylist()))
    made = split.split(wide.wide(frame(spark, "raw"), {*tables}).toArrow())
    assert [name for name, rows in made.items() if len(rows)] == []
    assert not split.minutes(made)


ENTRIES: list[dict[str, Any]] = []
"""What the tests have made of bronze."""


def raw(spark: SparkSession, *entries: tuple[str, str | None, Any], **more: Any) -> DataFrame:
    """Entries of bronze, (stream, type, JSON or text), at 1-0, 2-0 and so on."""
    usual = {"is_text": True, "is_whole": True}
    rows = [
        {
            **usual,
            **more,
            "id": f"{at}-0",
            "key": key,
            "t": t,
            "payload": said if said is None or isinstance(said, str) else orjson.dumps(said).decode(),
        }
        for at, (key, t, said) in enumerate(entries, 1)
    ]
    ENTRIES.extend(rows)
    return frame(spark, "raw", rows)


def test_a_fact_of_nothing_makes_no_row_and_stops_nothing(spark: SparkSession) -> None:
    """Its bytes have no rows to be shared by."""
    nothing = (
        ("facts", "ended", {"ended": []}),
        ("facts", "ended", {"ended": [{"session": JOE, "reason": "settled", "ids": []}]}),
        ("facts", "published", {"first": 1, "channels": []}),
        ("facts", "addressed", {"id": 1, "channel": "/a"}),
        ("facts", "unsubscribed", {"session": JOE, "patterns": [], "from": [], "until": 1}),
        ("events", None, {"v": 1, "node": "n", "token": "t", "n": 1, "from": 1, "until": 2, "lost": 0, "events": []}),
    )
    made = silver.tables(raw(spark, *nothing, ("facts", "published", {"first": 7, "channels": ["/a"]})))
    assert of(made["fact_published"]) == [(7, "/a", None)]
    names = ("fact_ended", "fact_addressed", "fact_unsubscribed", "event_failed", "corrupt")
    assert with_rows({name: made[name] for name in names}) == set()


def of(rows: DataFrame) -> list[tuple[Any, ...]]:
    """What the rows say besides their place and its bytes."""
    return [tuple(row)[6:] for row in rows.orderBy("ms").collect()]


def test_every_type_that_the_server_writes_is_typed() -> None:
    assert {fact.name for fact in stored_facts.FACTS} == FACT_TYPES
    assert [event.name for event in streams.EVENTS] == [event.type for event in EVENTS]
    derived = {"intervals", "letters", "corrupt", "gaps"}
    assert {each.table.name for each in FACTS} == {table.name for table in FACT_TABLES} - derived
    assert {each.table.name for each in EVENTS} == {table.name for table in EVENT_TABLES} - {"event_groups"}


def test_all_tables_have_the_columns_of_their_schemas(spark: SparkSession) -> None:
    nothing = raw(spark)
    for name, rows in {**silver.facts(nothing), **silver.events(nothing), "corrupt": silver.corrupt(nothing)}.items():
        assert [(each.name, each.dataType) for each in rows.schema] == [
            (each.name, each.dataType) for each in TABLES[name].struct()
        ]


FACTS_AND_ROWS = [
    ("published", {"first": 5, "channels": ["/a", ""]}, "fact_published", [(5, "/a", None), (6, "", None)]),
    (
        "published",
        {"first": 5, "channels": ["/a", "/b"], "scheduled": {"6": 2}},
        "fact_published",
        [(5, "/a", None), (6, "/b", 2)],
    ),
    (
        "scheduled",
        {"id": 5, "channel": "/a", "at": 1500, "key": "k"},
        "fact_scheduled",
        [(5, "/a", datetime(1970, 1, 1, 0, 0, 1, 500_000))],  # noqa: DTZ001 - Spark gives it so
    ),
    (
        "cancelled",
        {"ids": [5, 6], "channels": ["/a", "/b"], "who": "ann"},
        "fact_cancelled",
        [(5, "/a", "ann"), (6, "/b", "ann")],
    ),
    (
        "addressed",
        {"id": 7, "channel": "/x", "sessions": [JOE], "queues": ["client/a"]},
        "fact_addressed",
        [(7, "/x", JOE, False), (7, "/x", "client/a", True)],
    ),
    (
        "leased",
        {"queue": "client/a", "leases": [{"session": JOE, "ids": [7, 8]}]},
        "fact_leased",
        [(7, "client/a", JOE), (8, "client/a", JOE)],
    ),
    ("returned", {"queue": "client/a", "ids": [7]}, "fact_returned", [(7, "client/a")]),
    ("erased", {"channel": "/a", "messages": 3}, "fact_erased", [("/a", 3)]),
    ("opened-session", {"session": JOE}, "fact_sessions", [(JOE, "opened")]),
    ("closed-session", {"session": JOE}, "fact_sessions", [(JOE, "closed")]),
    (
        "subscribed",
        {
            "session": JOE,
            "patterns": ["/a/*"],
            "from": 5,
            "groups": ["group:/b w"],
            "options": {"/b": [{"group": "w"}]},
        },
        "fact_subscribed",
        [
            (JOE, "/a/*", True, 5, None, ["group:/b w"]),
            (JOE, "/b", False, 5, '[{"group":"w"}]', ["group:/b w"]),
        ],
    ),
    (
        "unsubscribed",
        {"session": JOE, "patterns": ["/a/*", "/b"], "from": [5, 6], "until": 9},
        "fact_unsubscribed",
        [(JOE, "/a/*", 5, 9, []), (JOE, "/b", 6, 9, [])],
    ),
    (
        "ended",
        {
            "ended": [
                {"session": JOE, "reason": "settled", "ids": [1, 2]},
                {"session": JOE, "reason": "dead", "code": "user.update.error", "ids": [3]},
                {"session": JOE, "reason": "dead", "code": "user.x", "given": "resource.exhausted", "ids": [4]},
            ]
        },
        "fact_ended",
        [
            (1, JOE, "settled", None, 0, None),
            (2, JOE, "settled", None, 1, None),
            (3, JOE, "dead", "user.update.error", 2, None),
            (4, JOE, "dead", "user.x", 3, "resource.exhausted"),
        ],
    ),
    (
        "redriven",
        {"letter": "1-0", "message": "4", "id": 9, "session": JOE, "code": "user.update.error", "returns": 2},
        "fact_redriven",
        [("1-0", "4", 9, JOE, None, "user.update.error", 2, None)],
    ),
    ("discarded", {"letters": ["1-0", "2-0"]}, "fact_discarded", [("1-0", None, None), ("2-0", None, None)]),
    (
        "discarded",
        {"letters": ["3-0"], "who": "ann", "firsts": ["1-0"]},
        "fact_discarded",
        [("3-0", "ann", "1-0")],
    ),
    (
        "restored",
        {"letters": ["1-0"], "as": ["3-0"], "firsts": ["1-0"], "who": "ann"},
        "fact_restored",
        [("1-0", "3-0", "ann", "1-0")],
    ),
    ("released", {"session": JOE}, "fact_released", [(JOE,)]),
    (
        "lost",
        {
            "node": "heron",
            "from": 5,
            "until": 9,
            "messages": 3,
            "fact": "7-0",
            "met": 8,
            "first": [6, 9],
            "last": [7, 9],
        },
        "fact_lost",
        [("heron", 5, 9, 3, "7-0", 8, [6, 9], [7, 9])],
    ),
]


def test_each_fact_makes_its_rows(spark: SparkSession) -> None:
    made = silver.facts(raw(spark, *(("facts", t, fields) for t, fields, _, _ in FACTS_AND_ROWS)))
    for name in {name for _, _, name, _ in FACTS_AND_ROWS}:
        assert of(made[name]) == [row for _, _, each, rows in FACTS_AND_ROWS if each == name for row in rows]


def test_the_rows_of_an_entry_share_its_bytes(spark: SparkSession) -> None:
    group = {"v": 1, "node": "heron", "token": "t", "n": 17, "from": 0, "until": 1000}
    settled = {"type": "settled", "count": 2, "sum": 5, "buckets": [1, 1]}
    entries = raw(
        spark,
        ("facts", "published", {"first": 1, "channels": ["/a", "/b"]}),
        ("events", None, {**group, "events": [{**settled, "channel": each} for each in ("/a", "/b", "/c", "/d")]}),
        bytes=60,
    )
    assert told(silver.facts(entries)["fact_published"], "channel", "bytes") == [("/a", 30.0), ("/b", 30.0)]
    assert told(silver.events(entries)["event_settled"], "bytes") == [(15.0,)] * 4


def test_each_event_makes_a_row(spark: SparkSession) -> None:
    group = {"v": 1, "node": "heron", "token": "t", "n": 17, "from": 0, "until": 1000, "lost": 2}
    events = [
        {
            "type": "failed",
            "at": 5,
            "session": JOE,
            "channel": "/a",
            "id": "1",
            "code": "c",
            "outcome": "letter",
            "given": "resource.x",
        },
        {"type": "settled", "channel": "/a", "count": 2, "sum": 5, "buckets": [1, 1]},
        {"type": "visitors", "opened": 1, "closed": 2},
        {"type": "released", "at": 6, "session": JOE},
        {"type": "shape", "at": 7, "channel": "/a", "shape": "{n: number}", "id": "17", "sender": "", "count": 2},
    ]
    made = silver.events(raw(spark, ("events", None, {**group, "events": events})))
    assert told(made["event_groups"], "n", "lost", "events") == [(17, 2, 5)]
    failed = told(made["event_failed"], "index", "session", "message_id", "outcome", "code_given")
    assert failed == [(0, JOE, "1", "letter", "resource.x")]
    assert told(made["event_settled"], "index", "channel", "count", "sum_ms", "buckets") == [(1, "/a", 2, 5, [1, 1])]
    assert told(made["event_visitors"], "opened", "closed") == [(1, 2)]
    assert told(made["event_released"], "index", "session") == [(3, JOE)]
    assert told(made["event_shape"], "channel", "shape", "log_id", "count") == [("/a", "{n: number}", 17, 2)]


ODD: list[tuple[str, str | None, Any, str]] = [
    ("facts", "ended", None, "no payload"),
    ("facts", "ended", '{"ended":', "not JSON"),
    ("facts", "ended", "", "not JSON"),
    ("facts", "ended", ["x"], "not JSON"),
    ("facts", "ended", "[" * 5000, "not JSON"),
    ("facts", "ended", {"ended": "x"}, "wrong fields"),
    ("facts", "ended", {"ended": [{"session": JOE, "reason": "settled"}]}, "wrong fields"),
    ("facts", "published", {"first": "5", "channels": ["/a"]}, "wrong fields"),
    ("facts", "published", {"v": 2, "first": 5, "channels": ["/a"]}, "unknown version"),
    ("facts", "unheard-of", {}, "unknown type"),
    ("facts", None, {}, "unknown type"),
    ("events", None, {"v": 2, "events": []}, "unknown version"),
    ("events", None, {"v": 1, "events": []}, "wrong fields"),
    ("events", None, "x", "not JSON"),
]


def test_what_cannot_be_understood_is_kept_with_the_reason(spark: SparkSession) -> None:
    entries = raw(spark, *(odd[:3] for odd in ODD))
    found = silver.corrupt(entries).orderBy("ms").collect()
    assert [(row["place"], row["why"]) for row in found] == [(f"{at}-0", odd[3]) for at, odd in enumerate(ODD, 1)]
    assert with_rows({**silver.facts(entries), **silver.events(entries)}) == set()


@pytest.mark.parametrize(("flag", "why"), [("is_text", "not text"), ("is_whole", "too long")])
def test_what_was_damaged_on_its_way_makes_no_rows(spark: SparkSession, flag: str, why: str) -> None:
    entries = raw(spark, ("facts", "published", {"first": 5, "channels": ["/a"]}), **{flag: False})
    assert silver.facts(entries)["fact_published"].isEmpty()
    assert told(silver.corrupt(entries), "why") == [(why,)]


def test_the_other_events_of_a_group_are_taken(spark: SparkSession) -> None:
    group = {"v": 1, "node": "heron", "token": "t", "n": 17, "from": 0, "until": 1000}
    events = [{"type": "unheard-of"}, {"type": "failed"}, {"type": "visitors", "opened": 1, "closed": 2}]
    entries = raw(spark, ("events", None, {**group, "events": events}))
    made = silver.events(entries)
    assert told(made["event_visitors"], "index", "opened") == [(2, 1)]
    assert made["event_failed"].isEmpty()
    assert told(silver.corrupt(entries), "why") == [("unknown type",)]


def test_subscriptions_are_intervals(spark: SparkSession) -> None:
    def fact(t: str, **fields: Any) -> tuple[str, str, dict[str, Any]]:
        return ("facts", t, {"session": JOE, **fields})

    made = silver.facts(
        raw(
            spark,
            fact("subscribed", patterns=["/a", "/b", "/c"], **{"from": 5}),
            fact("subscribed", patterns=[], options={"/a": {"filter": "x"}}, **{"from": 7}),
            fact("unsubscribed", patterns=["/a", "/c"], until=9, **{"from": [5, 5]}),
            fact("unsubscribed", patterns=["/old"], until=9, **{"from": [2]}),
            fact("subscribed", patterns=["/c"], **{"from": 5}),  # nothing had been published since
        )
    )
    found = intervals.intervals(made["fact_subscribed"], made["fact_unsubscribed"])
    assert told(found, "pattern", "from_id", "until_id", "options", "subscribed", "unsubscribed") == [
        ("/a", 5, 9, '{"filter":"x"}', "1-0", "3-0"),
        ("/b", 5, None, None, "1-0", None),
        ("/c", 5, None, None, "5-0", None),
        ("/old", 2, 9, None, None, "4-0"),
    ]


def test_gaps_are_told(spark: SparkSession) -> None:
    entries = raw(
        spark, ("facts.gap", None, {"before": "9-0", "lost": 7}), ("events.gap", None, {"before": None, "lost": None})
    )
    assert told(silver.gaps(entries), "key", "place", "before", "before_ms", "lost") == [
        ("events", "2-0", None, None, None),
        ("facts", "1-0", "9-0", 9, 7),
    ]
    assert silver.corrupt(entries).isEmpty()


def test_letters_are_typed(spark: SparkSession) -> None:
    letter = {
        "id": "7", "received": "1790000000000000000", "receiver": JOE, "code": "user.update.error", "reason": "no",
        "attempts": "3", "channel": "/a", "body": "{}", "sender": "", "qos": "", "p": "1", "g": "resource.x",
    }  # fmt: skip
    made = dead_letters.letters(
        raw(spark, ("dead", None, letter), ("dead", None, {"attempts": "many", "u": "1-7"}), ("facts", "x", {}))
    )
    assert told(made, "message_id", "received_ns", "attempts", "is_persistent", "returns", "code_given") == [
        ("", 0, 0, False, 0, None),
        ("7", 1790000000000000000, 3, True, 0, "resource.x"),
    ]
    at = made.where("message_id = '7'").select("at").collect()[0][0]
    assert {row["message_id"]: row["died"] for row in made.collect()} == {
        "7": at,
        "": time(1).astimezone().replace(tzinfo=None),
    }, "a restored one has died when it did so first"


def test_minutes_count_messages(spark: SparkSession) -> None:
    made = silver.facts(raw(spark, *(("facts", t, fields) for t, fields, _, _ in FACTS_AND_ROWS)))
    found = minutes.minutes({name: made[name] for name in ("fact_published", "fact_ended", "fact_subscribed")})
    assert found is not None
    assert told(found, "what", "count") == [
        ("ended:dead", 2),
        ("ended:settled", 2),
        ("published", 4),
        ("subscribed", 1),
    ]
    assert told(minutes.united(found.unionByName(found)), "what", "count")[2] == ("published", 8)
    assert minutes.minutes({}) is None


def test_what_a_server_wrote_before_there_were_groups_stays_readable(spark: SparkSession) -> None:
    lines = [orjson.loads(line) for line in (RECORDED / "before-groups.jsonl").read_text().splitlines()]
    rows = [
        {
            "key": line["stream"],
            "id": line["id"],
            "t": line["fields"].get("t"),
            "payload": orjson.dumps(line["fields"]).decode() if line["stream"] == "dead" else line["fields"]["d"],
            "is_text": True,
            "is_whole": True,
        }
        for line in lines
    ]
    entries = frame(spark, "raw", rows)
    assert silver.corrupt(entries).isEmpty()
    facts, events = silver.facts(entries), silver.events(entries)
    assert facts["fact_published"].count() == 4
    assert told(facts["fact_ended"].groupBy("reason").count(), "reason", "count") == [("dead", 2), ("settled", 5)]
    found = intervals.intervals(facts["fact_subscribed"], facts["fact_unsubscribed"])
    assert told(found, "session", "pattern", "groups", "options") == [
        ("client/ann/1", "/orders/new", [], None),
        ("client/bob/1", "/orders/*", [], None),
        (JOE, "/orders/**", [], None),
    ]
    assert told(events["event_groups"], "n") == [(n,) for n in range(1, 7)]
    assert (
        told(events["event_failed"], "session", "code", "outcome")
        == [("client/ann/1", "user.update.error", "letter")] * 2
    )
    assert told(dead_letters.letters(entries), "receiver", "reason") == [("client/ann/1", "no such article 4711")] * 2


def test_files_of_before_a_column_was_added_stay_readable(spark: SparkSession, tmp_path: Path) -> None:
    table = TABLES["fact_subscribed"]
    known = tuple(each for each in table.columns if each.name not in ("options", "groups", "begins"))
    log = DeltaLog(replace(table, columns=known), str(tmp_path / table.path))
    row = {"place": "1-0", "session": JOE, "pattern": "/a", "from_id": 5}
    older = frame(spark, table.name, [row]).select(*(each.name for each in known), f.lit("fill.1").alias(BATCH))
    older.write.partitionBy("date").parquet(f"{log.path}/a")
    log.add("a", Batch("fill", 1))
    tables = Tables(spark, tmp_path)
    for _ in range(2):
        assert told(tables.read(table), "session", "from_id", "options") == [(JOE, 5, None)]
        tables.create()
