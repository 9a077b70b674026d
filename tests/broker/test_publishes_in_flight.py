"""Long requests of one account come into the log a few hundred messages at a time, in their order; others do not wait."""

from __future__ import annotations

import asyncio

from crewel.broker.admission.publishes_in_flight import PublishesInFlight


async def entered(in_flight: PublishesInFlight, payer: str, count: int) -> asyncio.Task[None]:
    task = asyncio.create_task(in_flight.enter(payer, count))
    await asyncio.sleep(0)
    return task


async def test_an_account_waits_for_its_own_and_no_other_does() -> None:
    in_flight = PublishesInFlight()
    tasks = [await entered(in_flight, "a", count) for count in (300, 100, 1, 400)]
    assert [each.done() for each in tasks] == [True, True, False, False]
    assert (await entered(in_flight, "b", 400)).done()
    in_flight.leave("a", 300)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [each.done() for each in tasks] == [True, True, True, False]
    in_flight.leave("a", 100)
    in_flight.leave("a", 1)
    await tasks[3]


async def test_a_request_beyond_the_bound_comes_alone() -> None:
    in_flight = PublishesInFlight()
    assert (await entered(in_flight, "a", 1000)).done()
    second = await entered(in_flight, "a", 1)
    assert not second.done()
    in_flight.leave("a", 1000)
    await second


async def test_one_that_is_cancelled_leaves_its_place() -> None:
    in_flight = PublishesInFlight()
    await in_flight.enter("a", 400)
    second, third = await entered(in_flight, "a", 400), await entered(in_flight, "a", 5)
    second.cancel()
    await asyncio.sleep(0)
    in_flight.leave("a", 400)
    await third
    in_flight.leave("a", 5)
    assert (await entered(in_flight, "a", 400)).done()
