"""The chat's server half, on CometD's own chat contract."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from crewel.demo import MAX_NAME, MAX_PEERS, MAX_TEXT, Membership, Whisper, read_name, read_peers, read_room
from tests.conftest import StartServer
from tests.demo.member import Fields, Member

HALL = "/chat/demo"


@pytest.fixture
async def members(start_server: StartServer) -> AsyncIterator[tuple[Member, Member, Member]]:
    """Three sessions of one server."""
    server = start_server("bayeux.timeout_ms=500")
    async with AsyncExitStack() as stack:
        joe, sue, eve = [await stack.enter_async_context(Member(server.url)) for _ in range(3)]
        yield joe, sue, eve


Trio = tuple[Member, Member, Member]


async def test_names_are_broadcast_when_somebody_joins_and_leaves(members: Trio):
    joe, sue, _ = members
    await joe.join("joe")
    await joe.hear_names("demo", "joe")
    await sue.join("sue")
    await joe.hear_names("demo", "joe", "sue")
    await sue.hear_names("demo", "joe", "sue")
    await sue.ask("/meta/disconnect")
    await joe.hear_names("demo", "joe")


async def test_a_member_that_vanishes_is_taken_off_and_spoken_for(start_server: StartServer):
    server = start_server("bayeux.timeout_ms=500", "bayeux.max_interval_ms=2500", "bayeux.sweep_ms=200")
    async with Member(server.url) as joe, Member(server.url) as sue:
        await joe.join("joe")
        await sue.join("sue")
        await joe.hear_names("demo", "joe", "sue")
        silence = {"user": "sue", "membership": "leave", "chat": "sue has gone silent"}
        await joe.hear_names("demo", "joe")
        await joe.hear(lambda delivery: delivery == {"channel": HALL, "data": silence})


async def test_a_second_join_sends_the_list_to_its_session(members: Trio):
    joe, _, _ = members
    await joe.join("joe")
    await joe.hear_names("demo", "joe")
    await joe.publish("/service/members", {"user": "joe", "room": HALL})
    await joe.hear_names("demo", "joe")


async def test_rooms_have_members_of_their_own_and_can_be_left(members: Trio):
    joe, sue, _ = members
    await joe.join("joe")
    await sue.join("sue", "wool")
    await sue.hear_names("wool", "sue")
    await sue.join("sue")
    await joe.hear_names("demo", "joe", "sue")
    await sue.publish("/service/members", {"user": "sue", "room": HALL, "membership": "leave"})
    await joe.hear_names("demo", "joe")


async def test_a_private_message_reaches_its_peers_and_its_sender_only(members: Trio):
    joe, sue, eve = members
    await joe.join("joe")
    await sue.join("sue")
    await eve.join("eve")
    whisper = {"room": HALL, "user": "joe", "chat": "psst <b>", "peer": "sue, sue"}
    reply = await joe.publish("/service/privatechat", whisper)
    assert reply["successful"]
    told = {"channel": HALL, "data": {"chat": "psst <b>", "user": "joe", "scope": "private", "peer": "sue"}}
    await sue.hear(lambda delivery: delivery == told)
    await joe.hear(lambda delivery: delivery == told)
    await joe.publish(HALL, {"user": "joe", "chat": "end"})
    await eve.hear(lambda delivery: delivery["data"] == {"user": "joe", "chat": "end"} or _fails(delivery, told))


def _fails(delivery: Fields, secret: Fields) -> bool:
    assert delivery != secret, "a private message reached a third session"
    return False


async def test_a_private_message_carries_the_name_its_sender_has_in_the_room(members: Trio):
    joe, sue, _ = members
    await joe.join("joe")
    await sue.join("sue")
    await joe.publish("/service/privatechat", {"room": HALL, "user": "boss", "chat": "pay up", "peer": "sue"})
    delivery = await sue.hear(lambda delivery: delivery["data"] and "scope" in delivery["data"])
    assert delivery["data"]["user"] == "joe"


async def test_the_sender_is_notified_of_an_unknown_peer(members: Trio):
    joe, _, _ = members
    await joe.join("joe")
    await joe.publish("/service/privatechat", {"room": HALL, "user": "joe", "chat": "psst", "peer": "nobody"})
    error = {"chat": "Nobody here is called nobody", "user": "server", "scope": "error"}
    await joe.hear(lambda delivery: delivery == {"channel": HALL, "data": error})


async def test_only_the_server_publishes_member_lists(members: Trio):
    joe, _, _ = members
    await joe.join("joe")
    reply = await joe.publish("/members/demo", ["mallory"])
    assert reply["error"] == "403:members_are_told_by_the_server:publish_denied"


MALFORMED = [
    None,
    "text",
    7,
    [],
    {},
    {"room": HALL},
    {"room": 1, "user": "joe", "chat": "x", "peer": "sue"},
    {"room": "/members/demo", "user": "joe", "chat": "x", "peer": "sue"},
    {"room": "/chat/**", "user": "joe", "chat": "x", "peer": "sue"},
    {"room": HALL, "user": {"a": 1}, "chat": "x", "peer": "sue"},
    {"room": HALL, "user": "joe,sue", "chat": "x", "peer": "sue"},
]


@pytest.mark.parametrize("channel", ["/service/members", "/service/privatechat"])
async def test_malformed_requests_are_refused(members: Trio, channel: str):
    for data in MALFORMED:
        reply = await members[0].publish(channel, data)
        assert reply["successful"] is False, data
        assert reply["error"] == "404::message_deleted"


@pytest.mark.parametrize(
    "value", [None, 1, "", "demo", "/chat/", "/chat/a/b", "/chat/*", "/chat/a b", "/chat/" + "a" * 65]
)
def test_a_wrong_room_name_is_refused(value: object):
    assert read_room(value) is None


def test_a_room_is_the_last_segment():
    assert read_room("/chat/a-1_b.c~") == "a-1_b.c~"


@pytest.mark.parametrize("value", [None, 1, "", "  ", "a,b", "a\nb", "a\u202eb", "a" * (MAX_NAME + 1)])
def test_a_wrong_name_is_refused(value: object):
    assert read_name(value) is None


@pytest.mark.parametrize("value", ["joe", "<b>joe</b>", "Zoë", "李雷", "joe smith"])
def test_names_are_people_s_own(value: str):
    assert read_name(f" {value} ") == value


@pytest.mark.parametrize("value", [None, 1, "", "joe,", ",".join(f"n{i}" for i in range(MAX_PEERS + 1)), "a" * 100_000])
def test_a_wrong_list_of_peers_is_refused(value: object):
    assert read_peers(value) is None


def test_peers_are_named_once():
    assert read_peers("joe, sue,joe") == ("joe", "sue")


def test_a_membership_is_read():
    assert Membership.read({"room": HALL, "user": "joe"}) == Membership("demo", "joe", False)
    assert Membership.read({"room": HALL, "user": "joe", "membership": "leave"}) == Membership("demo", "joe", True)


@pytest.mark.parametrize("chat", [None, 1, "", "a" * (MAX_TEXT + 1)])
def test_a_private_message_must_have_a_text(chat: object):
    assert Whisper.read({"room": HALL, "user": "joe", "chat": chat, "peer": "sue"}) is None
