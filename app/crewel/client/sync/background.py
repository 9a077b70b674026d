"""The event loop behind all synchronous clients of a process, in a thread of its own.

The thread starts with the first client, and ends with the process. A forked child has no such thread: it gets a loop of its
own for its own clients, and those of its parent say that they cannot be used there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import cache
from operator import attrgetter
from types import TracebackType
from typing import Any, Generic, Never, Self, TypeVar, overload

from crewel.client.subscription import CALLER

_T = TypeVar("_T")
OriginT = TypeVar("OriginT", bound=AbstractAsyncContextManager[Any])


class Background:
    """One event loop and its thread."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="crewel-client-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wait_for(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Call the function in the loop, await what it returns, and return the result. An exception in this thread, such as
        KeyboardInterrupt, cancels it: it may come at any line here, so nothing is made in this thread that must be awaited.
        Raises what it raises, and RuntimeError in a listener that the loop itself calls, or after a fork."""
        self._check(is_waiting=True)
        future: Future[_T] = Future()
        tasks: list[asyncio.Task[None]] = []

        async def run() -> None:
            try:
                future.set_result(await function())
            except asyncio.CancelledError:
                future.cancel()
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(run())))
            return future.result()
        finally:
            if not future.done():
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])

    def take(self, following: Callable[[], Coroutine[Any, Any, _T]], put_back: Callable[[_T], object]) -> _T:
        """Wait for what comes next. What comes when this thread is interrupted, by Ctrl+C, is put back: the application has not
        seen it, and the next request would settle it."""
        taken: list[_T] = []
        thread = threading.current_thread()

        async def run() -> None:
            taken.append(await following())

        try:
            self.wait_for(lambda: _called_by(thread, run))
            return taken[0]
        except BaseException:
            self.call(lambda: [put_back(each) for each in taken])
            raise

    def leave(self, leaving: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run what ends a block that this thread leaves: an exception that it brings was raised in the loop of this thread."""
        thread = threading.current_thread()
        self.wait_for(lambda: _called_by(thread, leaving))

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function in the loop's thread and return its result. Raises what it raises, and RuntimeError after a fork."""
        if threading.current_thread() is self._thread:
            return function()
        self._check(is_waiting=False)
        future: Future[_T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                future.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return future.result()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the loop's thread soon, without a wait: for handlers of signals, which may interrupt a thread
        in the middle of a wait. Raises RuntimeError after a fork."""
        self._check(is_waiting=False)
        self._loop.call_soon_threadsafe(function)

    def _check(self, *, is_waiting: bool) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("this client was made before the process forked: make one in each process")
        if is_waiting and threading.current_thread() is self._thread:
            raise RuntimeError(
                "a listener or an extension of the client cannot wait for the client, because it runs in the client's event"
                " loop: let another thread do it"
            )


class Fact(Generic[_T]):
    """An attribute that `part` of an object has: what the event loop says of it, for all threads to read."""

    def __init__(self, part: str, name: str) -> None:
        self._read: Callable[[object], _T] = attrgetter(f"{part}.{name}")

    @overload
    def __get__(self, shown: None, kind: type) -> Self: ...

    @overload
    def __get__(self, shown: object, kind: type) -> _T: ...

    def __get__(self, shown: object | None, kind: type) -> Self | _T:
        return self if shown is None else self._read(shown)

    def __set__(self, shown: object, value: Never) -> None:
        raise AttributeError("this is for the client to set")


class Block(Generic[OriginT]):
    """What has a block: `with` does in the event loop what `async with` does with its origin."""

    def __init__(self, background: Background, origin: OriginT) -> None:
        self._background, self._origin = background, origin

    def __enter__(self) -> Self:
        self._background.wait_for(self._origin.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.leave(lambda: self._origin.__aexit__(kind, error, trace))


async def _called_by(thread: threading.Thread, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
    CALLER.set(thread)
    await function()


def background() -> Background:
    """Return the loop of this process; the first call starts it."""
    with _STARTING:  # two threads that begin at the same time have one loop
        return _started()


_STARTING = threading.Lock()
_started = cache(Background)


def _forget() -> None:
    _started.cache_clear()
    _STARTING.release()


os.register_at_fork(before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_forget)
