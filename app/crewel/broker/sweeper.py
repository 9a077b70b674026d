"""Lets all parts of a server forget what is unused and end what has expired, every `bayeux.sweep_ms`.

A sweep that fails is logged, and the next one comes all the same. After a stall of the loop it waits a little: sessions that
seem silent may have sent what has not been read yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from crewel.broker.runtime import Runtime
from crewel.event_loop import GRACE_S, has_stalled

log = logging.getLogger(__name__)


class Swept(Protocol):
    """A part of a server with something to forget."""

    def sweep(self) -> None:
        """Forget what is unused, and end what has expired."""


@dataclass(eq=False)
class Sweeper:
    """Sweeps one server: its parts in this order."""

    _runtime: Runtime
    _parts: Sequence[Swept]

    async def run_forever(self) -> None:
        """Sweep until cancelled."""
        while True:
            due = self._runtime.loop.time() + self._runtime.settings.bayeux.sweep_ms / 1000
            await asyncio.sleep(due - self._runtime.loop.time())
            if has_stalled(due, self._runtime.loop.time()):
                await asyncio.sleep(GRACE_S)
            try:
                self.sweep()
            except Exception:
                log.exception("a sweep failed; the next one follows as scheduled")

    def sweep(self) -> None:
        """Sweep each part."""
        for part in self._parts:
            part.sweep()
