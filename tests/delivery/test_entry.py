"""Entries: encoded once, referenced by every queue."""

from typing import Any

import orjson
import pytest

from crewel.bayeux.channel import SYSTEM
from crewel.delivery.entry import NO_ENTRIES, Entry, notice_entry, priority_in
from crewel.delivery.fan_out_buffer import NO_RECIPIENTS
from crewel.delivery.records import Logged, LogId, PendingMessage
from crewel.qos.update import Origin


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


def test_a_message_of_the_server_about_itself_leaves_no_dead_letter() -> None:
    oneway = Entry({"channel": "/a"})
    oneway.is_oneway = True
    notice = notice_entry(PendingMessage(channel="/a"), LogId(7))
    entries = (Entry({"channel": "/a"}), oneway, notice, Entry({"channel": f"{SYSTEM}/topics"}))
    assert [each.leaves_letter for each in entries] == [True, False, False, False]


def test_what_is_json_already_and_has_no_place_stays_as_it_is() -> None:
    entry = Entry.logged("/a", LogId(0), b'{"channel":"/a"}')
    assert (entry.position, entry.wire) == (0, b'{"channel":"/a"}')


def test_a_placeholder_is_no_more_than_a_place_in_the_log() -> None:
    entry = Entry.placeholder(LogId(17))
    assert (entry.position, entry.channel, entry.wire, entry.lazy) == (17, "", b"", False)


class TestUpdated:
    def test_an_update_has_its_origin_and_what_is_this_receivers_own(self) -> None:
        entry = Entry({"channel": "/a", "data": 1})
        entry.origin = Origin("7-0-ab", "7000000", "client/joe/1")
        assert orjson.loads(entry.updated("/*", 2, (0, 3))) == {
            "channel": "/a",
            "data": 1,
            "ext": {
                "update": {
                    "id": "7-0-ab",
                    "rcvTimestamp": "7000000",
                    "sender": "client/joe/1",
                    "subscription": "/*",
                    "redeliver": 2,
                    "queue": {"index": 0, "size": 3},
                }
            },
        }

    def test_what_is_addressed_to_its_receiver_comes_by_no_subscription(self) -> None:
        entry = Entry({"channel": "/a", "data": 1}, to="client/joe")
        entry.origin = Origin("7-0-ab", "7000000")
        assert orjson.loads(entry.updated("/*"))["ext"]["update"]["subscription"] == "__subId:PtP"

    def test_the_rest_of_its_life_is_told_as_it_is_when_it_leaves(self) -> None:
        entry = Entry({"channel": "/a", "data": 1})
        entry.origin = Origin("7-0-ab", "7000000", qos=b'{"lifeTime":50}')
        left = [orjson.loads(entry.updated(now_ms=now))["ext"]["update"]["remainingLife"] for now in (7, 27, 57, 99)]
        assert left == [50, 30, 0, 0]

    def test_what_all_receivers_are_told_is_encoded_once(self) -> None:
        entry = Entry.logged("/a", LogId(17), b'{"channel":"/a"}', origin=Origin.stored(LogId(17), "", b""))
        assert entry.shared_json == b""
        first = entry.updated()
        shared_json = entry.shared_json
        assert entry.updated() == first
        assert entry.shared_json is shared_json

    def test_with_origin_every_receiver_gets_it(self) -> None:
        entry = Entry.with_origin({"channel": "/a", "data": 1}, Origin("7", "8"))
        assert orjson.loads(entry.wire)["ext"]["update"]["id"] == "7"

    def test_who_is_not_told_gets_the_message_as_it_was(self) -> None:
        entry = Entry({"channel": "/a", "data": 1})
        entry.origin = Origin("7-0-ab", "7000000")
        entry.updated()
        assert entry.wire == b'{"channel":"/a","data":1}'


class TestShed:
    def test_of_a_stored_message_memory_keeps_the_place_and_where_it_comes_from(self) -> None:
        entry = Entry.logged("/a", LogId(17), b'{"channel":"/a"}', origin=Origin.stored(LogId(17), "joe", b""))
        kept = entry.drop_body()
        assert (kept.position, kept.wire, kept.origin) == (17, b"", entry.origin)
        assert kept.channel == "/a", "what is acknowledged after a long silence is counted on its channel"

    def test_an_evicted_entry_keeps_how_it_waits(self) -> None:
        kept = Entry.logged("/a", LogId(17), b'{"channel":"/a"}', priority=9, expires=20, to="client/joe").drop_body()
        assert (kept.priority, kept.expires, kept.to) == (9, 20, "client/joe")

    def test_of_one_that_lies_nowhere_else_it_keeps_all(self) -> None:
        entry = Entry({"channel": "/a"})
        assert entry.drop_body() is entry


class TestReadBack:
    @pytest.mark.parametrize(
        ("qos", "priority", "expires"),
        [
            (b"", 5, 0),
            (b'{"priority":9}', 9, 0),
            (b'{"lifeTime":3,"forceDestroy":true}', 5, 3017),
            (b'{"lifeTime":0,"forceDestroy":true,"priority":0}', 0, 17),
            (b'{"lifeTime":3}', 5, 0),
            (b'{"forceDestroy":true}', 5, 0),
        ],
    )
    def test_what_is_kept_with_a_message_says_how_it_waits(self, qos: bytes, priority: int, expires: int) -> None:
        logged = Logged(LogId(17), "/a", b'{"channel":"/a"}', "client/eve/1", qos=qos, to="client/joe")
        entry = Entry.read_back(logged)
        assert (entry.priority, entry.expires, entry.to) == (priority, expires, "client/joe")
        assert (entry.position, entry.channel, entry.origin) == (
            17,
            "/a",
            Origin.stored(logged.id, logged.sender, logged.qos, logged.redrive_of),
        )
        assert entry.fields == {"channel": "/a", "id": "17"}

    def test_read_back_keeps_an_end_that_is_known_from_elsewhere(self) -> None:
        assert Entry.read_back(Logged(LogId(17), "/a", b"{}"), 99).expires == 99

    def test_what_an_operator_has_sent_again_stays_until_it_is_delivered(self) -> None:
        qos = b'{"priority":9,"lifeTime":3,"forceDestroy":true}'
        entry = Entry.read_back(Logged(LogId(17), "/a", b"{}", qos=qos, redrive_of="9-0"))
        assert (entry.priority, entry.expires) == (9, 0)


def test_the_priority_can_be_read_of_what_is_kept_with_a_message() -> None:
    assert [priority_in(each) for each in (b"", b'{"lifeTime":3}', b'{"priority":0}')] == [5, 5, 0]


class TestRemembered:
    LOGGED = Logged(LogId(17), "/a", b'{"channel":"/a"}', "client/eve/1", qos=b'{"priority":9}')

    def test_a_message_of_a_history_has_no_place_but_its_id(self) -> None:
        entry = Entry.remembered(self.LOGGED, is_initial=True)
        assert (entry.position, entry.priority) == (0, 9)
        assert orjson.loads(entry.updated())["ext"]["update"] == {
            "id": "17",
            "rcvTimestamp": "17000",
            "sender": "client/eve/1",
            "persistent": True,
            "priority": 9,
            "initial": True,
        }
        assert entry.fields == {"channel": "/a", "id": "17"}

    def test_what_was_missed_is_not_initial(self) -> None:
        entry = Entry.remembered(self.LOGGED, is_initial=False)
        assert "initial" not in orjson.loads(entry.updated())["ext"]["update"]


def test_the_copy_that_nobody_answers_has_no_place_and_leaves_the_other_as_it_was() -> None:
    entry = Entry.logged("/a", LogId(17), b'{"channel":"/a"}', origin=Origin.stored(LogId(17), "", b""), priority=7)
    copy = entry.oneway()
    assert (copy.position, copy.is_oneway, copy.wire, copy.origin, copy.priority) == (
        0,
        True,
        entry.wire,
        entry.origin,
        7,
    )
    assert (entry.position, entry.is_oneway) == (17, False)


def test_the_copy_of_one_receiver_does_not_share_the_record_of_many() -> None:
    entry = Entry.logged("/a", LogId(17), b'{"channel":"/a"}')
    entry.fan_out_record = NO_RECIPIENTS
    copy = entry.unrecorded()
    assert (copy.fan_out_record, copy.position, copy.wire) == (None, 17, entry.wire)
    assert entry.fan_out_record is NO_RECIPIENTS


def test_a_notice_tells_what_has_become_of_a_topic() -> None:
    entry = Entry({"channel": "/a", "data": None})
    assert not entry.is_notice
    entry.origin = Origin("17", "17000")
    assert not entry.is_notice
    entry.origin = Origin("17", "17000", state="ERASED")
    assert entry.is_notice


def test_a_message_is_transient_if_it_is_not_stored() -> None:
    assert Entry({"channel": "/a", "data": None}).is_transient
    assert not Entry({"channel": "/meta/connect"}).is_transient
    assert not Entry.read_back(Logged(LogId(17), "/a", b'{"channel":"/a"}')).is_transient


def test_of_a_qos_that_cannot_be_read_it_waits_as_usual_and_fails_when_it_is_to_be_told() -> None:
    entry = Entry.read_back(Logged(LogId(17), "/a", b'{"channel":"/a"}', qos=b"no JSON"))
    assert (entry.priority, entry.expires) == (5, 0)
    with pytest.raises(ValueError, match="literal"):
        entry.updated()


def test_an_ext_that_is_no_object_cannot_be_told() -> None:
    entry = Entry.read_back(Logged(LogId(17), "/a", b'{"channel":"/a","ext":"x"}'))
    with pytest.raises(TypeError):
        entry.updated()


def test_for_who_answers_nothing_it_is_the_shared_encoding() -> None:
    entry = Entry.read_back(Logged(LogId(17), "/a", b'{"channel":"/a"}'))
    told = entry.updated_copy("", 0)
    assert told.wire == entry.updated()
    assert entry.wire == b'{"channel":"/a","id":"17"}'
    assert b'"subscription":"/*"' in entry.updated_copy("/*", 0).wire


def test_nothing_is_put_into_the_queue_that_is_shared() -> None:
    entry = Entry({"channel": "/a"})
    with pytest.raises(TypeError, match="share this queue"):
        NO_ENTRIES.append(entry)
    with pytest.raises(TypeError, match="share this queue"):
        NO_ENTRIES.insert(0, entry)
    assert NO_ENTRIES == []
