"""A wait for an event with a limit, as the regular work of a server has it; and work in slices."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from crewel import event_loop
from crewel.event_loop import Rounds, Turns, do_slice, unless, woken


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


async def test_work_is_over_when_an_event_comes_and_has_put_in_order_what_it_began() -> None:
    event, steps = asyncio.Event(), list[str]()

    async def work() -> str:
        event.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("ended")
        return "done"

    async with asyncio.timeout(5):
        assert await unless(event, work()) is None
    assert steps == ["ended"]


async def test_work_without_the_event_gives_its_result_or_its_error() -> None:
    async def work(divisor: int) -> float:
        return 1 / divisor

    assert await unless(asyncio.Event(), work(2)) == 0.5
    with pytest.raises(ZeroDivisionError):
        await unless(asyncio.Event(), work(0))


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


def test_a_slice_of_work_ends_after_its_time_and_the_rest_stays() -> None:
    steps = iter(range(3))
    assert not do_slice(steps, 0.0)
    assert next(steps) == 1, "each slice does one step at least"
    assert do_slice(steps, 60.0)
    assert do_slice(steps, 0.0), "nothing is left"


async def test_what_does_not_fit_into_this_turn_is_done_in_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "perf_counter", itertools.count().__next__)  # each look is a second later
    done: list[int] = []
    rounds = Rounds(asyncio.get_running_loop(), lambda: (done.append(number) for number in range(3)))
    rounds.begin()
    for number in range(1, 4):
        assert len(done) == number
        await asyncio.sleep(0)
    assert done == [0, 1, 2]


async def test_a_round_begins_when_the_one_before_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "perf_counter", itertools.count().__next__)
    done: list[int] = []
    rounds = Rounds(asyncio.get_running_loop(), lambda: (done.append(number) for number in range(3)))
    for number in range(1, 4):
        rounds.begin()
        assert len(done) == number
        await asyncio.sleep(0)
    rounds.begin()
    assert done == [0, 1, 2, 0]


async def test_a_round_follows_one_that_has_failed() -> None:
    done: list[int] = []

    def steps() -> Iterator[None]:
        done.append(len(done))
        if done == [0]:
            raise RuntimeError("broken")
        yield

    rounds = Rounds(asyncio.get_running_loop(), steps)
    with pytest.raises(RuntimeError):
        rounds.begin()
    rounds.begin()
    assert done == [0, 1]


async def test_of_many_pieces_of_work_one_continues_in_each_turn_and_all_in_their_order() -> None:
    went_on: list[int] = []

    async def work(number: int) -> None:
        turns = Turns()
        for _ in range(3):
            await turns.end()
            went_on.append(number)

    pieces = [asyncio.create_task(work(number)) for number in range(4)]
    while not all(piece.done() for piece in pieces):
        before = len(went_on)
        await asyncio.sleep(0)
        assert len(went_on) <= before + 1
    assert went_on == [0, 1, 2, 3] * 3


async def test_a_piece_of_work_that_is_cancelled_keeps_no_other_from_its_turn() -> None:
    first, second = (asyncio.create_task(Turns().end()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(5):
        await second
    assert first.cancelled()
