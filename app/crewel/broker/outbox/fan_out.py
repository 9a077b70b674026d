"""Long work for the receivers of a channel, a few milliseconds a turn of the event loop, so that everybody else has a turn.

What is begun for a channel is done in the order in which it was begun: no receiver gets a later message of a channel before
an earlier one. Channels take turns with each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from crewel.event_loop import TURN_S

if TYPE_CHECKING:
    from crewel.broker.outbox.outbound import Outbound
    from crewel.broker.session import Session
    from crewel.delivery.entry import Entry

log = logging.getLogger(__name__)

_MOST_WAITING: Final = 1000
"""Pieces of work beyond which whoever adds one does a turn's worth first. Publishers that can wait do so long before."""


class FanOuts:
    """The work that waits. A piece of work is an iterator that does a small step each time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.at_once = 256
        """Receivers that are served without looking at the clock: about two milliseconds."""
        self.step = 32
        """Receivers between two looks at the clock."""
        self.slice_s = TURN_S
        """How long one turn is, nearly."""
        self.waiting: dict[str, deque[Iterator[None]]] = {}
        """By channel, in the order of their turns."""
        self.count = 0
        """How many pieces wait."""

    def add(self, channel: str, work: Iterator[None]) -> None:
        """Do this when all that was begun for the channel is done. The first step comes with a later turn."""
        if not self.waiting:
            self._loop.call_soon(self._go_on)
        self.waiting.setdefault(channel, deque()).append(work)
        self.count += 1
        if self.count > _MOST_WAITING:
            self._work()

    async def finished(self, channel: str) -> None:
        """Wait until all that was begun for this channel by now is done: what follows must come after it."""
        if channel in self.waiting:
            done = self._loop.create_future()
            self.add(channel, _marker(done))
            await done

    def _go_on(self) -> None:
        self._work()
        if self.waiting:
            first = next(iter(self.waiting))
            self.waiting[first] = self.waiting.pop(first)  # another channel is next
            self._loop.call_soon(self._go_on)

    def _work(self) -> None:
        """Work for one turn."""
        end = self._loop.time() + self.slice_s
        while self.waiting:
            channel = next(iter(self.waiting))
            if not self._step(self.waiting[channel][0]):
                self._done(channel)
            if self._loop.time() >= end:
                break

    def _done(self, channel: str) -> None:
        works = self.waiting[channel]
        works.popleft()
        self.count -= 1
        if not works:
            del self.waiting[channel]

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
    """No work, but a sign that what was begun before is done."""
    if not done.done():
        done.set_result(None)
    yield


def handed_out(
    outbound: Outbound, entry: Entry, sessions: Sequence[Session], publisher: Session | None
) -> Iterator[None]:
    """Hand the entry to these sessions but the publisher's, a few at a time. Those that have ended meanwhile are left out."""
    step = outbound.fan_outs.step
    for at in range(0, len(sessions), step):
        outbound.fan_out(entry, [each for each in sessions[at : at + step] if each.is_live], publisher, in_turn=True)
        yield
