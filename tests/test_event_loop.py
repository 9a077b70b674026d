"""A wait for an event with a limit, as the regular work of a server has it."""

from __future__ import annotations

import asyncio

from crewel.event_loop import woken


async def test_a_wait_ends_when_the_event_comes_and_the_next_one_waits_again() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(woken(event, 60))
    await asyncio.sleep(0)
    event.set()
    await waiting
    assert not event.is_set()
    again = asyncio.create_task(woken(event, 60))
    done, _ = await asyncio.wait([again], timeout=0.01)
    assert not done
    again.cancel()


async def test_a_wait_ends_after_its_time() -> None:
    event = asyncio.Event()
    async with asyncio.timeout(5):
        await woken(event, 0.001)
    assert not event.is_set()


async def test_an_event_that_has_come_before_is_not_waited_for() -> None:
    event = asyncio.Event()
    event.set()
    async with asyncio.timeout(5):
        await woken(event, 60)


async def test_a_wait_that_is_cancelled_leaves_no_timer() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(woken(event, 0.005))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0.01)
    assert not event.is_set()
