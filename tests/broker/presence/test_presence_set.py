"""Who is present, and what changes in the eyes of clients."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from crewel.broker.presence.presence_set import OWN, PresenceEntry, PresenceSet

ROOM = "/room"


def entry(session: str, member: str, data: object = None, at: int = 0, channel: str = ROOM) -> PresenceEntry:
    return PresenceEntry(channel, session, member, orjson.dumps(data), at, False)


def told(entries: PresenceSet) -> list[tuple[str, str, int | None]]:
    """The changes that clients get now: kind, member, its sessions."""
    return [
        (each.kind, each.member, None if each.seen is None else each.seen.sessions)
        for changes in entries.take_changes()
        for each in changes.changes
    ]


def test_a_member_joins_with_its_first_session_and_leaves_with_its_last() -> None:
    entries = PresenceSet("life")
    entries.put(OWN, entry("a", "joe"))
    assert told(entries) == [("join", "joe", 1)]
    entries.put("other", entry("b", "joe"))
    assert told(entries) == [("update", "joe", 2)]
    entries.take_out(OWN, "a", ROOM)
    assert told(entries) == [("update", "joe", 1)]
    entries.take_out("other", "b", ROOM)
    assert told(entries) == [("leave", "joe", None)]
    assert list(entries) == []


def test_a_member_shows_what_was_set_last_and_then_what_is_left() -> None:
    entries = PresenceSet("life")
    entries.put(OWN, entry("a", "joe", "first", at=1))
    entries.put(OWN, entry("b", "joe", "second", at=2))
    entries.put(OWN, entry("a", "joe", "third", at=3))
    assert orjson.loads(orjson.dumps(entries.on(ROOM).listed())) == [{"id": "joe", "sessions": 2, "data": "third"}]
    entries.take_out(OWN, "a", ROOM)
    assert orjson.loads(orjson.dumps(entries.on(ROOM).listed())) == [{"id": "joe", "sessions": 1, "data": "second"}]


def test_what_returns_to_what_it_was_is_no_change_and_has_no_number() -> None:
    entries = PresenceSet("life")
    entries.put(OWN, entry("a", "joe"))
    told(entries)
    entries.take_out(OWN, "a", ROOM)
    entries.put(OWN, entry("a", "joe"))
    assert entries.take_changes() == []
    assert entries.on(ROOM).seq == 1


def test_a_session_that_two_nodes_announce_counts_once() -> None:
    entries = PresenceSet("life")
    entries.put("dead", entry("client/joe/1", "joe"))
    entries.put("dead", entry("~1", "ann"))
    told(entries)
    entries.put("heir", entry("client/joe/1", "joe"))
    assert entries.sessions(ROOM) == 2
    entries.replace("dead", ())
    assert told(entries) == [("leave", "ann", None)]
    assert entries.sessions(ROOM) == 1


def test_changes_are_one_message_with_the_next_number_of_their_channel() -> None:
    entries = PresenceSet("life")
    entries.put(OWN, entry("a", "joe", {"name": "Joe"}))
    entries.put(OWN, entry("b", "ann"))
    entries.put(OWN, entry("a", "joe", channel="/other"))
    first, other = entries.take_changes()
    assert (first.channel, first.seq, other.channel, other.seq) == (ROOM, 1, "/other", 1)
    assert first.epoch != other.epoch
    assert orjson.loads(first.wire()) == {
        "channel": "/__sys__presence/room",
        "data": {
            "channel": ROOM,
            "epoch": first.epoch,
            "seq": 1,
            "changes": [
                {"change": "join", "id": "joe", "sessions": 1, "data": {"name": "Joe"}},
                {"change": "join", "id": "ann", "sessions": 1, "data": None},
            ],
        },
    }
    entries.take_out(OWN, "b", ROOM)
    (second,) = entries.take_changes()
    assert (second.epoch, second.seq) == (first.epoch, 2)


def test_numbers_of_an_empty_channel_continue_as_long_as_it_is_watched() -> None:
    entries = PresenceSet("life")
    epoch = entries.on(ROOM).epoch
    entries.forget_unused(lambda channel: channel == ROOM)
    assert entries.on(ROOM).epoch == epoch
    entries.forget_unused(lambda channel: False)
    assert entries.on(ROOM).epoch != epoch


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "out", "tell"]), st.sampled_from(["", "n"]), st.integers(0, 3), st.integers(0, 1))
)


@given(STEPS)
def test_a_client_that_applies_all_changes_has_the_list(steps: list[tuple[str, str, int, int]]) -> None:
    entries, have = PresenceSet("life"), {}
    for at, (step, node, session, data) in enumerate([*steps, ("tell", "", 0, 0)]):
        if step == "put":
            entries.put(node, entry(f"s{session}", f"m{session % 2}", data, at))
        elif step == "out":
            entries.take_out(node, f"s{session}", ROOM)
        else:
            for changes in entries.take_changes():
                for each in changes.changes:
                    assert (each.member in have) is (each.kind != "join")
                    have[each.member] = each.seen
                    if each.seen is None:
                        del have[each.member]
    assert have == {member: entries.on(ROOM).seen(member) for member in entries.on(ROOM).members}
    assert entries.sessions(ROOM) == len({each.session for node in ("", "n") for each in entries.of_node(node)})
