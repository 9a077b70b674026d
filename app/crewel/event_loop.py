"""Long work in turns, so that other work runs in between; and how a timer notices that the loop was kept for longer.

All sessions wait while the loop is kept, so long work is cut into turns. If the loop stands still all the same, timers fire
late, and before what came meanwhile has been read from the sockets. A late timer therefore proves nothing: what it waits for
may be there already, and gets a little more time.
"""

from __future__ import annotations

import asyncio
import gc
from bisect import bisect
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from random import sample
from time import perf_counter
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from crewel.bayeux.codec import encode

T = TypeVar("T")

TURN_S: Final = 0.005
"""Seconds, by `perf_counter`, after which work that is not done leaves the rest for another turn of the loop."""
GRACE_S: Final = 0.25
"""Seconds that what was waited for still has after a stall: time enough to read it from a socket."""
_STALL_S: Final = 0.25
_WAITING: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]]] = WeakKeyDictionary()
"""Pieces of long work that wait for their turn."""
_AT_ONCE: Final = 500
"""Items of a long list that one step sorts or encodes: less than a millisecond, unless each is long."""


def has_stalled(due: float, now: float) -> bool:
    """Whether a timer that was due then (loop time, seconds) and fires now is so late that the loop must have stood still."""
    return now - due > _STALL_S


async def woken(event: asyncio.Event, seconds: float) -> None:
    """Wait until this event is set, for so many seconds at most, and clear it. Nothing else may wait for it. `asyncio.timeout`
    cancels the task, which costs twenty times as much: too much for what each part does every second or more often."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
    event.clear()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what the work returns. If the event is set before that, or was already, the work is cancelled; None is returned
    when it has ended."""
    doing, waiting = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait((doing, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        doing.cancel()
        waiting.cancel()
        await asyncio.wait((doing, waiting))
    return None if doing.cancelled() else doing.result()


class Turns:
    """The turns of one piece of long work. Call `rest` after each short step. Of many pieces, one continues in each turn of the
    loop, that which has waited longest: of 20 exports, each would make the turn longer."""

    def __init__(self, seconds: float | None = None, *, is_urgent: bool = False) -> None:
        """`seconds`: how long a turn is, nearly. Half of `TURN_S` by default, for one piece of work may end and another begin
        within the same turn of the loop. `is_urgent`: deliveries wait for this work, so it waits for no other piece."""
        self._is_urgent = is_urgent
        self._seconds = TURN_S / 2 if seconds is None else seconds
        self.until = perf_counter() + self._seconds
        """When this turn has been long enough."""

    def is_over(self) -> bool:
        """Whether this turn has been long enough."""
        return perf_counter() >= self.until

    async def rest(self) -> None:
        """Let others work, if this turn has been long enough."""
        if self.is_over():
            await self.end()

    async def end(self) -> None:
        """Let others work, however short this turn has been: what comes next is long."""
        await (asyncio.sleep(0) if self._is_urgent else _turn())
        self.until = perf_counter() + self._seconds


async def _turn() -> None:
    """Return in a later turn of the loop, and in no turn in which another call returns."""
    loop = asyncio.get_running_loop()
    waiting = _WAITING.setdefault(loop, deque())
    waiting.append(loop.create_future())
    if len(waiting) == 1:
        loop.call_soon(_wake, loop, waiting)
    await waiting[-1]


def _wake(loop: asyncio.AbstractEventLoop, waiting: deque[asyncio.Future[None]]) -> None:
    first = waiting.popleft()
    if not first.done():
        first.set_result(None)
    if waiting:
        loop.call_soon(_wake, loop, waiting)


def do_slice(steps: Iterator[object], seconds: float | None = None) -> bool:
    """Do the steps of a piece of work for so many seconds, nearly; `TURN_S` by default. Returns whether that was all; else it
    continues with them in another turn."""
    until = perf_counter() + (TURN_S if seconds is None else seconds)
    for _ in steps:
        if perf_counter() >= until:
            return False
    return True


class Rounds:
    """A piece of work that is done again and again. What does not fit into one turn of the loop is done in the next ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop, steps: Callable[[], Iterator[object]]) -> None:
        """`steps`: those of one round."""
        self._loop, self._steps = loop, steps
        self._is_under_way = False

    def begin(self) -> None:
        """Begin a round, unless one is under way: two at once would do the same twice, and a turn would take twice as long."""
        if not self._is_under_way:
            self._go_on(self._steps())

    def _go_on(self, steps: Iterator[object]) -> None:
        self._is_under_way = False  # if a step fails
        if not do_slice(steps):
            self._is_under_way = True
            self._loop.call_soon(self._go_on, steps)


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep the garbage collector off until the block ends. The block makes very many objects, none of them in a cycle, and
    drops them itself. The collector would examine all of them, and what they refer to, in one turn: 30 ms for a list of
    100,000 sessions. If two such blocks overlap, the collector is on again when the first of them ends."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def in_turns(items: Iterable[T], *, is_urgent: bool = False) -> AsyncIterator[T]:
    """The items one by one, with a turn for others whenever this one has been long enough, and before the first of many. What
    there is to be had is looked up before the first, so the items may come and go meanwhile. `is_urgent`: as for `Turns`."""
    turns, found = Turns(is_urgent=is_urgent), list(items)
    if len(found) > _AT_ONCE:
        await turns.end()
    for item in found:
        yield item
        if perf_counter() >= turns.until:  # as `rest`, without a coroutine for each item
            await turns.end()


async def sorted_in_turns(items: Iterable[str]) -> list[str]:
    """The texts in order. There may be others meanwhile."""
    turns, found = Turns(), list(items)
    # Spread between some of them, they are sorted portion by portion: that costs half of what merging sorted portions does.
    bounds = sorted(sample(found, len(found) // _AT_ONCE))
    portions: list[list[str]] = [[] for _ in range(len(bounds) + 1)]
    for start in range(0, len(found), _AT_ONCE):
        for item in found[start : start + _AT_ONCE]:
            portions[bisect(bounds, item)].append(item)
        await turns.rest()
    ordered: list[str] = []
    for portion in portions:
        ordered += sorted(portion)
        await turns.rest()
    return ordered


async def encoded_in_turns(value: Any, turns: Turns | None = None) -> bytes:
    """The value as JSON, like `encode`: a portion of its objects and of its long lists in each turn."""
    if turns is None:
        turns = Turns()
        await turns.end()
    else:
        await turns.rest()
    if type(value) is dict:
        fields = [encode(name) + b":" + await encoded_in_turns(each, turns) for name, each in value.items()]
        return b"{" + b",".join(fields) + b"}"
    if type(value) is list and len(value) > _AT_ONCE:
        portions = []
        for start in range(0, len(value), _AT_ONCE):
            portions.append(encode(value[start : start + _AT_ONCE])[1:-1])
            await turns.rest()
        return b"[" + b",".join(portions) + b"]"
    return encode(value)
