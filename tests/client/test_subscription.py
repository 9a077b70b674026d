"""One subscription's queue: bound, policies, ends."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from crewel.client.callbacks import Callbacks
from crewel.client.client_message import Message
from crewel.client.errors import (
    DisconnectedError,
    SubscribeRefused,
    SubscriptionEndedError,
    SubscriptionOverflowError,
)
from crewel.client.subscription import Overflow, Subscription


def message(data: Any) -> Message:
    return Message("/a", data, {"channel": "/a", "data": data, "ext": {"x": 1}})


class Queue(Subscription):
    """A subscription of nobody's that notes what it is told to do."""

    def __init__(self, bound: int = 2, overflow: Overflow = Overflow.HOLD) -> None:
        self.released = 0
        self.rooms = 0
        super().__init__("/a", bound=bound, overflow=overflow, release=self._count, on_room=self._room)

    async def _count(self, subscription: Subscription) -> None:
        self.released += 1

    def _room(self) -> None:
        self.rooms += 1


def offered(queue: Queue, *values: Any, retained: bool = False) -> Queue:
    for value in values:
        queue.offer(message(value), retained=retained)
    return queue


async def drained(queue: Subscription) -> list[Any]:
    return [each.data async for each in queue]


@pytest.mark.parametrize(
    ("overflow", "retained", "kept", "dropped"),
    [
        (Overflow.DROP_OLDEST, False, [2, 3], 1),
        (Overflow.DROP_OLDEST, True, [2, 3], 1),
        (Overflow.DROP_NEWEST, False, [1, 2], 1),
        (Overflow.HOLD, False, [2, 3], 1),
        (Overflow.HOLD, True, [1, 2, 3], 0),
    ],
)
async def test_a_full_queue_has_a_policy(overflow: Overflow, retained: bool, kept: list[int], dropped: int) -> None:
    queue = offered(Queue(2, overflow), 1, 2, 3, retained=retained)
    queue.end()
    assert await drained(queue) == kept
    assert queue.dropped == dropped


async def test_the_policy_close_ends_after_what_was_queued() -> None:
    queue = offered(Queue(2, Overflow.CLOSE), 1, 2, 3, 4)
    assert queue.is_ended
    assert [(await queue.receive(1)).data, (await queue.receive(1)).data] == [1, 2]
    with pytest.raises(SubscriptionOverflowError, match="/a"):
        await queue.receive(1)
    assert queue.dropped == 1


async def test_a_stopped_queue_drops_what_the_server_does_not_keep() -> None:
    queue = Queue()
    queue.stop()
    offered(queue, 1)
    assert (queue.queued, queue.dropped) == (0, 1)


async def test_a_waiting_reader_gets_the_next_message() -> None:
    queue = Queue()
    reader = asyncio.create_task(queue.receive(5))
    await asyncio.sleep(0)
    offered(queue, 1)
    assert (await reader).data == 1


async def test_a_cancelled_reader_takes_no_message_with_it() -> None:
    queue = Queue()
    reader = asyncio.create_task(queue.receive(5))
    await asyncio.sleep(0)
    offered(queue, 1)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert queue.queued == 1


async def test_two_readers_get_each_message_once() -> None:
    queue = Queue(10)
    readers = [asyncio.create_task(queue.receive(5)) for _ in range(2)]
    await asyncio.sleep(0)
    offered(queue, 1, 2)
    assert sorted([(await reader).data for reader in readers]) == [1, 2]


async def test_receive_has_a_time_out() -> None:
    with pytest.raises(TimeoutError):
        await Queue().receive(0.01)


async def test_room_is_told_when_a_full_queue_is_read() -> None:
    queue = offered(Queue(2), 1)
    await queue.receive(1)
    assert queue.rooms == 0
    offered(queue, 1, 2, 3, retained=True)
    await queue.receive(1)
    assert queue.rooms == 0
    await queue.receive(1)
    assert queue.rooms == 1


async def test_a_lost_subscription_raises_once_it_is_read_out() -> None:
    queue = offered(Queue(), 1)
    queue.end(DisconnectedError("over"))
    queue.end()
    assert (await queue.receive(1)).data == 1
    with pytest.raises(DisconnectedError, match="over"):
        await queue.receive(1)


async def test_a_worker_whose_session_ended_raises_before_what_is_unread() -> None:
    queue = offered(Queue(9), 1, 2)
    queue.is_of_worker = True
    taken = await queue.receive(0)
    queue.end(DisconnectedError("taken over"))
    queue.put_back([taken])
    with pytest.raises(DisconnectedError, match="taken over"):
        await queue.receive(0)
    assert queue.queued == 0


async def test_a_worker_whose_subscription_has_failed_reads_what_came_before() -> None:
    queue = offered(Queue(9), 1)
    queue.is_of_worker = True
    queue.fail(SubscribeRefused({"subscription": "/a", "error": "413::too expensive"}), None)
    assert (await queue.receive(0)).data == 1
    with pytest.raises(SubscribeRefused, match="too expensive"):
        await queue.receive(0)


async def test_leaving_the_block_unsubscribes_and_ends_the_iteration() -> None:
    async with Queue() as queue:
        offered(queue, 1)
    assert queue.released == 1
    assert await drained(offered(queue, 2)) == [1]
    with pytest.raises(SubscriptionEndedError, match="/a"):
        await queue.receive(1)


async def test_a_callback_that_catches_its_cancellation_ends_all_the_same() -> None:
    callbacks, begun = Callbacks(), asyncio.Event()

    async def process(message: Message) -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    queue = offered(Queue(), 1, 2)
    callbacks.call(process, queue)
    async with asyncio.timeout(5):
        await begun.wait()
        await callbacks.cancel()
    assert queue.queued == 1


def test_a_queue_without_room_for_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Queue(0)


def test_a_message_shows_its_ext() -> None:
    assert message(1).ext == {"x": 1}
    assert Message("/a", 1, {"ext": "no object"}).ext == {}
