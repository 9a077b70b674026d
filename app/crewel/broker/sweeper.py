"""Sweeps the broker every `bayeux.sweep_ms`; a sweep that fails is logged and the next one comes all the same. After a stall of
the loop it waits a little: sessions that seem silent may have sent what has not been read yet."""

from __future__ import annotations

import asyncio
import logging

from crewel.broker.broker import Broker
from crewel.turns import GRACE_S, has_stalled

log = logging.getLogger(__name__)


async def sweep_forever(broker: Broker) -> None:
    """Sweep until cancelled."""
    while True:
        due = broker.loop.time() + broker.settings.bayeux.sweep_ms / 1000
        await asyncio.sleep(due - broker.loop.time())
        if has_stalled(due, broker.loop.time()):
            await asyncio.sleep(GRACE_S)
        try:
            broker.sweep()
        except Exception:
            log.exception("a sweep failed; the next one comes in time")
