"""Sessions enter channels and leave them; subscribers of the changes see each member come and go once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crewel.bayeux.channel import Channel
from crewel.broker.services import Service
from crewel.broker.session import Event, Session
from crewel.security.grants import Grants
from crewel.security.policy import Deny, OpenPolicy, Operation
from tests.broker.world import Client, MakeWorld, Socket, World

ROOM = "/room"
CHANGES = "/__sys__presence/room"
NOT_AUTHORIZED = "user.security.authorization.notAuthorized"


class Guest(Client):
    """A client on a socket that uses presence."""

    def __init__(self, world: World, name: str = "", **session: Any) -> None:
        super().__init__(world, Socket())
        asked = {**session, **({"name": f"client/{name}"} if name else {})}
        self.reply = self.handshake(ext={"session": asked})
        self.connect_once()

    def connect_once(self) -> None:
        self.send(self.message("/meta/connect", connectionType="websocket"))
        self.send(self.message("/meta/connect", connectionType="websocket"))
        self.take()

    def take(self) -> list[Any]:
        self.world.settle()
        assert self.socket is not None
        return self.socket.take()

    def call(self, action: str, data: Any = None, channel: str = ROOM) -> dict[str, Any]:
        """The answer to one call: its data."""
        self.take()
        message = self.message(
            "/service/presence", data={"channel": channel, "action": action, **({} if data is None else {"data": data})}
        )
        self.send(message)
        (answer,) = [each for each in self.take() if each.get("id") == message["id"] and "data" in each]
        assert ("errorCode" in answer["data"]) is not answer["successful"]
        data = answer["data"]
        assert isinstance(data, dict)
        return data

    def watch(self, channel: str = CHANGES) -> dict[str, Any]:
        message = self.message("/meta/subscribe", subscription=channel)
        self.send(message)
        reply: dict[str, Any] = next(each for each in self.take() if each.get("id") == message["id"])
        return reply

    def seen(self) -> list[tuple[str, str]]:
        """The changes that have come, in order."""
        return [(each["change"], each["id"]) for event in self.events() for each in event["changes"]]

    def events(self, channel: str = CHANGES) -> list[dict[str, Any]]:
        return [each["data"] for each in self.take() if each["channel"] == channel]


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A server without a store."""
    return make_world()


def listed(guest: Guest) -> dict[str, Any]:
    """Each member, with its sessions and data."""
    answer = guest.call("members")
    return {each["id"]: (each["sessions"], each["data"]) for each in answer["members"]}


def test_those_that_enter_are_listed_until_they_leave_or_end(world: World) -> None:
    joe, ann, watcher = Guest(world, "joe/1"), Guest(world, "ann/1"), Guest(world)
    assert joe.call("enter", {"at": "door"}) == {"channel": ROOM, "id": "joe"}
    assert ann.call("enter") == {"channel": ROOM, "id": "ann"}
    assert listed(watcher) == {"joe": (1, {"at": "door"}), "ann": (1, None)}
    assert joe.call("leave") == {"channel": ROOM, "id": "joe"}
    assert joe.call("leave") == {"channel": ROOM, "id": None}
    ann.send(ann.message("/meta/disconnect"))
    assert listed(watcher) == {}


def test_changes_come_once_for_each_member_with_the_number_after_the_list(world: World) -> None:
    watcher = Guest(world)
    assert watcher.watch()["successful"]
    list_ = watcher.call("members")
    tabs = [Guest(world, f"joe/{number}") for number in (1, 2)]
    for tab in tabs:
        tab.call("enter", "here")
    tabs[0].call("update", "typing")
    events = watcher.events()
    assert [event["seq"] for event in events] == [list_["seq"] + number for number in (1, 2, 3)]
    assert {event["epoch"] for event in events} == {list_["epoch"]}
    assert [event["changes"] for event in events] == [
        [{"change": "join", "id": "joe", "sessions": 1, "data": "here"}],
        [{"change": "update", "id": "joe", "sessions": 2, "data": "here"}],
        [{"change": "update", "id": "joe", "sessions": 2, "data": "typing"}],
    ]
    for tab in tabs:
        tab.session.disconnect()
    assert watcher.seen() == [("leave", "joe")]  # both in one turn


def test_a_session_that_is_silent_leaves(world: World) -> None:
    client, watcher = Guest(world, "joe/1"), Guest(world)
    watcher.watch()
    client.call("enter")
    assert client.socket is not None
    world.broker.mailboxes.connects.socket_closed(client.socket)
    assert watcher.seen() == [("join", "joe")]
    world.broker.sessions.table.remove(client.session, Event.SILENCE)
    assert watcher.seen() == [("leave", "joe")]


def test_each_anonymous_session_is_a_member_with_an_id_of_its_own(world: World) -> None:
    first, second = Guest(world), Guest(world)
    ids = {guest.call("enter")["id"] for guest in (first, second)}
    assert len(ids) == 2
    assert all(each.startswith("anonymous/") for each in ids)
    assert first.call("enter", "again")["id"] in ids
    assert first.call("enter", channel="/other")["id"] in ids
    assert len(listed(first)) == 2


def test_an_update_needs_an_entry_and_a_second_enter_replaces_the_data(world: World) -> None:
    joe = Guest(world, "joe/1")
    assert joe.call("update", 1)["errorCode"] == "user.presence.absent"
    joe.call("enter", 1)
    joe.call("enter", 2)
    assert listed(joe) == {"joe": (1, 2)}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"action": "enter"}, "channel: is missing"),
        ({"channel": ROOM}, "action: is missing"),
        ({"channel": ROOM, "action": "entry"}, "action: must be one of enter, update, leave, members"),
        ({"channel": "/room/*", "action": "enter"}, "channel: must be the name of a channel"),
        ({"channel": "/service/x", "action": "enter"}, "channel: must be the name of a channel"),
        ({"channel": "/__sys__presence/x", "action": "enter"}, "channel: must be the name of a channel"),
        ({"channel": "/ret/a/1000000", "action": "enter"}, "channel: must be the name of a channel"),
        ({"channel": "/" + "x" * 1020, "action": "enter"}, "channel: must be the name of a channel"),
        ({"channel": ROOM, "action": "enter", "date": 1}, "did you mean data?"),
        ({"channel": ROOM, "action": "enter", "data": "x" * 1023}, "data: has 1025 bytes as JSON, and may have 1024"),
        ([], "must be an object"),
    ],
)
def test_a_bad_request_says_what_was_expected(world: World, asked: Any, text: str) -> None:
    guest = Guest(world)
    guest.send(guest.message("/service/presence", data=asked))
    (answer,) = [each for each in guest.take() if "data" in each]
    assert answer["successful"] is False
    assert answer["data"]["errorCode"] == "user.illegalArgument"
    assert text in answer["data"]["message"]


def test_no_wildcard_hears_changes_and_no_client_publishes_them(world: World) -> None:
    watcher, joe = Guest(world), Guest(world, "joe/1")
    assert watcher.watch("/**")["successful"]
    assert watcher.watch("/__sys__presence/*")["error"].startswith("403:")
    assert watcher.watch("/__sys__presence")["error"].startswith("403:")
    joe.call("enter")
    assert watcher.take() == []
    assert watcher.say(CHANGES, data={"changes": []})["error"].startswith("403:")


def test_a_session_that_takes_nothing_gets_no_changes_and_then_a_reset(world: World) -> None:
    watcher, joe = Guest(world, "ann/1"), Guest(world, "joe/1")
    watcher.watch()
    assert watcher.socket is not None
    watcher.socket.is_writable = False
    for number in range(300):
        joe.call("enter", number)
    world.settle()
    waiting = [each for each in watcher.session.mailbox._queue if each.channel == CHANGES]
    assert 0 < len(waiting) <= 100
    watcher.socket.is_writable = True
    world.broker.mailboxes.outbound.make_ready((watcher.session,))
    assert len(watcher.events()) == len(waiting)
    joe.call("enter", "meanwhile")
    assert watcher.events() == []
    world.broker.sweep()
    assert watcher.events() == [{"channel": ROOM, "reset": True}]
    joe.call("enter", "later")
    assert [event["seq"] for event in watcher.events()] == [302]
    assert not world.broker.presence._behind


class Granting(OpenPolicy):
    """Grants what the session's name begins with."""

    def can_subscribe(self, session: Session, channel: Channel, message: Any) -> bool:
        return not session.name.startswith("client/deaf")

    def can_be_present(self, session: Session, channel: Channel, message: Any) -> bool:
        return not session.name.startswith("client/hidden")


class Unknowing:
    """A policy that was written before there was presence: it grants all that it is asked."""

    def _yes(self, *question: Any) -> bool:
        return True

    can_handshake = can_create = can_subscribe = can_publish = _yes


def with_policy(make_world: MakeWorld, policy: Any) -> World:
    service = Service("ruled")
    service.policy = policy
    return make_world(services=[service])


@pytest.mark.parametrize("name", ["deaf/1", "hidden/1"])
def test_presence_needs_its_own_right_and_that_to_subscribe(make_world: MakeWorld, name: str) -> None:
    world = with_policy(make_world, Granting())
    guest, joe = Guest(world, name), Guest(world, "joe/1")
    for action in ("enter", "update", "members"):
        assert guest.call(action)["errorCode"] == NOT_AUTHORIZED
    assert guest.watch()["error"].startswith("403:")
    assert joe.watch()["successful"]
    joe.call("enter")
    assert listed(joe) == {"joe": (1, None)}


def test_a_policy_without_the_question_grants_nothing(make_world: MakeWorld) -> None:
    world = with_policy(make_world, Unknowing())
    guest = Guest(world)
    assert guest.call("enter")["errorCode"] == NOT_AUTHORIZED
    assert guest.watch()["error"].startswith("403:")


def test_authorisers_of_the_channel_hide_its_presence_too(make_world: MakeWorld) -> None:
    service = Service("ruled")

    @service.authorizer("/room/**")
    def private(operation: Operation, *_: Any) -> Deny:
        return Deny("private")

    world = make_world(services=[service])
    guest = Guest(world)
    assert "private" in guest.call("members", channel="/room/7")["message"]
    assert guest.watch("/__sys__presence/room/7")["error"] == "403:private:subscribe_denied"
    assert guest.call("members", channel="/lobby")["members"] == []


def test_a_new_token_without_the_right_ends_presence_and_what_is_seen_of_it(world: World) -> None:
    joe, watcher = Guest(world, "joe/1"), Guest(world, "ann/1")
    watcher.watch()
    joe.watch()
    joe.call("enter")
    lobby = frozenset({"/lobby"})
    joe.session.authenticate(Grants("joe", subscribe=lobby, presence=lobby))
    for _ in world.broker.subscriptions.permissions.regrant(joe.session):
        pass
    assert watcher.seen() == [("join", "joe"), ("leave", "joe")]
    assert CHANGES not in joe.session.subscriptions


def test_bounds_of_a_session_and_of_an_account(make_world: MakeWorld) -> None:
    world = make_world("limits.max_presence_per_session=2", "limits.max_presence_per_account=3")
    joe = Guest(world, "joe/1")
    for number in (1, 2):
        joe.call("enter", channel=f"/{number}")
    refused = joe.call("enter", channel="/3")
    assert (refused["errorCode"], "too many channels" in refused["message"]) == ("resource.exhaust", True)
    joe.call("enter", "again", channel="/2")
    joe.call("leave", channel="/1")
    joe.call("enter", channel="/3")
    joe.session.disconnect()
    guests = [Guest(world) for _ in range(5)]  # of one address
    refusals = [guest.call("enter", channel=ROOM).get("errorCode") for guest in guests]
    assert refusals == [None, None, None, "resource.exhaust", "resource.exhaust"]
    assert world.broker.metrics.limited["max_presence_per_account"] == 2
    assert world.broker.metrics.limited["max_presence_per_session"] == 1
    for guest in guests[:3]:
        guest.session.disconnect()
    assert [guests[3].call("enter").get("errorCode"), guests[4].call("enter").get("errorCode")] == [None, None]


def test_one_address_leaves_places_of_a_channel_to_others(make_world: MakeWorld) -> None:
    world = make_world("limits.max_presence_per_channel=5")
    guests = [Guest(world) for _ in range(5)]
    assert [guest.call("enter").get("errorCode") for guest in guests] == [None] * 4 + ["resource.exhaust"]
    proved = Guest(world, "ann/1")
    proved.session.authenticate(Grants("ann", frozenset({"/**"}), presence=frozenset({"/**"}), by_policy=True))
    assert proved.call("enter") == {"channel": ROOM, "id": "ann"}


def test_what_was_counted_is_forgotten(make_world: Callable[..., World]) -> None:
    world = make_world()
    guest = Guest(world, "joe/1")
    guest.call("enter")
    guest.session.disconnect()
    world.settle()
    world.broker.sweep()
    presence = world.broker.presence
    assert (presence._bounds.total, presence._bounds._held, presence._bounds._accounts) == (0, {}, {})
    assert (presence._present, presence._keys, presence.entries._channels) == ({}, {}, {})
