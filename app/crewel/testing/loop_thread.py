"""An event loop in a thread of its own, so that code without one can use a server or a client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

LIMIT_S: Final = 60.0
"""Seconds after which a call that has not returned is an error: a server under test hangs."""


class LoopThread:
    """Runs an event loop in a thread until `close`. `factory` makes the loop."""

    def __init__(
        self, factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop, name: str = "crewel"
    ) -> None:
        self.loop = factory()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_here(self) -> bool:
        """Whether the caller is in the thread of the loop, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T], limit: float = LIMIT_S) -> T:
        """Run the coroutine in the loop and return its result; raises what it raises, and TimeoutError after `limit` seconds.
        To be called from another thread."""
        if self.is_here:
            coroutine.close()
            raise RuntimeError("the loop's own thread cannot wait for it: await the coroutine instead")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(limit)
        except concurrent.futures.TimeoutError:
            if not future.done():
                future.cancel()
                raise TimeoutError(f"no result within {limit:g} s") from None
            raise

    async def wrap(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine in the loop of the thread, for a caller with another event loop, which is not blocked."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def close(self) -> None:
        """Cancel the tasks of the loop, and end it."""
        if self.loop.is_closed():
            return
        self.run(self._end_tasks())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LIMIT_S)
        self.loop.close()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()
