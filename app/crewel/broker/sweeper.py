"""Sweeps the broker every `bayeux.sweep_ms`; a sweep that fails is logged and the next one comes all the same."""

from __future__ import annotations

import asyncio
import logging

from crewel.broker.broker import Broker

__all__ = ["sweep_forever"]

log = logging.getLogger(__name__)


async def sweep_forever(broker: Broker) -> None:
    """Sweep until cancelled."""
    while True:
        await asyncio.sleep(broker.settings.bayeux.sweep_ms / 1000)
        try:
            broker.sweep()
        except Exception:
            log.exception("a sweep failed; the next one comes in time")
