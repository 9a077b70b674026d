"""A long batch is cut into turns of the loop: others have theirs in between, and its order and its replies are as ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.broker import inbound
from crewel.delivery.durable_session import DurableSession
from crewel.security.grants import OPERATOR
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, store
from tests.broker.world import Client, Request, World, data_of


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of a long batch is a turn of its own."""
    monkeypatch.setattr("crewel.fair_turns.PORTION_S", 0.0)
    monkeypatch.setattr("crewel.fair_turns.SLICE_S", 0.0)


def send(world: World, client: Client, count: int, channel: str = "/a") -> Request:
    """A batch that is not waited for."""
    request = Request(client.browser)
    world.receive(request, *(client.message(channel, data=number, id=str(number)) for number in range(count)))
    return request


@pytest.mark.usefixtures("turns")
def test_others_have_their_turn_within_a_batch(world: World) -> None:
    publisher, other, hearer = Client(world).joined(), Client(world).joined(), Client(world).joined("/a")
    request = send(world, publisher, 20)
    world.loop.call_soon(lambda: other.publish("/a", "between"))
    assert request.is_held
    world.settle()
    assert [reply["id"] for reply in request.received] == [str(number) for number in range(20)]
    assert all(reply["successful"] for reply in request.received)
    heard = data_of(hearer.connect(advice={"timeout": 0}).answer)
    assert [each for each in heard if each != "between"] == list(range(20))
    assert 0 < heard.index("between") < 19


@pytest.mark.usefixtures("turns")
def test_a_session_that_ends_within_its_batch_publishes_no_more(world: World) -> None:
    publisher, hearer = Client(world).joined(), Client(world).joined("/a")
    request = send(world, publisher, 20)
    world.loop.call_soon(lambda: world.broker.disconnect(publisher.session))
    world.settle()
    replies = [reply for reply in request.received if reply["channel"] == "/a"]
    heard = data_of(hearer.connect(advice={"timeout": 0}).answer)
    assert len(replies) == 20
    assert [reply["successful"] for reply in replies] == [True] * len(heard) + [False] * (20 - len(heard))
    assert 0 < len(heard) < 20


@pytest.mark.usefixtures("turns")
def test_others_have_their_turn_within_a_post(world: World) -> None:
    other, hearer = Client(world).joined(), Client(world).joined("/a")
    messages: list[Any] = [{"channel": "/a", "data": number} for number in range(20)]
    task = world.loop.create_task(world.broker.publishing.for_back_ends.post(OPERATOR, messages))
    world.loop.call_soon(lambda: world.loop.call_soon(lambda: other.publish("/a", "between")))
    world.settle()
    assert all(reply["successful"] for reply in task.result())
    heard = data_of(hearer.connect(advice={"timeout": 0}).answer)
    assert [each for each in heard if each != "between"] == list(range(20))
    assert 0 < heard.index("between") < 19


def test_a_short_batch_does_not_look_at_the_clock(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(inbound, "perf_counter", lambda: looks.append(0.0) or 0.0)
    publisher = Client(world).joined()
    assert not send(world, publisher, 8).is_held
    assert looks == []


@pytest.mark.usefixtures("turns")
def test_others_have_their_turn_while_many_sessions_end(stored: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them leave the store after one commit, each with the dead letters of what it has open."""
    monkeypatch.setattr("crewel.event_loop.TURN_S", 0.0)
    receivers = [Receiver(stored).started("/a", name=f"joe/{number}") for number in range(1, 6)]
    store(stored, "/a", 1, 2)
    events: list[str] = []
    subscriptions = stored.durability.stored
    end_stored = subscriptions.end_stored

    def noted(durable: DurableSession) -> None:
        stored.loop.call_soon(events.append, "others")
        events.append("end")
        end_stored(durable)

    monkeypatch.setattr(subscriptions, "end_stored", noted)
    for receiver in receivers:
        stored.broker.disconnect(receiver.session)
    assert len(stored.letters()) == 10
    assert events[:4] == ["end", "others", "end", "others"]
    assert events.count("end") == 5


def test_a_start_applies_what_it_reads_in_portions(make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of it would be applied in the turn in which the first queue is full."""
    monkeypatch.setattr("crewel.delivery.log_consumer._MAX_APPLIED", 20)
    before = make_stored("delivery.commit_ms=60000")
    for number in range(5):
        Receiver(before).started("/a", name=f"joe/{number}")
    store(before, "/a", *range(30))
    before.crash()
    stored = make_stored(prefix=before.prefix)
    assert stored.access.node.fan_out.deliveries <= 20
    assert len(stored.access.node.sessions) == 5
    assert all(len(durable) == 30 for durable in stored.access.node.sessions.values())


def test_others_have_their_turn_while_sessions_on_hold_are_counted(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, receivers = stored.broker.metrics, [Receiver(stored).started(name=f"joe/{n}") for n in range(1, 10)]
    stored.loop.run_until_complete(stored.broker.mailboxes.dispatchers.hold(receivers[0].session, "an operator"))
    monkeypatch.setattr("crewel.event_loop.TURN_S", 0.0)

    async def count_turns() -> int:
        task, turns = stored.loop.create_task(metrics.measure()), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    turns = stored.loop.run_until_complete(count_turns())
    assert "crewel_held_sessions 1.0" in metrics.exposition().decode()
    assert turns >= 2 * len(receivers)  # those that wait are counted, and then these


def test_long_requests_from_an_address_come_one_after_the_other(make_stored: MakeStored) -> None:
    """Also where no rates hold, and each client is an account of its own: short ones of others come between."""
    stored = make_stored("limits.exempt_addresses=192.0.2.1")
    first, second, other = (Client(stored).joined() for _ in range(3))
    receiver = Receiver(stored).started("/a", name="joe/1")
    ext = {"publish": {"persistent": True}}
    for client, name, count in ((first, "first", 300), (second, "second", 300), (other, "short", 1)):
        messages = [client.message("/a", data=name, ext=ext) for _ in range(count)]
        stored.broker.inbound.receive(Request(client.browser), messages)
        stored.loop.settle()
    stored.settle()
    heard = data(receiver.heard(receiver.reconnect()))
    assert len(heard) == 601
    assert heard.index("short") < heard.index("second")
    assert heard[-300:] == ["second"] * 300
