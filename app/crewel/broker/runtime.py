"""What every part of a server needs: settings, the event loop, metrics, tasks, the store, ids, and services' functions."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from crewel.broker.cluster import Cluster
from crewel.broker.ids import Clock, Ids
from crewel.broker.service_registry import ServiceRegistry
from crewel.broker.writing.pending_publish import PendingPublish
from crewel.broker.writing.store_access import StoreAccess
from crewel.broker.writing.stored_shares import StoredShares
from crewel.broker.writing.write_queue import Log
from crewel.fair_turns import FairTurns
from crewel.metrics import Metrics
from crewel.settings import Settings
from crewel.supervision import Supervisor

log = logging.getLogger(__name__)


class Life:
    """How one server stands in its life, and who is called when that changes."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.concerns: dict[str, Callable[[], str | None]] = {"task": lambda: supervisor.trouble}
        """What keeps the server from being ready, by what it is about: why it is not, None while all is well."""
        self.is_draining = False
        self.on_store_lost: list[Callable[[], None]] = []
        """Called when another server has taken the store: from then on nothing is served here."""
        self.on_drain: list[Callable[[], None]] = []
        """Called when the server is about to end, and again as long as it ends."""
        self.on_close: list[Callable[[], None]] = []
        """Called when this broker has ended."""


class Runtime:
    """One server's. It belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        appender: Log[PendingPublish],
        cluster: Cluster | None = None,
    ) -> None:
        self.settings = settings
        self.loop = loop
        self.metrics = Metrics()
        self.turns = FairTurns(loop)
        """Shared by the clients: whatever of theirs takes long leaves the rest to a later turn."""
        self.supervisor = Supervisor(self.metrics.task_restarts, loop)
        """Runs what has to run as long as the server."""
        self.life = Life(self.supervisor)
        self.failing_workers: dict[str, int] = {}
        """Number of each other worker that its parent cannot start -> how often in a row it has tried."""
        self.workers = 1
        """How many processes serve the address of this one, if all run."""
        self.metrics.gauge("workers_failing", lambda: len(self.failing_workers))
        self.metrics.gauge("workers", lambda: self.workers)
        self.access = StoreAccess(settings, loop, appender)
        """The store, or that there is none."""
        self.stored_shares = StoredShares(self.access, settings.limits, self.metrics, loop)
        """What each account has in the store, while room in it is scarce."""
        self.cluster = cluster or Cluster()
        """The other nodes that share the store."""
        self.clock = Clock()
        self.ids = Ids(secrets.token_hex(4), self.clock)
        self.services = ServiceRegistry(self.spawn)
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this in a task that the server owns: its failure is logged, and it ends with the server at the latest."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task failed", exc_info=error)

    async def close(self) -> None:
        """End the tasks that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.supervisor.close()
