"""Entries: encoded once, referenced by every queue."""

from typing import Any

import orjson
import pytest

from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId


def test_an_entry_knows_its_channel_and_its_json() -> None:
    entry = Entry({"channel": "/a", "data": {"n": 1}})
    assert entry.channel == "/a"
    assert orjson.loads(entry.wire) == {"channel": "/a", "data": {"n": 1}}
    assert not entry.lazy
    assert Entry({"channel": "/a"}, lazy=True).lazy


def test_the_json_is_made_once() -> None:
    entry = Entry({"channel": "/a", "data": 1})
    assert entry.wire is entry.wire


@pytest.mark.parametrize("data", [object(), {1: 2}, b"bytes", 2**70])
def test_what_json_cannot_say_fails_for_who_sends_it(data: Any) -> None:
    with pytest.raises(TypeError):
        Entry({"channel": "/a", "data": data}).wire  # noqa: B018 - it may be encoded now or have been before


def test_a_logged_entry_carries_its_place_in_the_log_as_its_id() -> None:
    entry = Entry.logged("/a", LogId(17), b'{"channel":"/a","data":[1]}', lazy=True)
    assert entry.wire == b'{"channel":"/a","data":[1],"id":"17"}'
    assert (entry.position, entry.channel, entry.lazy) == (17, "/a", True)
    assert entry.fields == {"channel": "/a", "data": [1], "id": "17"}


def test_an_entry_that_is_not_stored_has_no_place_in_the_log() -> None:
    assert Entry({"channel": "/a", "data": 1}).position == 0


def test_a_placeholder_is_no_more_than_a_place_in_the_log() -> None:
    entry = Entry.placeholder(LogId(17))
    assert (entry.position, entry.channel, entry.wire, entry.lazy) == (17, "", b"", False)
