"""Functions of the application that the event loop calls in threads.

Whatever such a function raises must not reach the loop as it is: asyncio lets SystemExit and KeyboardInterrupt end the loop,
which all clients of the process share, and a future does not take StopIteration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


class ProgramExit(BaseException):
    """A function in a thread has raised what ends a program, such as SystemExit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


class _Outcome(NamedTuple):
    value: object
    error: BaseException | None


async def in_thread(pool: ThreadPoolExecutor, function: Callable[[_T], object], value: _T) -> object:
    """Call the function with the value in a thread of the pool; what it returns. Raises its exceptions, a StopIteration as
    RuntimeError, and ProgramExit. Once the pool takes no more calls, it waits until it is cancelled."""
    try:
        run, call = (
            copy_context().run,
            partial(_outcome, function, value),
        )  # the thread continues the trace of this task
        called: asyncio.Future[_Outcome] = asyncio.get_running_loop().run_in_executor(pool, run, call)
    except RuntimeError:  # the process ends, or the client is closed: the message stays open
        called = asyncio.Future()
    returned, error = await called
    if error is None:
        return returned
    if isinstance(error, Exception | asyncio.CancelledError):
        raise error
    raise ProgramExit(error)


def _outcome(function: Callable[[_T], object], value: _T) -> _Outcome:
    try:
        return _Outcome(function(value), None)
    except BaseException as error:  # noqa: BLE001 - raised where it was asked for
        return _Outcome(None, error)
