"""Long-lived tasks: each is started here, and none ends unnoticed. A task that fails is logged, counted and started again.

The first pause before a restart is short and doubles up to a bound; a task that has run longer than its last pause begins again
with the short one. While a task is down, `trouble` names it.

When the server ends, it waits for answers, commits and its store: each step for a time of its own, all of them together until
one deadline (`Shutdown`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0

SHUTDOWN_S = 40.0
"""Seconds that the end of a server may take, its own store included: less than the 45 after which systemd and Kubernetes kill
it."""

Body = Callable[[], Coroutine[Any, Any, None]]


class Shutdown:
    """The one deadline of all that a server waits for when it ends."""

    def __init__(self) -> None:
        self._ends: float | None = None

    def begin(self) -> None:
        """The server ends from now on. A repeated call changes nothing."""
        if self._ends is None:
            self._ends = monotonic() + SHUTDOWN_S

    def left(self, most_s: float) -> float:
        """How many seconds one step may take: these at most, and no more than all have left."""
        return most_s if self._ends is None else max(0.0, min(most_s, self._ends - monotonic()))

    async def within(self, most_s: float, step: Coroutine[Any, Any, None], name: str) -> None:
        """Await this step of the end, as long as `left` allows. One that takes longer is cancelled, and logged by its name."""
        limit = self.left(most_s)
        try:
            async with asyncio.timeout(limit):
                await step
        except TimeoutError:
            log.warning("shutdown: %s took longer than %.1f s and was abandoned", name, limit)


class Supervisor:
    """The long-lived tasks of one server."""

    def __init__(self, restarts: Counter[str] | None = None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Without a loop, `start` is called where one runs."""
        self._loop = loop
        self.restarts: Counter[str] = Counter() if restarts is None else restarts
        """How often each task has failed, by its name."""
        self._down: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.shutdown = Shutdown()

    @property
    def trouble(self) -> str | None:
        """Which task is down, and why; None while all run."""
        return next((f"{name} failed: {error}" for name, error in self._down.items()), None)

    def start(self, name: str, body: Body) -> asyncio.Task[None]:
        """Run the body in a task, and again whenever it raises, until it returns or the task is cancelled. The caller owns the
        task, and its result is always None."""
        loop = self._loop or asyncio.get_running_loop()
        self.restarts.setdefault(name, 0)  # the metrics show an increase of what they have shown before
        task = loop.create_task(self._run(name, body), name=f"crewel {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End all tasks that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str, body: Body) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_S
        recovery: asyncio.TimerHandle | None = None
        try:
            while True:
                started = loop.time()
                try:
                    return await body()
                except Exception as error:  # noqa: BLE001 - a task of which nothing is known here must not end
                    if loop.time() - started > pause:
                        pause = FIRST_PAUSE_S
                    self._failed(name, error, pause)
                if recovery is not None:
                    recovery.cancel()
                await asyncio.sleep(pause)
                recovery = loop.call_later(pause, self._down.pop, name, None)
                pause = min(pause * 2, LONGEST_PAUSE_S)
        finally:
            if recovery is not None:
                recovery.cancel()
            self._down.pop(name, None)

    def _failed(self, name: str, error: Exception, pause: float) -> None:
        self.restarts[name] += 1
        self._down[name] = str(error) or type(error).__name__
        # An error of the system explains itself; any other is a mistake in the code.
        trace = None if isinstance(error, OSError) else error
        log.error("the task %r failed and starts again in %.1f s: %s", name, pause, error, exc_info=trace)
