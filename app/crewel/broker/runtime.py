"""What every part of a server needs of the process that it runs in: settings, the event loop, metrics, and its tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from crewel.fair_turns import FairTurns
from crewel.metrics import Metrics
from crewel.settings import Settings
from crewel.supervision import Supervisor

log = logging.getLogger(__name__)


class Runtime:
    """One server's. It belongs to one event loop."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.loop = loop
        self.metrics = Metrics()
        self.turns = FairTurns(loop)
        """Shared by the clients: whatever of theirs takes long leaves the rest to a later turn."""
        self.supervisor = Supervisor(self.metrics.task_restarts, loop)
        """Runs what has to run as long as the server."""
        self.failing_workers: dict[str, int] = {}
        """Number of each other worker that its parent cannot start -> how often in a row it has tried."""
        self.metrics.gauge("workers_failing", lambda: len(self.failing_workers))
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
