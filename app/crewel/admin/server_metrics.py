"""What `/metrics` says of the server as a whole, of its store and of receivers in trouble: for alerts about the worst case.

What is not known is left out, for 0 would be wrong. Such are the memory of a store that does not answer, the disk of a store of
others, a backup that was never made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, Final

from crewel.admin.receiver_condition import TROUBLES
from crewel.admin.server_view import ServerView
from crewel.errors import StoreError
from crewel.storage.backup_record import last_backup
from crewel.storage.disk import look_at_disk
from crewel.transports.tls import Certificate

_ASKED: Final = (
    "store_memory_bytes",
    "store_max_memory_bytes",
    "store_file_bytes",
    "disk_free_bytes",
    "disk_bytes",
    "last_backup_timestamp_seconds",
)
"""What is looked at when the figures are asked for."""
_LIMIT_S: Final = 2.0
Counts = Mapping[str, int]
_NONE: Final = dict.fromkeys(TROUBLES, 0)
"""No session in trouble."""
_NO_QUEUE: Final = dict.fromkeys(("full", "filling", "slow", "recovering", "nearly-full"), 0)
"""No subject and no group in trouble."""


class ServerMetrics:
    """Those of one server."""

    def __init__(self, view: ServerView, count: Callable[[], Awaitable[tuple[Counts, Counts]]]) -> None:
        """`count` says how many sessions are in trouble, by the kind of each cause, and how many queues of subjects and
        groups."""
        self._life, self._access, self._count = view.life, view.access, count
        self._known: dict[str, float] = {}
        self.certificate: Certificate | None = None
        """That of the server, if it has one."""
        self._metrics = metrics = view.metrics
        metrics.receivers_in_trouble, metrics.queues_in_trouble = _NONE, _NO_QUEUE
        metrics.gauge("ready", lambda: float(self.is_ready))
        metrics.gauge("store_up", self._store_up)
        metrics.gauge("certificate_expiry_timestamp_seconds", self._certificate_expiry)
        for at, name in enumerate(("store_busy_cores", "store_disk_wait_ratio", "store_steps_per_second")):
            metrics.gauge(name, partial(self._load_of, at))
        for name in _ASKED:
            metrics.gauge(name, partial(self._known_of, name))
        metrics.on_measure.append(self.look)

    def _known_of(self, name: str) -> float:
        return self._known.get(name, nan)

    def _load_of(self, at: int) -> float:
        load = self._access.store.load if self._access.has_store else None
        return nan if load is None else load[at]

    @property
    def is_ready(self) -> bool:
        """Whether the server takes all traffic, as `/health/ready` answers."""
        is_leaving = self._life.is_draining or self._access.phase.is_superseded
        return not is_leaving and all(ask() is None for ask in self._life.concerns.values())

    def _certificate_expiry(self) -> float:
        return nan if self.certificate is None else self.certificate.expires_at

    def _store_up(self) -> float:
        return float(self._access.trouble is None) if self._access.has_store else nan

    async def look(self) -> None:
        """Look at what has to be asked for, for a moment: a scrape must not wait for a store or a disk that hangs."""
        self._known = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(_LIMIT_S):
                sessions, queues = await self._count()
                self._metrics.receivers_in_trouble = {**_NONE, **sessions}
                self._metrics.queues_in_trouble = {**_NO_QUEUE, **queues}
                self._known = await self._of_disk()
                self._known |= await self._of_store()

    async def _of_disk(self) -> dict[str, float]:
        home: Path | None = self._access.store.home if self._access.has_store else None
        disk = None if home is None else await asyncio.to_thread(look_at_disk, home)
        if disk is None:
            return {}
        return {"store_file_bytes": disk.file, "disk_free_bytes": disk.free, "disk_bytes": disk.used + disk.free}

    async def _of_store(self) -> dict[str, float]:
        if not self._access.has_store or self._access.trouble is not None:
            return {}
        store = self._access.store
        try:
            info: dict[str, Any] = await store.reader.info("memory")
            backup = await last_backup(store.reader, store.keys)
        except StoreError:
            return {}
        used = int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict", 0))
        found: dict[str, float] = {"store_memory_bytes": used, "store_max_memory_bytes": int(info.get("maxmemory", 0))}
        return found if backup is None else found | {"last_backup_timestamp_seconds": backup}
