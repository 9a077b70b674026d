"""Entries as batches of Arrow: whatever an entry holds becomes a row."""

import datetime as dt
from typing import Any

import orjson
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from crewel.pipeline.schemas import LONGEST_PAYLOAD, RAW
from crewel.pipeline.source.arrow import SCHEMA, batch_of, gap_row, shared_texts, with_texts
from crewel.pipeline.source.losses import Gap
from crewel.pipeline.source.positions import EntryId


def rows(stream: str, *entries: tuple[bytes, list[bytes]]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = batch_of(stream, entries).to_pylist()
    return told


def test_the_columns_are_those_of_the_table() -> None:
    assert SCHEMA.names == RAW.names
    assert to_arrow_schema(RAW.struct(), timezone="UTC") == SCHEMA


def test_a_fact_becomes_a_row() -> None:
    assert rows("facts", (b"1790000000123-4", [b"t", b"held", b"d", b'{"session":"a"}'])) == [
        {
            "key": "facts",
            "id": "1790000000123-4",
            "ms": 1790000000123,
            "seq": 4,
            "t": "held",
            "payload": '{"session":"a"}',
            "is_text": True,
            "is_whole": True,
            "bytes": 15,
            "at": dt.datetime(2026, 9, 21, 14, 13, 20, 123000, dt.UTC),
            "date": dt.date(2026, 9, 21),
        }
    ]


def test_a_group_of_events_has_no_type() -> None:
    (row,) = rows("events", (b"5-0", [b"d", b"{}"]))
    assert (row["key"], row["t"], row["payload"]) == ("events", None, "{}")


@pytest.mark.parametrize(
    ("fields", "type_", "payload", "is_text", "length"),
    [
        ([b"d", b"{}", b"t", b"held"], "held", "{}", True, 2),
        ([b"t", b"held", b"x", b"y", b"d", b"{}"], "held", "{}", True, 2),
        ([b"x", b"y"], None, None, True, 0),
        ([b"t", b"held", b"d", b"\xff{}"], "held", "\ufffd{}", False, 3),
        ([b"t", b"\xfe", b"d", b"{}"], "\ufffd", "{}", True, 2),
        ([b"t", b"held", b"d", b""], "held", "", True, 0),
    ],
)
def test_a_strange_entry_does_no_harm_to_others(
    fields: list[bytes], type_: str | None, payload: str | None, is_text: bool, length: int
) -> None:
    strange, good = rows("facts", (b"5-0", fields), (b"5-1", [b"t", b"held", b"d", b"{}"]))
    assert (strange["t"], strange["payload"], strange["is_text"], strange["bytes"]) == (type_, payload, is_text, length)
    assert (good["t"], good["payload"], good["is_text"]) == ("held", "{}", True)


def test_of_what_is_too_long_the_beginning_is_kept() -> None:
    long = b"a" * (LONGEST_PAYLOAD + 1)
    cut, whole = rows("facts", (b"5-0", [b"t", b"held", b"d", long]), (b"5-1", [b"t", b"held", b"d", b"{}"]))
    assert (len(cut["payload"]), cut["is_whole"], cut["bytes"]) == (LONGEST_PAYLOAD, False, LONGEST_PAYLOAD + 1)
    assert (whole["payload"], whole["is_whole"]) == ("{}", True)


def test_a_dead_letter_is_an_object_of_its_fields() -> None:
    (row,) = rows("dead", (b"5-0", [b"id", b"17", b"reason", b"it was \xff", b"attempts", b"2"]))
    assert orjson.loads(row["payload"]) == {"id": "17", "reason": "it was \ufffd", "attempts": "2"}
    assert row["key"] == "dead"


def test_a_dead_letter_tells_the_shape_of_its_data() -> None:
    (row,) = rows("dead", (b"5-0", [b"id", b"17", b"body", b'{"channel":"/a","data":{"n":1}}']))
    assert orjson.loads(row["payload"])["shape"] == "{n: number}"


def test_numbers_that_no_column_holds_become_the_largest() -> None:
    (row,) = rows("facts", (b"5-18446744073709551615", [b"t", b"held", b"d", b"{}"]))
    assert row["seq"] == 2**63 - 1


def test_a_gap_is_a_row() -> None:
    (row,) = gap_row(Gap("events", EntryId(5, 1), EntryId(9, 0), 3)).to_pylist()
    assert (row["key"], row["id"], row["ms"], row["seq"]) == ("events.gap", "5-1", 5, 1)
    assert orjson.loads(row["payload"]) == {"before": "9-0", "lost": 3}


def test_letters_get_the_texts_that_they_refer_to() -> None:
    entries = [
        (b"5-0", [b"id", b"1", b"bh", b"one", b"qos", b""]),
        (b"6-0", [b"id", b"2", b"bh", b"one", b"qh", b"two"]),
        (b"7-0", [b"id", b"3", b"body", b"its own", b"qos", b""]),
    ]
    assert shared_texts(entries) == [b"one", b"two"]
    found = [orjson.loads(row["payload"]) for row in rows("dead", *with_texts(entries, {b"one": b"{}", b"two": b"[]"}))]
    assert [(each["body"], each["qos"]) for each in found] == [("{}", ""), ("{}", "[]"), ("its own", "")]


def test_a_letter_that_has_gone_while_it_was_read_is_left_out() -> None:
    entries = [(b"5-0", [b"bh", b"gone"]), (b"6-0", [b"body", b"{}"])]
    assert [place for place, _ in with_texts(entries, {})] == [b"6-0"]
