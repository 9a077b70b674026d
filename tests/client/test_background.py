"""An interrupt, such as Ctrl+C, comes at any line of the thread that waits for the loop of the synchronous clients."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Barrier
from types import FrameType
from typing import Any, Final

import pytest

from crewel.client.client_message import Failure, Handling, Message
from crewel.client.subscription import Overflow, Subscription
from crewel.client.sync import background as module
from crewel.client.sync.background import Background

INTERRUPTED: Final = (module.__file__, str(Path(asyncio.__file__).parent))
"""The code whose lines are interrupted. Others hold locks for the wait itself."""


@contextmanager
def interrupt_before(line: int) -> Iterator[None]:
    """Raise KeyboardInterrupt before so many lines of this thread have run."""
    left = line

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(INTERRUPTED):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def subscription(*numbers: int) -> Subscription[Any]:
    """A subscription in whose queue these messages are."""

    async def release(_: Subscription[Any]) -> None:
        raise AssertionError("unsubscribed")

    made = Subscription[Any]("/a", bound=9, overflow=Overflow.HOLD, release=release, on_room=lambda: None)
    for number in numbers:
        made.offer(Message("/a", number, {}))
    return made


async def others() -> None:
    """Wait until the loop has nothing else to do."""
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)


@pytest.mark.parametrize("pauses", [0, 3], ids=["at once", "later"])
def test_an_interrupted_wait_puts_back_what_it_has_taken_and_leaves_nothing_behind(pauses: int) -> None:
    background = Background()

    async def following() -> Message[Any]:
        for _ in range(pauses):
            await asyncio.sleep(0)
        return await anext(queue)

    def put_back(message: Message[Any]) -> None:
        queue.put_back([message])

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for line in count(1):
            queue = subscription(1, 2)
            try:
                with interrupt_before(line):
                    taken = background.take(following, put_back)
            except KeyboardInterrupt:
                background.wait_for(others)
                assert [background.take(following, put_back).data for _ in range(2)] == [1, 2], f"line {line}"
                gc.collect()
                assert [str(each.message) for each in warned] == [], f"line {line}"
            else:
                break
    assert (taken.data, queue.queued) == (1, 1)
    assert line > 20, "each line of the wait was interrupted once"


def test_threads_that_share_a_subscription_take_deferred_messages() -> None:
    background, queue = Background(), subscription()
    ended: list[tuple[int, Failure | None]] = []

    def note(number: int, _: Handling, failure: Failure | None) -> None:
        ended.append((number, failure))

    for number in (1, 2):
        queue.offer(Message("/a", number, {}, Handling(partial(note, number), lambda _: None)))

    def take() -> Message[Any]:
        return background.take(lambda: queue.receive(defer=True), lambda message: None)

    first = take()
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(take).result()
    assert (first.data, second.data, ended) == (1, 2, [])
    first.reject("user.update.error", "in time")
    assert ended == [(1, ("user.update.error", "in time"))]


def test_threads_that_begin_together_have_one_loop() -> None:
    before, barrier = sys.getswitchinterval(), Barrier(8)

    def begin(_: int) -> Background:
        barrier.wait()
        return module.background()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in range(10):
                module._started.cache_clear()
                assert len(set(pool.map(begin, range(8)))) == 1
    finally:
        sys.setswitchinterval(before)
