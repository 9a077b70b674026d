"""Long requests of one account come into the log a few hundred messages at a time, in their order; others do not wait."""

from __future__ import annotations

import asyncio

from crewel.broker.durability.publish_window import PublishWindow


async def entered(window: PublishWindow, payer: str, count: int) -> asyncio.Task[None]:
    task = asyncio.create_task(window.enter(payer, count))
    await asyncio.sleep(0)
    return task


async def test_an_account_waits_for_its_own_and_no_other_does() -> None:
    window = PublishWindow()
    tasks = [await entered(window, "a", count) for count in (300, 100, 1, 400)]
    assert [each.done() for each in tasks] == [True, True, False, False]
    assert (await entered(window, "b", 400)).done()
    window.leave("a", 300)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [each.done() for each in tasks] == [True, True, True, False]
    window.leave("a", 100)
    window.leave("a", 1)
    await tasks[3]


async def test_a_request_beyond_the_bound_comes_alone() -> None:
    window = PublishWindow()
    assert (await entered(window, "a", 1000)).done()
    second = await entered(window, "a", 1)
    assert not second.done()
    window.leave("a", 1000)
    await second


async def test_one_that_is_cancelled_leaves_its_place() -> None:
    window = PublishWindow()
    await window.enter("a", 400)
    second, third = await entered(window, "a", 400), await entered(window, "a", 5)
    second.cancel()
    await asyncio.sleep(0)
    window.leave("a", 400)
    await third
    window.leave("a", 5)
    assert (await entered(window, "a", 400)).done()
