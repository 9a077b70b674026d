"""Handlers that can wait."""

import asyncio
import weakref
from functools import partial
from typing import Any

import pytest

from crewel.broker.handler_steps import Promise, Steps, complete, start, wait


def double(value: Any) -> Steps[int]:
    try:
        got = yield from wait(value)
    except ValueError:
        return -1
    return 2 * int(got)


async def later(value: int) -> int:
    await asyncio.sleep(0)
    if value < 0:
        raise ValueError
    return value


def test_what_needs_not_wait_runs_through() -> None:
    assert start(double(4)) == (None, 8)


async def test_what_must_wait_says_for_what_and_goes_on_with_the_result() -> None:
    steps = double(later(4))
    waiting, result = start(steps)
    assert waiting is not None
    assert result is None
    assert await complete(steps, waiting) == 8


async def test_a_failure_is_told_to_the_steps_that_asked() -> None:
    steps = double(later(-1))
    waiting, _ = start(steps)
    assert waiting is not None
    assert await complete(steps, waiting) == -1


async def test_steps_may_wait_more_than_once() -> None:
    def both() -> Steps[int]:
        one = yield from double(later(1))
        two = yield from double(later(2))
        return one + two

    steps = both()
    waiting, _ = start(steps)
    assert waiting is not None
    assert await complete(steps, waiting) == 6


async def test_a_cancellation_is_not_a_failure_to_handle() -> None:
    steps = double(asyncio.get_running_loop().create_future())
    waiting, _ = start(steps)
    assert waiting is not None
    task = asyncio.create_task(complete(steps, waiting))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_promise_that_is_kept_refers_to_nobody_any_more() -> None:
    """Or each would be left to the garbage collector, for whoever waits for a promise refers to it."""

    class Waiting:
        def __init__(self, promise: Promise[int]) -> None:
            self.promise = promise

        def hear(self, result: object) -> None:
            pass

    promise: Promise[int] = Promise()
    waiting = Waiting(promise)
    promise.then(partial(Waiting.hear, waiting))
    seen = weakref.ref(waiting)
    del waiting
    assert seen() is not None
    promise.resolve(1)
    assert seen() is None
