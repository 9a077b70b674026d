"""The synchronous client under the interface of the asynchronous one, so that the same tests try both.

Each call runs in a thread; callbacks that are coroutine functions run in the loop of the test, and a thread waits for them.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from crewel.client import sync

_END = object()
_THREADS = ThreadPoolExecutor(32, thread_name_prefix="over-sync")
_AT_ONCE = {
    sync.Client: {"on_state", "add_extension", "remove_extension", "listen", "consume", "batch", "close_now"},
    sync.Batch: {"publish"},
    sync.Consumer: {"stop"},
    sync.Message: {"settle", "reject", "working", "defer", "give_up"},
    sync.Delivery: {"settle", "acknowledge", "reject", "dead_letter", "hold", "retry", "working", "defer", "give_up"},
}
"""The methods of the asynchronous classes that are no coroutine functions."""


class Adapted:
    """An object of `crewel.client.sync`, with coroutine functions in place of functions that wait."""

    def __init__(self, origin: Any) -> None:
        self.origin = origin

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.origin, name)
        if not inspect.ismethod(found):
            return adapted(found)
        if name == "on_state":
            return lambda value: found(listener(value))
        if name in _AT_ONCE.get(type(self.origin), ()):
            return lambda *values, **named: adapted(found(*map(plain, values), **_plain(named)))
        return lambda *values, **named: in_thread(found, *values, **named)

    async def __aenter__(self) -> Self:
        await in_thread(self.origin.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return await in_thread(self.origin.__exit__, kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        following = await in_thread(next, self.origin, _END)
        if following is _END:
            raise StopAsyncIteration
        return following


class Client(Adapted):
    """`crewel.client.Client`, as the tests make it."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(sync.Client(*values, **_plain(named)))


async def in_thread(function: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Call the function in a thread; its result as the tests know it."""
    call = functools.partial(function, *map(plain, values), **_plain(named))
    return adapted(await asyncio.get_running_loop().run_in_executor(_THREADS, call))


def adapted(value: Any) -> Any:
    """The value, with coroutine functions if it is an object of the synchronous client."""
    if isinstance(value, list):
        return [adapted(each) for each in value]
    kinds = sync.Subscription | sync.Consumer | sync.Batch | sync.Outbox | sync.Delivery
    return Adapted(value) if isinstance(value, kinds) else value


def plain(value: Any) -> Any:
    """The value, as a plain function if it is a coroutine function or a function of messages."""
    if isinstance(value, Adapted):
        return value.origin
    if not inspect.isfunction(value):
        return value
    loop = _running()
    if loop is None:
        return value

    @functools.wraps(value)
    def call(*values: Any) -> Any:
        outcome = value(*map(adapted, values))
        if not inspect.isawaitable(outcome):
            return outcome

        async def wait() -> Any:
            return await outcome

        return asyncio.run_coroutine_threadsafe(wait(), loop).result()

    call.__dict__.pop("__wrapped__")  # it is no coroutine function any more
    return call


def _plain(named: dict[str, Any]) -> dict[str, Any]:
    return {name: listener(value) if name == "on_state" else plain(value) for name, value in named.items()}


def listener(value: Any) -> Any:
    """A listener that is called in the loop of the test."""
    loop = _running()
    return value if loop is None or not callable(value) else lambda step: loop.call_soon_threadsafe(value, step)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
