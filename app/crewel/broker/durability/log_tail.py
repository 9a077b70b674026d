"""The tail of the log: what other nodes append reaches this one.

It waits at the end of the log, and what has come is taken in the queue of writes, in its order: so an entry is taken once, and
strictly in the order of the log, from whichever node it comes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from crewel.broker.durability.access import StoreAccess
from crewel.errors import StoreError
from crewel.storage import log as stored_log

_WAIT_MS: Final = 1000
_PAUSE_S: Final = 0.2  # after a read that has failed, and while there is nothing to wait for


@dataclass(eq=False)
class LogTail:
    """Waits while `is_wanted` is set: a server that has its store to itself knows all that is appended."""

    _access: StoreAccess
    is_wanted: asyncio.Event = field(default_factory=asyncio.Event)

    async def run_forever(self) -> None:
        """Follow the log until cancelled."""
        while True:
            await self.is_wanted.wait()
            access = self._access
            if access.trouble is not None:
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                newest = await stored_log.wait_for_entry(access.store, access.node.cursor, _WAIT_MS)
            except StoreError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if newest is not None and newest > access.node.cursor:
                await access.writing.look()
                if newest > access.node.cursor:  # it could not be read
                    await asyncio.sleep(_PAUSE_S)
