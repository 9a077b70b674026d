"""What lies before an own message in the log: the tail may bring it before a read does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.delivery.records import LogId, Submission
from crewel.storage import log as stored_log
from crewel.storage.log_follower import Unread
from tests.broker.slow import Slow
from tests.broker.stored_world import Receiver, StoredWorld, data

_TURNS = 20


async def appended(world: StoredWorld, *values: int) -> list[Unread]:
    """Append these as another node does; they are returned as the tail gets them."""
    submissions = [Submission("/a", b'{"channel":"/a","data":%d}' % each) for each in values]
    (answer,) = await world.store.run([stored_log.append(world.store.keys, world.access.token, submissions, 100)])
    entries: Any = await world.store.reader.xrange(world.store.keys.log, f"{answer.ids[0]}-0", f"{answer.ids[-1]}-0")
    return [
        Unread(LogId(int(entry.partition(b"-")[0])), [part for field in fields.items() for part in field])
        for entry, fields in entries
    ]


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
    return len(receiver.session.mailbox.queue)


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
