"""An interrupt, such as Ctrl+C, comes at any line of the thread that waits for the loop of the synchronous clients."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from crewel.client.client_message import Message
from crewel.client.sync import background as module
from crewel.client.sync.background import Background

INTERRUPTED: Final = (module.__file__, str(Path(asyncio.__file__).parent))
"""The code whose lines are interrupted. Others hold locks for the wait itself."""


class Taken(Message):
    """A message that the application asked for."""

    def __init__(self) -> None:
        self.is_deferred = False

    def defer(self) -> None:
        self.is_deferred = True


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


@pytest.mark.parametrize("pauses", [0, 3], ids=["at once", "later"])
def test_an_interrupted_wait_takes_no_message_and_leaves_nothing_behind(pauses: int) -> None:
    background, handed = Background(), list[Taken]()

    async def following() -> Taken:
        for _ in range(pauses):
            await asyncio.sleep(0)
        handed.append(Taken())
        return handed[-1]

    async def others() -> None:
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for line in count(1):
            handed.clear()
            try:
                with interrupt_before(line):
                    taken = background.take(following)
            except KeyboardInterrupt:
                background.wait_for(others)
                assert all(each.is_deferred for each in handed), f"line {line}"
                gc.collect()
                assert [str(each.message) for each in warned] == [], f"line {line}"
            else:
                break
    assert (handed, taken.is_deferred) == ([taken], False)
    assert line > 20, "each line of the wait was interrupted once"
