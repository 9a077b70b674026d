"""TCP lines that fail: a balancer without stickiness, and connections that fall silent, in one direction too, or are slow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from tests.cutting_proxy import CuttingProxy, Way

_SENT_AGAIN_S = 0.2
"""What a lost packet costs: TCP sends it again after this time at the earliest."""


class Balancer(CuttingProxy):
    """Takes each connection to one of several servers; to another one if that does not listen."""

    def __init__(self, ports: Callable[[], Iterable[int]], rng: random.Random | None = None) -> None:
        """`ports` gives those that may be tried, which are taken at random; in turn without random numbers."""
        super().__init__(None)
        self._ports = ports
        self._rng = rng

    def targets(self) -> Sequence[int]:
        """The ports to try, in this order."""
        ports = list(self._ports())
        if self._rng is not None:
            self._rng.shuffle(ports)
            return ports
        first = self.accepted % max(len(ports), 1)
        return ports[first:] + ports[:first]


class Line(CuttingProxy):
    """A line to one server. What is silenced is kept, and arrives when the line is healed, as after a partition."""

    def __init__(self, port: int, rng: random.Random) -> None:
        super().__init__(port)
        self._rng = rng
        self._silent: frozenset[Way] = frozenset()
        self._heard = asyncio.Event()
        self._delay_s = self._loss = 0.0

    def silence(self, *ways: Way) -> None:
        """Let nothing pass in these directions any more; without any, in both."""
        self._silent = frozenset(ways or Way)
        self._heard.clear()

    def degrade(self, delay_s: float, loss: float) -> None:
        """Let each burst take so long, and be lost, and sent again, with this probability."""
        self._delay_s, self._loss = delay_s, loss

    def heal(self) -> None:
        """Let all pass at once again."""
        self._silent = frozenset()
        self._delay_s = self._loss = 0.0
        self._heard.set()

    async def passes(self, way: Way) -> None:
        """Wait until a burst may pass."""
        while way in self._silent:
            await self._heard.wait()
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
            while self._rng.random() < self._loss:
                await asyncio.sleep(_SENT_AGAIN_S)
