"""A server under test as tests use it: `Server` for plain code, `AsyncServer` for code with an event loop of its own.

Both have the same methods. The server runs in a thread, so neither blocks it, and its clock is not the test's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Final, Generic, TypeVar

from crewel.broker.dead_letter import DeadLetter
from crewel.broker.services import Service
from crewel.server import build
from crewel.settings import Settings
from crewel.testing.clock import VirtualLoop, seconds_of
from crewel.testing.instance import ADMIN_TOKEN, Build, Instance, State, settings_of
from crewel.testing.loop_thread import LIMIT_S, LoopThread

T = TypeVar("T")
InstanceT = TypeVar("InstanceT", bound=Instance)

WAIT_S: Final = 10.0
"""Seconds, of the machine's clock, that `wait_for` waits at most."""
_LOOK_S: Final = 0.005

Condition = Callable[[State], Any]


class _Running(Generic[InstanceT]):
    """What both facades share."""

    def __init__(self, thread: LoopThread, instance: InstanceT) -> None:
        self._thread = thread
        self._instance = instance
        self.admin_token = ADMIN_TOKEN
        """The token of operators, for `/admin/api`, the commands and logins."""

    @property
    def url(self) -> str:
        """The Bayeux address, `http://127.0.0.1:PORT/cometd`."""
        return self._instance.url

    @property
    def base_url(self) -> str:
        """The address of everything else, `http://127.0.0.1:PORT`."""
        return self.url.removesuffix(self._instance.settings.bayeux.path)

    @property
    def port(self) -> int:
        """The port; the same after a restart."""
        return self._instance.port

    @property
    def is_up(self) -> bool:
        """Whether the server runs; False between `kill` and `restart`."""
        return self._instance.is_up

    async def _state(self) -> State:
        return self._instance.state()


class Server(_Running[InstanceT]):
    """A server for code without an event loop. Each method waits until the server has done it."""

    def _run(self, coroutine: Coroutine[Any, Any, T], limit: float = LIMIT_S) -> T:
        return self._thread.run(coroutine, limit)

    def publish(self, channel: str, data: Any, **options: Any) -> str | None:
        """Publish as the server itself; `options` are those of `ext.publish`, such as `persistent=True`, and `ext`. Returns the
        id of a message that the store has taken. Raises ValueError, TypeError, Refused and StoreError."""
        return self._run(self._instance.publish(channel, data, options))

    @property
    def state(self) -> State:
        """The clients, the number of channels and the virtual time, as they are now."""
        return self._run(self._state())

    @property
    def letters(self) -> list[DeadLetter]:
        """The dead letters, the oldest first. Raises StoreError without a store."""
        return self._run(self._instance.letters())

    def wait_for(self, condition: Condition, timeout: float = WAIT_S) -> State:
        """Wait until `condition(state)` is true, and return that state: `server.wait_for(lambda s: s.connected == 2)`. Raises
        AssertionError after `timeout` seconds of the machine's clock."""
        until = time.monotonic() + timeout
        while not condition(state := self.state):
            if time.monotonic() >= until:
                raise _unmet(state, timeout)
            time.sleep(_LOOK_S)
        return state

    def wait_for_clients(self, count: int = 1, timeout: float = WAIT_S) -> State:
        """Wait until exactly `count` clients are connected."""
        return self.wait_for(lambda state: state.connected == count, timeout)

    def wait_for_subscribers(self, channel: str, count: int = 1, timeout: float = WAIT_S) -> State:
        """Wait until exactly `count` sessions are subscribed to the channel or pattern."""
        return self.wait_for(lambda state: state.subscribers(channel) == count, timeout)

    def advance(self, duration: float | str, *, keep_up: bool = True) -> None:
        """Let this much virtual time pass: seconds, or "110s", "3h". Everything that is due happens, in order. Clients that
        connect again as usual stay connected; without `keep_up` time does not wait for them. Raises ValueError."""
        # A server has about three timers for each second: a long time that is still passing is no server that hangs.
        limit = LIMIT_S * (1 + seconds_of(duration) / 3600)
        self._run(self._instance.advance(duration, keep_up=keep_up), limit)

    def kill(self) -> None:
        """End the server as SIGKILL does: connections are reset, nothing more is answered or stored."""
        self._run(self._instance.kill())

    def restart(self) -> None:
        """Start the server again, on the same port and with the same store; one that runs is killed before."""
        self._run(self._instance.restart())

    def stop(self) -> None:
        """End the server as SIGTERM does: held connects are answered."""
        self._run(self._instance.stop())

    def call(self, function: Callable[[InstanceT], Any]) -> Any:
        """Call a function with the instance, in the server's own thread: for what has no method here."""

        async def called() -> Any:
            result = function(self._instance)
            return await result if asyncio.iscoroutine(result) else result

        return self._run(called())


class AsyncServer(_Running[InstanceT]):
    """A server for code with an event loop, which is never blocked. The methods are those of `Server`, to be awaited."""

    async def publish(self, channel: str, data: Any, **options: Any) -> str | None:
        """Publish as the server itself; `Server.publish` explains it."""
        return await self._thread.wrap(self._instance.publish(channel, data, options))

    async def state(self) -> State:
        """The clients, the number of channels and the virtual time, as they are now."""
        return await self._thread.wrap(self._state())

    async def letters(self) -> list[DeadLetter]:
        """The dead letters, the oldest first. Raises StoreError without a store."""
        return await self._thread.wrap(self._instance.letters())

    async def wait_for(self, condition: Condition, timeout: float = WAIT_S) -> State:  # noqa: ASYNC109 - what a caller says
        """Wait until `condition(state)` is true, and return that state. Raises AssertionError after `timeout` seconds."""
        until = time.monotonic() + timeout
        while not condition(state := await self.state()):
            if time.monotonic() >= until:
                raise _unmet(state, timeout)
            await asyncio.sleep(_LOOK_S)
        return state

    async def wait_for_clients(self, count: int = 1) -> State:
        """Wait until exactly `count` clients are connected."""
        return await self.wait_for(lambda state: state.connected == count)

    async def wait_for_subscribers(self, channel: str, count: int = 1) -> State:
        """Wait until exactly `count` sessions are subscribed to the channel or pattern."""
        return await self.wait_for(lambda state: state.subscribers(channel) == count)

    async def advance(self, duration: float | str, *, keep_up: bool = True) -> None:
        """Let this much virtual time pass; `Server.advance` explains it."""
        await self._thread.wrap(self._instance.advance(duration, keep_up=keep_up))

    async def kill(self) -> None:
        """End the server as SIGKILL does."""
        await self._thread.wrap(self._instance.kill())

    async def restart(self) -> None:
        """Start the server again, on the same port and with the same store; one that runs is killed before."""
        await self._thread.wrap(self._instance.restart())

    async def stop(self) -> None:
        """End the server as SIGTERM does."""
        await self._thread.wrap(self._instance.stop())


def _unmet(state: State, timeout: float) -> AssertionError:
    return AssertionError(f"the condition was not met within {timeout:g} s; the server has {state}")


@contextmanager
def in_thread(settings: Settings, make: Callable[[Settings], InstanceT]) -> Iterator[tuple[LoopThread, InstanceT]]:
    """An instance that `make` makes and that serves, and the thread in which it does. Raises OSError and StoreError."""
    thread = LoopThread(VirtualLoop)

    async def made() -> InstanceT:
        instance = make(settings)
        await instance.start()
        return instance

    try:
        instance = thread.run(made())
        try:
            yield thread, instance
        finally:
            thread.run(instance.stop())
    finally:
        thread.close()


@contextmanager
def _settled(given: Mapping[str, Any] | None, *, store: bool) -> Iterator[Settings]:
    """The settings, with a data directory for as long as they are used. Raises SettingsError."""
    with TemporaryDirectory(prefix="crewel-") as directory:
        yield settings_of({"storage.enabled": store, **(given or {})}, directory)


@contextmanager
def _served(
    settings: Mapping[str, Any] | None, services: Iterable[Service], *, store: bool, make_app: Build = build
) -> Iterator[tuple[LoopThread, Instance]]:
    with (
        _settled(settings, store=store) as settled,
        in_thread(settled, lambda ready: Instance(ready, services, make_app)) as served,
    ):
        yield served


@contextmanager
def serving_in_thread(
    *,
    settings: Mapping[str, Any] | None = None,
    services: Iterable[Service] = (),
    store: bool = False,
    make_app: Build = build,
) -> Iterator[Server[Instance]]:
    """A server on a free port for plain code, until the end of the `with`.

    `settings` are those of crewel.toml by their dotted names, `{"bayeux.timeout_ms": 1000}`; crewel.toml and the
    environment are not read. `services` are installed; a service may be in any number of servers. With `store` there is
    an embedded store in a temporary directory, as `storage.enabled=true` has it; without, a server starts in a few
    milliseconds."""
    with _served(settings, services, store=store, make_app=make_app) as (thread, made):
        yield Server(thread, made)


@asynccontextmanager
async def serving(
    *,
    settings: Mapping[str, Any] | None = None,
    services: Iterable[Service] = (),
    store: bool = False,
) -> AsyncIterator[AsyncServer[Instance]]:
    """A server as `serving_in_thread` gives it, for code with an event loop: `async with serving() as server:`."""
    context = _served(settings, services, store=store)
    thread, instance = await asyncio.to_thread(context.__enter__)
    try:
        yield AsyncServer(thread, instance)
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
