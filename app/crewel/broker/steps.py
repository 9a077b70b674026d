"""Handlers that can wait, without a task where nothing has to be waited for.

A handler is a generator. What it yields is an awaitable that it needs the result of; most run through without yielding,
and then a request costs no task, no future and no turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from inspect import isawaitable
from typing import Any, TypeVar

__all__ = ["Steps", "complete", "start", "wait"]

T = TypeVar("T")
Steps = Generator[Awaitable[Any], Any, T]


def wait(value: Any) -> Steps[Any]:
    """The value, or the result of the awaitable that it is: `verdict = yield from wait(policy.can_publish(...))`."""
    if isawaitable(value):
        value = yield value
    return value


def start(steps: Steps[T]) -> tuple[Awaitable[Any] | None, T | None]:
    """Run to the end, `(None, result)`, or to the first thing that must be waited for, `(awaitable, None)`."""
    try:
        return next(steps), None
    except StopIteration as end:
        return None, end.value


async def complete(steps: Steps[T], waiting: Awaitable[Any]) -> T:
    """Wait for this, then run to the end, waiting for whatever comes."""
    while True:
        failure: Exception | None = None
        value: Any = None
        try:
            value = await waiting
        except Exception as error:  # noqa: BLE001 - the steps that asked are the ones to tell
            failure = error
        try:
            waiting = steps.send(value) if failure is None else steps.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
