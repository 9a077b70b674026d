"""Bodies that are read back when their receivers are there again: many receivers at once, and a store that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from crewel.errors import StoreError
from crewel.storage.store_connection import Reader, pool_of
from tests.broker.stored_world import Receiver, StoredWorld, store
from tests.broker.world import Request, World, data_of, let_go

_CLIENTS = 60
_EACH = 150  # more than one read brings back


def connecting(client: Receiver) -> Request:
    """A connect that is processed together with others: nothing happens in between."""
    request = Request(client.browser)
    message = client.message("/meta/connect", connectionType="long-polling", ext={"ack": client.ack})
    World.receive(client.world, request, message)
    return request


@contextmanager
def unreadable(world: StoredWorld) -> Iterator[None]:
    """The store can be written and not be read."""
    reader = world.store.reader
    world.store.reader = Reader(connection_pool=pool_of("unix:///there/is/no/such.sock", ""))
    try:
        yield
    finally:
        world.store.reader = reader


def test_many_clients_get_their_backlogs_without_asking_twice(stored: StoredWorld) -> None:
    clients = [Receiver(stored).started("/a", name=f"herd{number}/1") for number in range(1, _CLIENTS + 1)]
    let_go(stored)
    wanted = [store(stored, "/a", number)[0] for number in range(_EACH)]
    assert len(set(wanted)) == _EACH
    heard: list[list[Any]] = [[] for _ in clients]
    for _ in range(-(-_EACH // 100) + 1):  # a response holds no more than a burst
        requests = [connecting(client) for client in clients]
        stored.settle()
        for client, request, came in zip(clients, requests, heard, strict=True):
            if not request.is_held:
                came.extend(data_of(client.heard(request)))
    assert heard == [list(range(_EACH))] * _CLIENTS


class LostRequest(Request):
    """A request whose connection may end."""

    is_gone = False


@pytest.mark.parametrize(("is_lost", "publishes"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("is_read", [True, False])
def test_a_connect_that_comes_again_after_its_connection_was_lost_is_no_copy(
    stored: StoredWorld, is_read: bool, is_lost: bool, publishes: bool
) -> None:
    """It waited for the stored messages, and comes before or after they are read; a publish of the same client on another
    connection changes nothing. Of two that both wait, one gets them."""
    joe = Receiver(stored).started("/a", name="joe/1")
    let_go(stored)
    store(stored, "/a", "hi")
    first, second = LostRequest(joe.browser), LostRequest(joe.browser)
    message = joe.message("/meta/connect", connectionType="long-polling", ext={"ack": joe.ack})
    World.receive(stored, first, message)
    if publishes:
        World.receive(stored, Request(joe.browser), joe.message("/b", data=1))
    if is_lost:
        first.is_gone = True
        stored.broker.mailboxes.connects.vanished(first)
    if is_read:
        stored.settle()
    World.receive(stored, second, dict(message))
    stored.settle()
    assert first.is_gone or data_of(first.answer[:1]) == ["hi"]
    assert data_of(second.answer[:-1]) == (["hi"] if is_lost or is_read else [])


def test_a_read_that_failed_is_tried_again_by_itself(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    let_go(stored)
    store(stored, "/a", "hi")
    with unreadable(stored):
        request = joe.reconnect()
        assert request.is_held
    stored.advance(1.0)
    assert data_of(joe.heard(request)) == ["hi"]


def test_reads_are_tried_again_with_longer_and_longer_pauses(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    let_go(stored)
    store(stored, "/a", "hi")
    attempts = 0
    refill = stored.durability.backlog._load

    async def counted(*given: Any) -> None:
        nonlocal attempts
        attempts += 1
        await refill(*given)

    stored.durability.backlog._load = counted  # type: ignore[method-assign]
    with unreadable(stored):
        request = joe.reconnect()
        for _ in range(100):
            World.advance(stored, 0.1)
            stored.settle()
    assert 4 <= attempts <= 8  # at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3 s
    stored.advance(5.0)
    assert data_of(joe.heard(request)) == ["hi"]


def arriving_late(world: StoredWorld) -> asyncio.Future[None]:
    """What is read of messages arrives when this is done, as on a slow line."""
    backlog, arrives = world.durability.backlog, world.loop.create_future()
    found = backlog._found

    async def late(*asked: Any) -> Any:
        await arrives
        return await found(*asked)

    backlog._found = late  # type: ignore[method-assign]
    return arrives


def waiting_for_backlog(world: StoredWorld) -> tuple[Receiver, Request, asyncio.Future[None]]:
    """A client whose connect waits for a message of the store; the last is as `arriving_late` has it."""
    joe = Receiver(world).started("/a", name="joe/1")
    let_go(world)
    store(world, "/a", "hi")
    arrives = arriving_late(world)
    request = connecting(joe)
    World.settle(world)
    assert joe.session.held is None
    return joe, request, arrives


def test_a_connect_that_waits_for_its_backlog_is_answered_when_its_session_is_another_one(stored: StoredWorld) -> None:
    """All sessions may be read again meanwhile, or be at another node: the old one gets nothing any more."""
    joe, request, arrives = waiting_for_backlog(stored)
    before = joe.session
    stored.access.lost(StoreError("suspected"))
    while stored.broker.sessions.by_id.get(before.id) in (None, before):
        World.settle(stored)
        stored.wait(stored.store.reader.ping())
    arrives.set_result(None)
    stored.settle()
    assert not request.is_held
    assert data_of(joe.heard(request)) == []
    assert data_of(joe.take()) == ["hi"]


def test_a_connect_need_not_wait_for_its_backlog_and_gets_it_all_the_same(stored: StoredWorld) -> None:
    """What is held can be given to another node."""
    joe, request, arrives = waiting_for_backlog(stored)
    stored.durability.backlog.wait_no_longer()
    World.settle(stored)
    assert joe.session.held is not None
    arrives.set_result(None)
    stored.settle()
    assert data_of(joe.heard(request)) == ["hi"]


def test_a_client_is_not_gone_while_its_connect_waits_for_its_backlog(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    let_go(stored)
    store(stored, "/a", *range(5))
    request = connecting(joe)
    refill = stored.durability.backlog.running[joe.session.durable]
    refill.add_done_callback(lambda _: let_go_now(stored))
    stored.settle()
    assert data_of(joe.heard(request)) == [*range(5)]


def test_a_connect_that_waited_for_the_backlog_gets_nothing_if_a_newer_one_came(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    let_go(stored)
    store(stored, "/a", *range(5))
    late, newer = connecting(joe), connecting(joe)
    stored.settle()
    assert (late.superseded, late.payloads) == (1, [])
    assert data_of(joe.heard(newer)) == [*range(5)]


def let_go_now(world: StoredWorld) -> None:
    """The sweep comes late, between the read and the answer."""
    joe = next(session for session in world.broker.sessions.by_id.values() if session.name == "client/joe/1")
    joe.grace_ms, joe.expires_at = 10**9, world.loop.time() + 1000  # it lives for long, and has been away for long
    world.broker.sweep()
