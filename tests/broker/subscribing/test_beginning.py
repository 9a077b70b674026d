"""How subscriptions begin on channels with a history: what comes first, and that nothing is missing or twice at the seam."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.broker.sessions import Event
from crewel.delivery.records import LogId, Submission
from crewel.errors import StoreError, StoreUnavailable
from crewel.storage import log as stored_log
from tests.broker.stored_world import Receiver, StoredWorld, data, origin
from tests.broker.world import Client, Request, data_of

RULES = 'topics={"/h/**":{"history":{"max_entries":5}},"/long/**":{"history":{"max_entries":5000}}}'


@pytest.fixture
def world() -> Iterator[StoredWorld]:
    made = StoredWorld(RULES)
    yield made
    made.close()


def publish(world: StoredWorld, channel: str, *values: Any) -> list[str]:
    ids = [world.wait(world.broker.publish_stored(channel, value)) for value in values]
    world.settle()
    return ids


def asked(**qos: Any) -> Fields:
    return {"ext": {"subscribe": qos}}


class Asking:
    """A session without acknowledgements, and one with them: what they see of a subscription is the same."""

    def __init__(self, world: StoredWorld, kind: str) -> None:
        self.world = world
        self.client: Client
        if kind == "plain":
            self.client = Client(world).joined()
        elif kind == "ack":
            self.client = Client(world).joined(ext={"ack": True})
        else:
            self.client = Receiver(world).started()
        self.kind = kind
        self.ack = None

    def subscribe(self, channel: str | list[str], **qos: Any) -> Fields:
        """The reply; what came with it stays to be taken."""
        message = self.client.message("/meta/subscribe", subscription=channel, ext={"subscribe": qos})
        request = self.client.send(message)
        self.early = [each for each in request.received if "data" in each]
        (reply,) = [each for each in request.received if each["channel"] == "/meta/subscribe"]
        return reply

    def take(self) -> list[Fields]:
        """All that has come since the subscribe."""
        if isinstance(self.client, Receiver):
            return [*self.early, *self.client.take()]
        ext = {"ack": self.ack} if self.kind == "ack" else {}
        request = self.client.connect(ext=ext, advice={"timeout": 0})
        if self.kind == "ack":
            self.ack = next(each for each in request.answer if each["channel"] == "/meta/connect")["ext"]["ack"]
        early, self.early = self.early, []
        return [*early, *(each for each in request.answer if "data" in each)]


@pytest.fixture(params=["plain", "ack", "update"])
def asking(request: pytest.FixtureRequest, world: StoredWorld) -> Asking:
    return Asking(world, request.param)


def test_the_newest_message_comes_first_unless_more_is_asked(world: StoredWorld, asking: Asking) -> None:
    publish(world, "/h/a", 1, 2, 3)
    assert asking.subscribe("/h/a")["successful"]
    assert data_of(asking.take()) == [3]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ({"numEntries": 2}, [3, 2]),
        ({"numEntries": 2, "newestFirst": False}, [2, 3]),
        ({"numEntries": -1, "newestFirst": False}, [1, 2, 3]),
        ({"numEntries": -1}, [3, 2, 1]),
        ({"numEntries": 0}, []),
        ({"numEntries": 100, "newestFirst": False}, [1, 2, 3]),
        ({"newestFirst": False}, [3]),
    ],
)
def test_so_many_come_and_in_the_order_that_is_asked_for(
    world: StoredWorld, asking: Asking, history: Fields, expected: list[int]
) -> None:
    publish(world, "/h/a", 1, 2, 3)
    asking.subscribe("/h/a", history=history)
    assert data_of(asking.take()) == expected
    publish(world, "/h/a", 4)
    assert data_of(asking.take()) == [4]


def test_no_initial_update_no_old_messages(world: StoredWorld, asking: Asking) -> None:
    publish(world, "/h/a", 1)
    reply = asking.subscribe("/h/a", initialUpdate=False, history={"numEntries": 5})
    publish(world, "/h/a", 2)
    assert data_of(asking.take()) == [2]
    assert reply["ext"]["subscribe"]["position"]["/h/a"]["id"]


def test_nothing_old_comes_to_a_subscribe_that_asks_for_nothing(world: StoredWorld) -> None:
    publish(world, "/h/a", 1)
    receiver = Receiver(world).started("/h/a")
    assert receiver.take() == []


def test_a_topic_without_history_has_no_position(world: StoredWorld, asking: Asking) -> None:
    publish(world, "/plain", 1)
    assert asking.subscribe("/plain")["ext"]["subscribe"] == {"position": {}}
    assert asking.take() == []


def test_initial_messages_are_marked_and_later_ones_are_not(world: StoredWorld) -> None:
    (first,) = publish(world, "/h/a", 1)
    receiver = Receiver(world).started()
    receiver.say("/meta/subscribe", subscription="/h/a", ext={"subscribe": {}})
    (old,) = receiver.take()
    assert (origin(old)["initial"], origin(old)["id"], old["id"]) == (True, first, first)
    publish(world, "/h/a", 2)
    (new,) = receiver.take()
    assert "initial" not in origin(new)


def test_a_pattern_begins_with_the_histories_of_all_channels_that_it_matches(
    world: StoredWorld, asking: Asking
) -> None:
    for channel in ("/h/a", "/h/b", "/h/deep/c", "/other/a"):
        publish(world, channel, f"{channel} 1", f"{channel} 2")
    told = asking.subscribe(["/h/*", "/h/b"], history={"numEntries": 2, "newestFirst": False})["ext"]["subscribe"]
    assert told["position"].keys() == {"/h/a", "/h/b"}
    publish(world, "/h/a", "new")
    assert data_of(asking.take()) == ["/h/a 1", "/h/a 2", "/h/b 1", "/h/b 2", "new"]
    assert asking.subscribe("/h/**", initialUpdate=False)["ext"]["subscribe"] == {"position": {}}
    assert asking.take() == []


class TestSince:
    def test_all_that_was_missed_comes_in_order(self, world: StoredWorld, asking: Asking) -> None:
        (first,) = publish(world, "/h/a", 1)
        position = asking.subscribe("/h/a", initialUpdate=False)["ext"]["subscribe"]["position"]
        assert position["/h/a"]["id"] == first
        publish(world, "/h/a", 2, 3, 4)
        other = Asking(world, asking.kind)
        told = other.subscribe("/h/a", since=position)["ext"]["subscribe"]
        assert told["recovered"] is True
        publish(world, "/h/a", 5)
        messages = other.take()
        assert data_of(messages) == [2, 3, 4, 5]
        assert not any("initial" in each.get("ext", {}).get("update", {}) for each in messages)
        assert told["position"]["/h/a"]["epoch"] == position["/h/a"]["epoch"]

    def test_nothing_missed_is_all_recovered(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        position = asking.subscribe("/h/a", initialUpdate=False)["ext"]["subscribe"]["position"]
        told = Asking(world, asking.kind).subscribe("/h/a", since=position)["ext"]["subscribe"]
        assert told == {"position": position, "recovered": True}

    def test_what_the_history_has_lost_is_not_recovered_and_nothing_old_comes(
        self, world: StoredWorld, asking: Asking
    ) -> None:
        publish(world, "/h/a", 1)
        position = asking.subscribe("/h/a")["ext"]["subscribe"]["position"]
        publish(world, "/h/a", *range(10))
        other = Asking(world, asking.kind)
        assert other.subscribe("/h/a", since=position)["ext"]["subscribe"]["recovered"] is False
        publish(world, "/h/a", "new")
        assert data_of(other.take()) == ["new"]

    def test_another_epoch_is_not_recovered(self, world: StoredWorld, asking: Asking) -> None:
        (first,) = publish(world, "/h/a", 1)
        since = {"/h/a": {"epoch": "other", "id": first}}
        assert asking.subscribe("/h/a", since=since)["ext"]["subscribe"]["recovered"] is False

    def test_a_topic_without_history_is_not_recovered(self, world: StoredWorld, asking: Asking) -> None:
        (first,) = publish(world, "/plain", 1)
        since = {"/plain": {"epoch": "e", "id": first}}
        assert asking.subscribe("/plain", since=since)["ext"]["subscribe"]["recovered"] is False
        publish(world, "/plain", 2)
        assert data_of(asking.take()) == [2]

    def test_one_channel_that_is_not_recovered_keeps_all_from_coming(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        publish(world, "/h/b", 1)
        position = asking.subscribe(["/h/a", "/h/b"], initialUpdate=False)["ext"]["subscribe"]["position"]
        publish(world, "/h/a", "a")
        publish(world, "/h/b", *range(10))
        other = Asking(world, asking.kind)
        told = other.subscribe(["/h/a", "/h/b"], since=position)["ext"]["subscribe"]
        assert told["recovered"] is False
        assert other.take() == []

    def test_a_channel_that_it_does_not_name_begins_with_its_history(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        publish(world, "/h/b", 2)
        told = asking.subscribe(["/h/a", "/h/b"], since={})["ext"]["subscribe"]
        assert told["recovered"] is True
        assert data_of(asking.take()) == [1, 2]

    def test_who_subscribed_before_the_first_message_recovers_from_the_beginning(
        self, world: StoredWorld, asking: Asking
    ) -> None:
        topic = {"administrative": True, "history": {"maxEntries": 7}}
        assert asking.client.publish("/new", None, ext={"publish": topic})["successful"]
        position = asking.subscribe("/new")["ext"]["subscribe"]["position"]
        publish(world, "/new", 1, 2)
        other = Asking(world, asking.kind)
        told = other.subscribe("/new", since=position)["ext"]["subscribe"]
        assert told["recovered"] is True
        assert data_of(other.take()) == [1, 2]

    def test_a_history_that_had_not_begun_is_recovered_while_it_has_not(
        self, world: StoredWorld, asking: Asking
    ) -> None:
        position = asking.subscribe("/h/new")["ext"]["subscribe"]["position"]
        assert position == {"/h/new": {"epoch": "", "id": "0"}}
        assert asking.subscribe("/h/new", since=position)["ext"]["subscribe"]["recovered"] is True
        publish(world, "/h/new", 1)
        told = Asking(world, asking.kind).subscribe("/h/new", since=position)["ext"]["subscribe"]
        assert told["recovered"] is False  # nobody knows whether there was another history in between

    def test_a_wildcard_is_refused(self, asking: Asking) -> None:
        reply = asking.subscribe("/h/*", since={})
        assert (reply["successful"], reply["error"]) == (False, "400:since:user.illegalArgument")
        assert reply["ext"]["subscribe"]["errorCode"] == "user.illegalArgument"

    def test_more_than_the_queue_takes_is_not_recovered(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started(queue={"maxEntries": 3})
        (first,) = publish(world, "/h/a", 0)
        told = receiver.say("/meta/subscribe", subscription="/h/a", **asked())["ext"]["subscribe"]
        publish(world, "/h/a", 1, 2, 3)
        receiver.take()
        for count, expected in ((3, True), (4, False)):
            other = Receiver(world).started(queue={"maxEntries": 3})
            since = told["position"] if count == 3 else {"/h/a": {**told["position"]["/h/a"], "id": first}}
            if count == 4:
                publish(world, "/h/a", 4)
            again = other.say("/meta/subscribe", subscription="/h/a", **asked(since=since))["ext"]["subscribe"]
            assert again["recovered"] is expected
            assert data(other.take()) == ([1, 2, 3] if expected else [])


def test_what_is_published_while_the_history_is_read_comes_once(world: StoredWorld, asking: Asking) -> None:
    publish(world, "/h/a", 1)
    publishes = [world.broker.publish_stored("/h/a", value) for value in ("before", "between", "after")]
    whole = {"subscribe": {"history": {"numEntries": -1, "newestFirst": False}}}
    asking.client.subscribe()  # nothing: what has gone before is done
    message = asking.client.message("/meta/subscribe", subscription="/h/a", ext=whole)
    peer = Request(asking.client.browser)
    steps = [
        lambda: world.loop.create_task(publishes[0]),
        lambda: world.broker.inbound.receive(peer, [message]),
        lambda: world.loop.create_task(publishes[1]),
        lambda: world.loop.create_task(publishes[2]),
    ]
    for step in steps:
        world.loop.call_soon(step)
    world.settle()
    asking.early = [each for each in peer.received if "data" in each]
    assert data_of(asking.take()) == [1, "before", "between", "after"]


def test_a_stored_session_is_owed_exactly_what_follows_its_history(world: StoredWorld) -> None:
    """Whatever stands in the queue of writes around a subscribe: each message comes once, as history or by itself."""
    for before in range(4):
        channel = f"/long/{before}"
        values = iter(range(100))
        receiver = Receiver(world).started()

        def publishing(count: int, channel: str = channel, values: Iterator[int] = values) -> None:
            for _ in range(count):
                world.broker.publish(channel, next(values))

        publishing(before)
        whole = {"subscribe": {"history": {"numEntries": -1, "newestFirst": False}}}
        peer = Request(receiver.browser)
        message = receiver.message("/meta/subscribe", subscription=channel, ext=whole)
        world.broker.inbound.receive(peer, [message])
        publishing(2)
        world.settle()
        publishing(1)
        world.settle()
        assert data(receiver.take()) == list(range(before + 3))


def test_what_is_sent_of_a_history_is_sent_again_until_it_is_acknowledged(world: StoredWorld) -> None:
    publish(world, "/h/a", 1, 2)
    receiver = Receiver(world).started()
    receiver.say("/meta/subscribe", subscription="/h/a", **asked(history={"numEntries": 2}))
    first = receiver.reconnect(advice={"timeout": 0}).answer
    assert data(each for each in first if "data" in each) == [2, 1]
    assert data(receiver.take()) == [2, 1]  # the first answer got lost
    assert receiver.take() == []


def test_a_session_that_hears_the_channel_already_is_not_sent_twice_what_waits_for_it(world: StoredWorld) -> None:
    receiver = Receiver(world).started()
    reply = receiver.say("/meta/subscribe", subscription="/h/a", **asked(initialUpdate=False))
    publish(world, "/h/a", 1)
    (first,) = receiver.take()
    publish(world, "/h/a", 2)
    position = {"/h/a": {"epoch": reply["ext"]["subscribe"]["position"]["/h/a"]["epoch"], "id": first["id"]}}
    told = receiver.say("/meta/subscribe", subscription="/h/a", **asked(since=position))
    if told["ext"]["subscribe"]["recovered"]:
        assert data(receiver.take()) == [2]


class TestTrouble:
    def test_a_store_that_is_away_refuses_the_subscription(
        self, world: StoredWorld, asking: Asking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(world, "/h/a", 1)
        monkeypatch.setattr(
            world.durability.writing, "submit", lambda step, done, **_: done(StoreUnavailable("the store is away"))
        )
        reply = asking.subscribe("/h/a")
        assert (reply["successful"], reply["error"]) == (False, "503::resource.unavailable")
        assert reply["ext"]["subscribe"] == {"errorCode": "resource.unavailable", "message": "the store is away"}
        monkeypatch.undo()
        assert "/h/a" not in asking.client.session.subscriptions

    def test_a_history_that_cannot_be_read_leaves_no_subscription_behind(
        self, world: StoredWorld, asking: Asking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(world, "/h/a", 1)
        submit = world.durability.writing.submit

        def fail(step: Any, done: Any, **how: Any) -> None:
            submit(step, (lambda answer: done(StoreError("odd"))) if step.script == "history" else done, **how)

        monkeypatch.setattr(world.durability.writing, "submit", fail)
        assert asking.subscribe("/h/a")["error"] == "503::resource.unavailable"
        assert asking.client.session.subscriptions == set()
        if asking.client.session.durable is not None:
            assert "s:/h/a" not in world.record(asking.client.session)

    def test_a_subscription_that_there_was_goes_on(
        self, world: StoredWorld, asking: Asking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(world, "/h/a", 1)
        asking.subscribe("/h/a", initialUpdate=False)
        submit = world.durability.writing.submit

        def fail(step: Any, done: Any, **how: Any) -> None:
            submit(step, (lambda answer: done(StoreError("odd"))) if step.script == "history" else done, **how)

        monkeypatch.setattr(world.durability.writing, "submit", fail)
        assert asking.subscribe("/h/a")["successful"] is False
        monkeypatch.undo()
        publish(world, "/h/a", 2)
        assert data_of(asking.take()) == [2]

    @pytest.mark.parametrize("kind", ["plain", "update"])
    def test_what_this_server_has_not_taken_yet_is_taken_first(self, world: StoredWorld, kind: str) -> None:
        """The answer to a publish got lost, and the history has what nobody has heard."""
        publish(world, "/h/a", 1)
        hearing = Asking(world, "plain")
        hearing.subscribe("/h/a", initialUpdate=False)
        lost = Submission("/h/a", b'{"channel":"/h/a","data":"lost"}', history_max=5)
        store, token = world.store, world.durability.token
        world.wait(store.run([stored_log.append(store.keys, token, [lost], 100)]))
        asking = Asking(world, kind)
        reply = asking.subscribe("/h/a", history={"numEntries": 2, "newestFirst": False})
        assert reply["successful"], reply
        publish(world, "/h/a", 2)
        assert data_of(asking.take()) == [1, "lost", 2]
        assert data_of(hearing.take()) == ["lost", 2]

    def test_a_log_that_cannot_be_read_to_its_end_refuses(
        self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(world, "/h/a", 1)
        monkeypatch.setattr(world.durability.writing, "look", lambda: None)
        world.durability.node.cursor = LogId(world.durability.node.cursor - 1)
        client = Client(world).joined()
        assert client.say("/meta/subscribe", subscription="/h/a", **asked())["error"] == "503::resource.unavailable"

    def test_while_everything_is_read_again_it_is_refused(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        world.durability.is_reloading = True
        assert asking.subscribe("/h/a")["error"] == "503::resource.unavailable"
        world.durability.is_reloading = False

    def test_a_session_that_ends_meanwhile_is_not_in_the_index(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        client = asking.client
        peer = Request(client.browser)
        message = client.message("/meta/subscribe", subscription="/h/a", **asked())
        world.broker.inbound.receive(peer, [message])
        world.broker.remove(client.session, Event.DISCONNECT)
        world.settle()
        (reply,) = [each for each in peer.received if each["channel"] == "/meta/subscribe"]
        assert reply["successful"] is False
        assert world.broker.channels.count("/h/a") == 0


def test_what_was_recovered_is_not_dropped_for_what_is_newer() -> None:
    """A full queue drops its oldest messages, or ends; who was told that nothing is missing sees it end."""
    world = StoredWorld(RULES, "bayeux.max_queue_messages=4", "bayeux.meta_connect_deliver_only=true")
    try:
        asking = Asking(world, "plain")
        publish(world, "/h/a", 0)
        position = asking.subscribe("/h/a", initialUpdate=False)["ext"]["subscribe"]["position"]
        publish(world, "/h/a", 1, 2, 3)
        clients = [Client(world).joined() for _ in range(2)]
        for client in clients:
            client.say("/meta/subscribe", subscription="/h/a", **asked(since=position))
        publish(world, "/h/a", 4)
        assert data_of(clients[0].connect(advice={"timeout": 0}).answer) == [1, 2, 3, 4]
        publish(world, "/h/a", 5, 6, 7, 8, 9)
        assert data_of(clients[0].connect(advice={"timeout": 0}).answer) == [6, 7, 8, 9]
        assert not clients[1].is_known
    finally:
        world.close()
