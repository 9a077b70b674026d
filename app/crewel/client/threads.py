"""Functions of the application that the event loop calls in threads.

Whatever such a function raises must not reach the loop as it is. SystemExit and KeyboardInterrupt would end the loop of
asyncio, which all synchronous clients of the process share, and a future does not take StopIteration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

from crewel.client.errors import said


class ProgramExit(BaseException):
    """A function in a thread has raised what ends a program, such as SystemExit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(said(error))
        self.error = error


class _Outcome(NamedTuple):
    value: Any
    error: BaseException | None


async def in_thread(pool: ThreadPoolExecutor | None, function: Callable[..., Any], *arguments: object) -> Any:
    """Call the function in a thread of the pool, or of the loop's own; what it returns. Raises its exceptions, a StopIteration
    as RuntimeError, and ProgramExit. Once the pool takes no more calls, it waits until it is cancelled."""
    run = copy_context().run  # the thread continues the trace of this task
    call = partial(_outcome, function, *arguments)
    try:
        called: asyncio.Future[_Outcome] = asyncio.get_running_loop().run_in_executor(pool, run, call)
    except RuntimeError:  # the process ends, or the client is closed: the message stays open
        called = asyncio.Future()
    returned, error = await called
    if error is None:
        return returned
    if isinstance(error, Exception | asyncio.CancelledError):
        raise error
    raise ProgramExit(error)


def _outcome(function: Callable[..., Any], *arguments: object) -> _Outcome:
    try:
        return _Outcome(function(*arguments), None)
    except BaseException as error:  # noqa: BLE001 - raised where it was asked for
        return _Outcome(None, error)
