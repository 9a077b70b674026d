"""Handler generators: what answers a client and may have to wait, without a task where nothing has to be waited for.

A handler yields an awaitable that it needs the result of. Most run through without yielding, and then a request costs no task,
no future and no turn of the event loop. All other code that waits is a coroutine; both can wait for a `Promise`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from inspect import isawaitable
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
Steps = Generator[Awaitable[Any], Any, T]


class Promise(Generic[T]):
    """A result that comes later, for a function that is called with it at once, or for a coroutine that awaits it. It
    costs no task and no turn of the event loop."""

    __slots__ = ("_function", "result")

    def __init__(self) -> None:
        self._function: Callable[[T | Exception], object] | None = None
        self.result: T | Exception | None = None
        """The result, or the exception that took its place; None while neither is there."""

    def then(self, function: Callable[[T | Exception], object]) -> None:
        """Call this with the result, or with the exception that took its place; at once, if it is there."""
        if self.result is None:
            self._function = function
        else:
            function(self.result)

    def resolve(self, result: T | Exception) -> None:
        """The result is there. It is never None."""
        self.result = result
        function, self._function = self._function, None  # it mostly refers to this promise: a circle
        if function is not None:
            function(result)

    def __await__(self) -> Generator[Any, None, T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.then(partial(resolve, future))
        return (yield from future.__await__())


def resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Give the future its result, or the exception that the result is; one that is cancelled is left alone."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def result_of(awaited: Awaitable[T]) -> Steps[T]:
    """Wait for this, and return its result: `published = yield from result_of(broadcaster.store(...))`. A bare `yield` does the
    same where there is no result."""
    result: T = yield awaited
    return result


def wait(value: T | Awaitable[T]) -> Steps[T]:
    """The value, or the result of the awaitable that it is: `verdict = yield from wait(policy.can_publish(...))`."""
    return (yield from result_of(value)) if isawaitable(value) else value


def start(steps: Steps[T]) -> tuple[Awaitable[Any] | None, T | None]:
    """Run to the end, `(None, result)`, or to the first thing that must be waited for, `(awaitable, None)`."""
    try:
        return next(steps), None
    except StopIteration as end:
        return None, end.value


def resume(steps: Steps[T], result: Any) -> tuple[Awaitable[Any] | None, T | None]:
    """Continue with what was waited for, or with the exception that took its place, as `start` does."""
    try:
        return steps.throw(result) if isinstance(result, Exception) else steps.send(result), None
    except StopIteration as end:
        return None, end.value


async def finished(steps: Steps[T]) -> T:
    """Run to the end, waiting for whatever comes."""
    waiting, done = start(steps)
    return cast("T", done) if waiting is None else await complete(steps, waiting)


async def complete(steps: Steps[T], waiting: Awaitable[Any]) -> T:
    """Wait for this, then run to the end, waiting for whatever comes."""
    further: Awaitable[Any] | None = waiting
    done: T | None = None
    while further is not None:
        further, done = resume(steps, await outcome_of(further))
    return cast("T", done)


async def outcome_of(waiting: Awaitable[Any]) -> Any:
    """The result, or the exception that took its place: the steps that asked are the ones to tell."""
    try:
        return await waiting
    except Exception as error:  # noqa: BLE001 - it is handed on
        return error
