"""Publishers wait when their messages make work faster than it is done: dead letters that the store does not have yet, and
messages that are still being handed to their receivers.

Only publishes on the channels of that work wait, each for a few seconds at most; all others continue as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from crewel.broker.durability.access import StoreAccess
from crewel.broker.runtime import Runtime
from crewel.broker.session_queue.outbound import FanOuts
from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST
from crewel.errors import StoreError, StoreUnavailable

_MOST_FAN_OUTS: Final = 250
"""Messages that are being handed out, of all channels; a publisher with as many publishes under way waits for the oldest."""
_LONGEST_S: Final = 5.0
"""How long a publish waits: less than clients wait for their answer."""


class BackPressure:
    """Looked at with each commit, so that a publish looks at one attribute while there is none."""

    def __init__(self, runtime: Runtime, access: StoreAccess, fan_outs: FanOuts) -> None:
        self._loop = runtime.loop
        self._metrics = runtime.metrics
        self._access = access
        self._fan_outs = fan_outs
        self.is_on = False
        """Whether publishes on some channels have to wait."""
        self.max_dead_letters = 10 * MAX_DEAD_LETTER_COST
        """Cost of the pending dead letters above which publishers wait: the store writes so many in a quarter of a second."""
        self.refuses_from = 25 * self.max_dead_letters
        """Cost above which a publish that has waited is refused: memory holds no more of them, and what was begun before."""
        self._delayed: dict[str, list[asyncio.Future[None]]] = {}

    def update(self) -> None:
        """Look how much is pending, and let publishes continue."""
        size = self._access.node.fan_out.dead_letters.size
        self.is_on = size > self.max_dead_letters or self._fan_outs.count > _MOST_FAN_OUTS
        for channel in [each for each in self._delayed if not self.delays(each)]:
            for delayed in self._delayed.pop(channel):
                if not delayed.done():
                    delayed.set_result(None)

    def delays(self, channel: str) -> bool:
        """Whether a publish on this channel has to wait."""
        letters = self._access.node.fan_out.dead_letters
        if letters.size > self.max_dead_letters and channel in letters.by_channel:
            return True
        return self._fan_outs.count > _MOST_FAN_OUTS and channel in self._fan_outs.pending

    def relief(self, channels: Iterable[object]) -> asyncio.Future[None] | None:
        """Done when a request that publishes on these channels may continue; None if it need not wait. Raises StoreUnavailable
        if far too much is still pending by then."""
        channel = next((each for each in channels if isinstance(each, str) and self.delays(each)), None)
        if channel is None:
            return None
        self._metrics.publishes_delayed += 1
        delayed: asyncio.Future[None] = self._loop.create_future()
        self._delayed.setdefault(channel, []).append(delayed)
        self._loop.call_later(_LONGEST_S, self._end, channel, delayed)
        return delayed

    def _end(self, channel: str, delayed: asyncio.Future[None]) -> None:
        if delayed.done():
            return
        size = self._access.node.fan_out.dead_letters.size
        if size > self.refuses_from and self.delays(channel):
            delayed.set_exception(_too_many(size))
        else:
            delayed.set_result(None)


def _too_many(size: int) -> StoreError:
    return StoreUnavailable(f"{size} dead letters wait for the store, some of them of this channel")
