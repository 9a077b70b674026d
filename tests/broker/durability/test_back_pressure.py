"""Publishes on a channel wait while its dead letters or deliveries pile up; publishes on other channels do not."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.security.grants import Grants
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, store
from tests.broker.world import Client, Request

MOST = 4
LONGEST_S = 5.0


@pytest.fixture
def flooded(make_stored: MakeStored) -> StoredWorld:
    """A server with more pending dead letters of /a than publishers of the same address may make without waiting."""
    world = make_stored()
    world.broker.mailboxes.pressure.max_dead_letters, world.access.node.max_dead_letters = MOST, 2
    Receiver(world).started("/a", name="joe/1", queue={"maxEntries": 1})
    store(world, "/a", "fills the queue")
    flood(world)
    return world


def flood(world: StoredWorld) -> None:
    store(world, "/a", *range(MOST + 1))
    world.broker.mailboxes.pressure.update()
    assert world.broker.mailboxes.pressure.is_on


def ask(client: Client, *channels: str, persistent: bool = True) -> Request:
    """Publish on these channels in one request."""
    ext: dict[str, Any] = {"ext": {"publish": {"persistent": True}}} if persistent else {}
    peer = client.send(*(client.message(each, data=each, **ext) for each in channels))
    assert isinstance(peer, Request)
    return peer


def store_nothing(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no letter reach the store from now on."""
    monkeypatch.setattr(world.access.node, "commit", lambda: None)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_publish_that_would_make_letters_waits_until_fewer_are_pending(
    flooded: StoredWorld, persistent: bool
) -> None:
    request = ask(Client(flooded).joined(), "/a", persistent=persistent)
    assert request.is_held
    flooded.commit()
    assert request.answer[0]["successful"]
    assert not flooded.broker.mailboxes.pressure.is_on
    assert flooded.broker.metrics.publishes_delayed == 1


def test_publishes_on_other_channels_do_not_wait(flooded: StoredWorld) -> None:
    assert ask(Client(flooded).joined(), "/b").answer[0]["successful"]
    assert flooded.broker.metrics.publishes_delayed == 0


def test_what_follows_in_the_request_keeps_its_place(flooded: StoredWorld) -> None:
    request = ask(Client(flooded).joined(), "/a", "/b", "/a")
    assert request.is_held
    flooded.commit()
    ids = [each["ext"]["publish"]["id"] for each in request.answer]
    assert [each["channel"] for each in request.answer] == ["/a", "/b", "/a"]
    assert ids == sorted(ids, key=int)


def test_a_receiver_without_rates_pays_for_its_dead_letters(make_stored: MakeStored) -> None:
    """On loopback, such as behind a proxy that is not trusted, all publishers waited for it, and were refused after 5 s."""
    world = make_stored("limits.exempt_addresses=192.0.2.0/24")
    world.broker.mailboxes.pressure.max_dead_letters, world.access.node.max_dead_letters = MOST, 2
    Receiver(world).started("/**", name="joe/1", queue={"maxEntries": 1})
    store(world, "/a", "fills the queue")
    flood(world)
    assert ask(Client(world).joined(), "/a").answer[0]["successful"]
    assert world.wait(world.broker.publish_stored("/a", "of the server itself"))
    assert world.broker.metrics.publishes_delayed == 0
    joe = Client(world)
    joe.joined(ext={"session": {"name": "joe/2"}})
    assert ask(joe, "/a").is_held


def test_a_post_of_a_back_end_waits_as_a_whole(flooded: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    elements = [{"channel": each, "data": 1, "ext": {"publish": {"persistent": True}}} for each in ("/b", "/a")]
    posting = flooded.loop.create_task(flooded.broker.publishing.for_back_ends.post(Grants("joe"), elements))
    flooded.settle()
    assert not posting.done()
    flooded.commit()
    assert [each["successful"] for each in posting.result()] == [True, True]
    assert flooded.broker.metrics.publishes_delayed == 1
    flood(flooded)
    store_nothing(flooded, monkeypatch)
    flooded.broker.mailboxes.pressure.refuses_from = MOST
    posting = flooded.loop.create_task(flooded.broker.publishing.for_back_ends.post(Grants("joe"), elements))
    flooded.advance(LONGEST_S)
    assert [each["successful"] for each in posting.result()] == [True, False]


def test_a_request_waits_once_however_many_messages_it_has(flooded: StoredWorld) -> None:
    request = ask(Client(flooded).joined(), *["/a"] * 20)
    flooded.advance(LONGEST_S)
    assert all(each["successful"] for each in request.answer)
    assert flooded.broker.metrics.publishes_delayed == 1


def test_a_publish_waits_no_longer_than_a_client_does(flooded: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    store_nothing(flooded, monkeypatch)
    request = ask(Client(flooded).joined(), "/a")
    flooded.advance(LONGEST_S - 0.1)
    assert request.is_held
    flooded.advance(0.2)
    assert request.answer[0]["successful"]


def test_a_publish_is_refused_if_far_too_many_are_pending(
    flooded: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_nothing(flooded, monkeypatch)
    flooded.broker.mailboxes.pressure.refuses_from = MOST
    request = ask(Client(flooded).joined(), "/a")
    flooded.advance(LONGEST_S)
    assert request.answer[0]["ext"]["publish"]["errorCode"] == "resource.unavailable"


def test_a_publish_waits_while_too_many_of_its_channel_are_handed_out(make_stored: MakeStored) -> None:
    world = make_stored()
    fan_outs = world.broker.mailboxes.outbound.fan_outs
    fan_outs.many = 2
    is_over = False
    for _ in range(3):
        fan_outs.add("/a", iter(lambda: is_over or None, True))
    world.broker.mailboxes.pressure.update()
    pressure = world.broker.mailboxes.pressure
    assert (pressure.is_on, pressure.delays("/a"), pressure.delays("/b")) == (True, True, False)
    is_over = True
    world.settle()
    pressure.update()
    assert (pressure.is_on, pressure.delays("/a")) == (False, False)
