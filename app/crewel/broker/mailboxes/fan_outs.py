"""Long work for the receivers of a channel, a few milliseconds a turn of the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from crewel.event_loop import TURN_S

log = logging.getLogger(__name__)

_MOST_WAITING: Final = 1000
"""Pieces of work beyond which the publisher that adds one does a turn's worth first. Publishers that can wait do so before."""


class FanOuts:
    """Long work for the receivers of a channel, a few milliseconds a turn of the event loop. A piece of work is an iterator
    that does a small step each time. Work of one channel is done in its order, so that no receiver gets a later message of a
    channel before an earlier one; channels take turns. `on_many` is called when `are_many` changes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_many: Callable[[], object] | None = None) -> None:
        self._loop = loop
        self._on_many = on_many
        self.at_once = 256
        """Receivers that are served without looking at the clock: about two milliseconds."""
        self.looked_up = 512
        """Receivers that are looked up at once: a few milliseconds."""
        self.step = 32
        """Receivers between two looks at the clock."""
        self.slice_s = TURN_S / 2
        """How long one turn is, nearly."""
        self.pending: dict[str, deque[Iterator[None]]] = {}
        """By channel, in the order of their turns."""
        self.count = 0
        """How many pieces wait."""
        self.many = 250
        """How many pieces of all channels may wait before publishers do."""
        self.are_many = False
        """Whether there are more; it ends when half as many wait."""

    def add(self, channel: str, work: Iterator[None]) -> None:
        """Do this when all that was started for the channel is done. The first step comes with a later turn."""
        if not self.pending:
            self._loop.call_soon(self._go_on)
        self.pending.setdefault(channel, deque()).append(work)
        self.count += 1
        if self.count > self.many and not self.are_many:
            self._change(are_many=True)
        if self.count > _MOST_WAITING:
            self._work()

    def keeps_busy(self, channel: str) -> bool:
        """Whether there are many, and more of this channel than its share: what it adds would come late."""
        return self.are_many and len(self.pending.get(channel, ())) > max(1, self.many // len(self.pending))

    def _change(self, *, are_many: bool) -> None:
        self.are_many = are_many
        if self._on_many is not None:
            self._on_many()

    async def finished(self, channel: str) -> None:
        """Wait until all that was started for this channel by now is done: what follows must come after it. Messages that wait
        for filters are here under names that are no channels."""
        for name in [each for each in self.pending if each == channel or not each.startswith("/")]:
            done = self._loop.create_future()
            self.add(name, _marker(done))
            await done

    def _go_on(self) -> None:
        self._work()
        if self.pending:
            first = next(iter(self.pending))
            self.pending[first] = self.pending.pop(first)  # another channel is next
            self._loop.call_soon(self._go_on)

    def _work(self) -> None:
        """Work for one turn."""
        end = self._loop.time() + self.slice_s
        while self.pending:
            channel = next(iter(self.pending))
            if not self._step(self.pending[channel][0]):
                self._done(channel)
            if self._loop.time() >= end:
                break

    def _done(self, channel: str) -> None:
        works = self.pending[channel]
        works.popleft()
        self.count -= 1
        if not works:
            del self.pending[channel]
        if self.are_many and self.count <= self.many // 2:
            self._change(are_many=False)

    def _step(self, work: Iterator[None]) -> bool:
        """Do one step; False if that was all."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception:
            log.exception("a message could not be handed to all of its receivers")
            return False
        return True


def _marker(done: asyncio.Future[None]) -> Iterator[None]:
    """No work, but a sign that what was started before is done."""
    if not done.done():
        done.set_result(None)
    yield
