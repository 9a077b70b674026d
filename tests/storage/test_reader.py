"""The connections that read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from crewel.storage.store import Store
from crewel.storage.store_connection import connected, surely_cancelled

Read = Callable[[Store], Awaitable[object]]


async def _single(store: Store) -> object:
    return await store.reader.ping()


async def _piped(store: Store) -> object:
    return await store.reader.pipeline().get("a").get("b").execute()


@pytest.mark.parametrize("read", [_single, _piped])
@pytest.mark.parametrize("connects", [False, True], ids=["there", "connects"])
async def test_cancelled_read_ends_at_any_step(store: Store, read: Read, connects: bool) -> None:
    """Python 3.11 forgets a cancellation that comes in the very turn in which the library has sent its command."""
    for turns in range(1000):
        if connects:
            await store.reader.connection_pool.disconnect()
        else:
            await read(store)
        task = asyncio.ensure_future(read(store))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            return
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), turns
    pytest.fail("the read never ended")


async def test_a_connection_that_is_given_up_while_it_is_made_ends_at_any_step(store: Store) -> None:
    """A server whose store reads its file makes one after the other. A signal must end that."""
    for turns in range(1000):
        task = asyncio.ensure_future(connected(store.reader.connection_pool, lambda _: None))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            task.result().close("the test ends")
            return
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), turns
    pytest.fail("the connection was never made")


async def test_work_that_forgets_a_cancellation_is_cancelled_again() -> None:
    """SIGTERM while a command connected was forgotten on Python 3.11, and `crewel backup` waited for two minutes."""
    cancelled: list[int] = []

    async def forgets_the_first() -> None:
        for step in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(step)
        raise AssertionError("nothing more to wait for")

    task = asyncio.ensure_future(surely_cancelled(forgets_the_first()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert cancelled == [0, 1]
