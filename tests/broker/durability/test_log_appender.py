"""What lies before an own message in the log: the tail may bring it before a read does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.broker.durability import log_appender
from crewel.delivery.records import Submission
from crewel.storage import log as stored_log
from crewel.storage.log_follower import Unread, id_of
from tests.broker.slow import Slow
from tests.broker.stored_world import Receiver, StoredWorld, data

_TURNS = 20


async def appended(world: StoredWorld, *values: int, channel: str = "/a") -> list[Unread]:
    """Append these as another node does; they are returned as the tail gets them."""
    submissions = [Submission(channel, b'{"channel":"%b","data":%d}' % (channel.encode(), each)) for each in values]
    (answer,) = await world.store.run([stored_log.append(world.store.keys, world.access.token, submissions, 100)])
    entries: Any = await world.store.reader.xrange(world.store.keys.log, f"{answer.ids[0]}-0", f"{answer.ids[-1]}-0")
    return [[entry, [part for field in fields.items() for part in field]] for entry, fields in entries]


async def turns(world: StoredWorld, task: asyncio.Task[Any]) -> None:
    """Let happen what needs no slow read."""
    for _ in range(_TURNS):
        await world.store.reader.ping()
        if task.done():
            return


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """All reads of the log from here on."""
    return Slow(monkeypatch, stored_log, "read")


def queued(receiver: Receiver) -> int:
    return len(receiver.session.mailbox._queue)


def test_what_the_tail_brings_is_not_waited_for_a_second_time(stored: StoredWorld, slow: Slow) -> None:
    receiver = Receiver(stored).started("/a", name="client/joe/1")
    ahead = stored.durability.appender.ahead

    async def publish() -> None:
        ahead.begin(stored.access.node)
        known, rest = await appended(stored, 1), await appended(stored, 2, 3)
        ahead.add(known)
        publishing = asyncio.create_task(stored.broker.publish_stored("/a", 4))
        await slow.begun.wait()
        assert queued(receiver) == 1, "what is known need not wait for what is not"
        ahead.add(rest)
        await turns(stored, publishing)
        assert publishing.done()
        slow.ends.set()

    stored.wait(publish())
    stored.settle()
    assert data(receiver.take()) == [1, 2, 3, 4]


def test_a_read_leaves_out_what_the_tail_has_brought_meanwhile(stored: StoredWorld, slow: Slow) -> None:
    receiver = Receiver(stored).started("/a", name="client/joe/1")
    ahead = stored.durability.appender.ahead

    async def publish() -> None:
        ahead.begin(stored.access.node)
        first, _ = await appended(stored, 1), await appended(stored, 2)
        publishing = asyncio.create_task(stored.broker.publish_stored("/a", 3))
        await slow.begun.wait()
        assert queued(receiver) == 0
        ahead.add(first)
        await turns(stored, publishing)
        assert (queued(receiver), publishing.done()) == (1, False)
        slow.ends.set()
        await publishing

    stored.wait(publish())
    stored.settle()
    assert data(receiver.take()) == [1, 2, 3]


def test_a_publish_ends_the_pause_of_the_tail(stored: StoredWorld, slow: Slow) -> None:
    """And reads nothing itself: the tail brings what was appended before it."""
    receiver = Receiver(stored).started("/a", name="client/joe/1")
    ahead = stored.durability.appender.ahead

    async def publish() -> None:
        ahead.begin(stored.access.node)
        rest = await appended(stored, 1, 2)
        ahead.pause.begin(3600, lambda: ahead.add(rest))
        await stored.broker.publish_stored("/a", 3)
        assert not slow.begun.is_set()

    stored.wait(publish())
    stored.settle()
    assert data(receiver.take()) == [1, 2, 3]


def test_a_tail_that_does_not_answer_is_not_waited_for(stored: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_appender, "_TAIL_S", 0.0)
    receiver = Receiver(stored).started("/a", name="client/joe/1")
    ahead = stored.durability.appender.ahead

    async def publish() -> None:
        ahead.begin(stored.access.node)
        await appended(stored, 1, 2)
        ahead.pause.begin(3600, lambda: None)
        await stored.broker.publish_stored("/a", 3)

    stored.wait(publish())
    stored.settle()
    assert data(receiver.take()) == [1, 2, 3]


def take(world: StoredWorld, entries: list[Unread]) -> None:
    """As the tail does."""
    appender = world.durability.appender
    if appender.ahead.node is not world.access.node:
        appender.ahead.begin(world.access.node)
    appender.ahead.add(entries)
    if (rest := appender.take_ahead(appender.ahead.read_to)) is not None:
        world.wait(rest)
    world.settle()


def test_a_channel_that_was_passed_over_is_heard_from_a_subscribe_on(stored: StoredWorld) -> None:
    for value in (1, 2):
        take(stored, stored.wait(appended(stored, value)))
    receiver = Receiver(stored).started("/a", name="client/joe/1")
    take(stored, stored.wait(appended(stored, 3, 4)))
    assert data(receiver.take()) == [3, 4]


def test_what_is_passed_over_moves_the_cursor(stored: StoredWorld) -> None:
    for value in (1, 2):
        entries = stored.wait(appended(stored, value, value))
        take(stored, entries)
        assert stored.access.node.cursor == id_of(entries[-1])


def test_a_session_that_was_subscribed_hears_what_was_appended_before_it_left(stored: StoredWorld) -> None:
    """The index of subscriptions does not show it any more."""
    take(stored, stored.wait(appended(stored, 1)))
    receiver = Receiver(stored).started("/a", name="client/joe/1")
    before = stored.wait(appended(stored, 2))
    receiver.say("/meta/unsubscribe", subscription="/a")
    stored.settle()
    take(stored, before)
    assert data(receiver.take()) == [2]
