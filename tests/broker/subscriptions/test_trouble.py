"""Subscriptions to channels with a history when the store, the log or the session is not there as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from crewel.bayeux.codec import encode
from crewel.broker.session import Event
from crewel.broker.writing.store_phase import StorePhase
from crewel.delivery.records import LogId, Submission
from crewel.errors import StoreError, StoreUnavailable, StoreUncertain
from crewel.storage import log as stored_log
from crewel.storage.script_step import Step
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data
from tests.broker.subscriptions.asking import RULES, Asking, asked, publish
from tests.broker.world import Client, Request, World, data_of


def append(world: StoredWorld, channel: str, value: Any) -> int:
    """Publish past this server; returns the id."""
    store, token = world.store, world.access.token
    (answer,) = world.wait(store.run([stored_log.append(store.keys, token, [submission(channel, value)], 100)]))
    return int(answer.ids[0])


def submission(channel: str, value: Any) -> Submission:
    return Submission(channel, encode({"channel": channel, "data": value}), history_max=5)


class TestTrouble:
    def test_a_store_that_is_away_refuses_the_subscription(
        self, world: StoredWorld, asking: Asking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(world, "/h/a", 1)
        monkeypatch.setattr(
            world.access.writing, "submit", lambda step, done, **_: done(StoreUnavailable("the store is unavailable"))
        )
        reply = asking.subscribe("/h/a")
        assert (reply["successful"], reply["error"]) == (False, "503::resource.unavailable")
        assert reply["ext"]["subscribe"] == {"errorCode": "resource.unavailable", "message": "the store is unavailable"}
        monkeypatch.undo()
        assert "/h/a" not in asking.client.session.subscriptions

    def test_a_history_that_cannot_be_read_leaves_no_subscription_behind(
        self, world: StoredWorld, asking: Asking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(world, "/h/a", 1)
        submit = world.access.writing.submit

        def fail(step: Any, done: Any, **how: Any) -> None:
            submit(step, (lambda answer: done(StoreError("odd"))) if step.script == "histories" else done, **how)

        monkeypatch.setattr(world.access.writing, "submit", fail)
        assert asking.subscribe("/h/a")["error"] == "503::resource.unavailable"
        assert asking.client.session.subscriptions == set()
        if asking.client.session.durable is not None:
            assert "s:/h/a" not in world.record(asking.client.session)

    def test_a_subscription_that_there_was_goes_on(
        self, world: StoredWorld, asking: Asking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(world, "/h/a", 1)
        asking.subscribe("/h/a", initialUpdate=False)
        submit = world.access.writing.submit

        def fail(step: Any, done: Any, **how: Any) -> None:
            submit(step, (lambda answer: done(StoreError("odd"))) if step.script == "histories" else done, **how)

        monkeypatch.setattr(world.access.writing, "submit", fail)
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
        append(world, "/h/a", "lost")
        asking = Asking(world, kind)
        reply = asking.subscribe("/h/a", history={"numEntries": 2, "newestFirst": False})
        assert reply["successful"], reply
        publish(world, "/h/a", 2)
        assert data_of(asking.take()) == [1, "lost", 2]
        assert data_of(hearing.take()) == ["lost", 2]

    @pytest.mark.parametrize("kind", ["plain", "update"])
    def test_what_others_publish_while_histories_are_read_comes_once(self, world: StoredWorld, kind: str) -> None:
        """Other nodes publish at any time: between any two steps of the store."""
        for channel in ("/h/a", "/h/b"):
            publish(world, channel, f"{channel} first")
        store, token = world.store, world.access.token
        submit, published = store.submit, list[int]()

        def publish_between(steps: Sequence[Step[Any]], done: Any) -> None:
            every = []
            for step in steps:
                published.append(len(published))
                other = [submission(channel, published[-1]) for channel in ("/h/a", "/h/b")]
                every += [stored_log.append(store.keys, token, other, 100), step]
            submit(every, lambda answers: done(answers[1::2]))

        asking = Asking(world, kind)
        store.submit = publish_between  # type: ignore[method-assign]
        reply = asking.subscribe("/h/*", history={"numEntries": -1, "newestFirst": False})
        store.submit = submit  # type: ignore[method-assign]
        assert reply["successful"], reply
        publish(world, "/h/a", "last")
        came = asking.take()
        for channel in ("/h/a", "/h/b"):
            heard = [each["data"] for each in came if each["channel"] == channel and each["data"] != "last"]
            assert heard == [f"{channel} first", *published]

    def test_a_position_is_one_up_to_which_everything_has_come(self, world: StoredWorld, asking: Asking) -> None:
        """Another node has published what this server has not taken yet: it comes by itself, and may still get lost."""
        (taken,) = publish(world, "/h/a", 1)
        append(world, "/h/a", "other")
        message = asking.client.message("/meta/subscribe", subscription="/h/a", **asked())
        peer = Request(asking.client.browser)
        World.receive(world, peer, message)
        world.settle()
        (reply,) = [each for each in peer.received if each["channel"] == "/meta/subscribe"]
        asking.early = [each for each in peer.received if "data" in each]
        publish(world, "/h/a", 2)
        came = data_of(asking.take())
        position = int(reply["ext"]["subscribe"]["position"]["/h/a"]["id"])
        assert came == ["other", 2]
        assert (position == int(taken)) is (
            asking.kind == "plain"
        )  # the store says from where on it owes the others more

    @pytest.mark.parametrize("pattern", ["/h/a", "/h/*"])
    def test_a_session_that_hears_the_channel_hears_what_is_not_taken_yet_once(
        self, world: StoredWorld, asking: Asking, pattern: str
    ) -> None:
        publish(world, "/h/a", 1)
        position = asking.subscribe("/h/a", initialUpdate=False)["ext"]["subscribe"]["position"]
        if pattern != "/h/a":
            asking.client.say("/meta/unsubscribe", subscription="/h/a")
            asking.subscribe(pattern, initialUpdate=False)
        append(world, "/h/a", "other")
        told = asking.subscribe("/h/a", since=position)["ext"]["subscribe"]
        assert told["recovered"] is True
        publish(world, "/h/a", 2)
        assert data_of(asking.take()) == ["other", 2]

    def test_what_the_client_knows_already_does_not_come_again_from_the_log(
        self, world: StoredWorld, asking: Asking
    ) -> None:
        """It received it from another node, and this one has not taken it yet."""
        publish(world, "/h/a", 1)
        position = asking.subscribe("/h/a", initialUpdate=False)["ext"]["subscribe"]["position"]
        asking.client.say("/meta/unsubscribe", subscription="/h/a")
        known = append(world, "/h/a", "known")
        append(world, "/h/a", "missed")
        position["/h/a"]["id"] = str(known)
        told = asking.subscribe("/h/a", since=position)["ext"]["subscribe"]
        publish(world, "/h/a", 2)
        assert (told["recovered"], data_of(asking.take())) == (True, ["missed", 2])
        assert int(told["position"]["/h/a"]["id"]) >= known

    def test_a_store_without_what_was_published_before_refuses(self, world: StoredWorld) -> None:
        publish(world, "/h/a", 1)
        world.access.node.cursor = LogId(world.access.node.cursor + 1)
        client = Client(world).joined()
        assert client.say("/meta/subscribe", subscription="/h/a", **asked())["error"] == "503::resource.unavailable"

    def test_while_everything_is_read_again_it_is_refused(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        world.access.phase = StorePhase.CATCHING_UP
        assert asking.subscribe("/h/a")["error"] == "503::resource.unavailable"
        world.access.phase = StorePhase.SERVING

    def test_a_session_that_ends_meanwhile_is_not_in_the_index(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        client = asking.client
        peer = Request(client.browser)
        message = client.message("/meta/subscribe", subscription="/h/a", **asked())
        world.broker.inbound.receive(peer, [message])
        world.broker.sessions.table.remove(client.session, Event.DISCONNECT)
        world.settle()
        (reply,) = [each for each in peer.received if each["channel"] == "/meta/subscribe"]
        assert reply["successful"] is False
        assert world.broker.addressing.channels.count("/h/a") == 0


def test_what_was_recovered_is_not_dropped_for_what_is_newer(make_stored: MakeStored) -> None:
    """A full queue drops its oldest messages, or ends; who was told that nothing is missing sees it end."""
    world = make_stored(RULES, "bayeux.max_queue_messages=4", "bayeux.meta_connect_deliver_only=true")
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


def test_a_stored_session_that_drops_its_oldest_ends_too(world: StoredWorld) -> None:
    publish(world, "/h/a", 0)
    position = Asking(world, "plain").subscribe("/h/a")["ext"]["subscribe"]["position"]
    publish(world, "/h/a", 1, 2, 3)
    receivers = [Receiver(world).started(queue={"maxEntries": 4, "onOverflow": "dropOldest"}) for _ in range(2)]
    for receiver in receivers:
        told = receiver.say("/meta/subscribe", subscription="/h/a", **asked(since=position))
        assert told["ext"]["subscribe"]["recovered"] is True
    publish(world, "/h/a", 4)
    assert data(receivers[0].take()) == [1, 2, 3, 4]
    receivers[0].take()
    publish(world, "/h/a", 5, 6, 7, 8, 9)
    assert data(receivers[0].take()) == [6, 7, 8, 9]
    assert not receivers[1].is_known


def test_a_subscribe_in_doubt_is_taken_back_with_all_that_it_asked_for(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver(world).started()
    submit = world.access.writing.submit

    def lose(step: Any, done: Any, **how: Any) -> None:
        submit(step, (lambda answer: done(StoreUncertain("no answer"))) if step.script == "subscribe" else done, **how)

    for qos in ({"filter": "data.a"}, {"group": "cooks"}):
        monkeypatch.setattr(world.access.writing, "submit", lose)
        reply = receiver.say("/meta/subscribe", subscription="/h/a", **asked(**qos))
        assert reply["error"] == "503::resource.unavailable"
        monkeypatch.undo()
        assert not [name for name in world.record(receiver.session) if name[:2] in ("s:", "p:")]
        assert receiver.session not in world.broker.subscriptions.options.filtered
        assert world.broker.addressing.groups.of(receiver.session) == []
