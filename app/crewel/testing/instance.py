"""One server under test: started, looked at, moved through time, killed and started again. It belongs to one virtual loop."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web
from redis.exceptions import RedisError

from crewel.broker.broker import Broker
from crewel.broker.dead_letter import DeadLetter
from crewel.broker.services import Service
from crewel.broker.session import Session
from crewel.errors import CrewelError
from crewel.server import BROKER, build, listening_with
from crewel.settings import Settings, load
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.testing.clock import VirtualLoop, seconds_of

ADMIN_TOKEN: Final = "crewel-testing-admin-token"  # noqa: S105 - of servers that only this machine reaches
_DEFAULTS: Final[Mapping[str, Any]] = {
    "http.host": "127.0.0.1",
    "http.port": 0,
    "http.demos": False,
    "admin.token": ADMIN_TOKEN,
    "storage.enabled": False,
}
KEEP_UP_S: Final = 0.25
"""Seconds, of the machine's clock, in which a client whose connect was answered is expected to connect again."""
_LONGEST_STEP_S: Final = 0.2
"""How far time moves at once on a server with a store; less than what counts as a stall of the loop."""
_MOST_TURNS: Final = 8
"""Turns of the loop that what is due takes at most: a timer wakes a task, which wakes a flush, which writes."""

Build = Callable[[Settings, Iterable[Service]], web.Application]


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """One session, as the server has it."""

    client_id: str
    name: str
    """Its public name, `client/joe/1`; empty without one."""
    transport: str
    """The transport of its last connect; empty before the first."""
    subscriptions: tuple[str, ...]
    is_held: bool
    """Whether its connect is held: the server can reach it at once."""
    queued: int
    """How many messages wait for it in memory."""


@dataclass(frozen=True, slots=True)
class State:
    """What `wait_for` looks at: the server at one moment."""

    clients: tuple[ConnectedClient, ...]
    channels: int
    now: float
    """Virtual time, seconds since the server was started."""

    @property
    def connected(self) -> int:
        """How many clients wait in a held connect, or in one of a WebSocket."""
        return sum(client.is_held for client in self.clients)

    def subscribers(self, channel: str) -> int:
        """How many sessions are subscribed to this channel or pattern, as it was written."""
        return sum(channel in client.subscriptions for client in self.clients)

    def as_json(self) -> dict[str, Any]:
        """The object that the control address answers."""
        return asdict(self) | {"connected": self.connected}


def settings_of(given: Mapping[str, Any], data_dir: str) -> Settings:
    """The settings of a server under test, by their dotted names; neither crewel.toml nor the environment has a say. Raises
    SettingsError."""
    named = {**_DEFAULTS, "storage.data_dir": data_dir, **given}
    return load(os.devnull, [f"{name}={_text(value)}" for name, value in named.items()], {})


def _text(value: Any) -> str:
    if isinstance(value, bool | dict):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class Instance:
    """One server. Its methods are to be called in its loop; `facades` has them for other threads and loops."""

    def __init__(self, settings: Settings, services: Iterable[Service] = (), make: Build = build) -> None:
        self.settings = settings
        self.services = list(services)
        self._make = make
        self._stack: AsyncExitStack | None = None
        self._app: web.Application | None = None
        self._loop = asyncio.get_running_loop()
        assert isinstance(self._loop, VirtualLoop)
        self._started_at = self._loop.time()
        self.url = ""

    @property
    def is_up(self) -> bool:
        """Whether the server runs."""
        return self._stack is not None

    @property
    def app(self) -> web.Application:
        """The application of the server that runs. Raises RuntimeError if none does."""
        if self._app is None:
            raise RuntimeError("the server is not running: restart() starts it again")
        return self._app

    @property
    def broker(self) -> Broker:
        """The broker of the server that runs. Raises RuntimeError if none does."""
        return self.app[BROKER]

    @property
    def port(self) -> int:
        """The port, which stays the same after a restart."""
        return urlsplit(self.url).port or 0

    # Life

    async def start(self) -> str:
        """Serve, and return the Bayeux URL. Raises OSError, SettingsError and StoreError."""
        stack = AsyncExitStack()
        async with stack:
            app = self._make(self.settings, self.services)
            self.url = await stack.enter_async_context(listening_with(app))
            self._stack, self._app = stack.pop_all(), app
        # A restart is found under the same address by clients that do not know of it.
        self.settings.http.port = self.port
        return self.url

    async def stop(self) -> None:
        """End the server as SIGTERM does: held connects are answered, and everything is stored."""
        if self._stack is not None:
            await self._virtual.stop_accepting(self.port)
        stack, self._stack, self._app = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    async def kill(self) -> None:
        """End the server as SIGKILL does: connections are reset, and nothing more is answered or stored."""
        if self._app is not None:
            access = self.broker.runtime.access
            await self._virtual.stop_accepting(self.port)
            self._virtual.reset_connections(self.port)
            if access.has_store:
                access.store.cut()
        await self.stop()

    async def restart(self) -> str:
        """Start the server again, on the same port and with the same store. If it runs, it is killed first."""
        await self.kill()
        return await self.start()

    @property
    def _virtual(self) -> VirtualLoop:
        assert isinstance(self._loop, VirtualLoop)
        return self._loop

    # What tests do and look at

    async def publish(self, channel: str, data: Any, options: Mapping[str, Any]) -> str | None:
        """Publish as the server itself; return the id of what the store has taken, None of what needs no store. `options` as
        in `ext.publish`, and `ext`."""
        qos = dict(options)
        ext = qos.pop("ext", None)
        if qos.get("persistent"):
            return await self.broker.publish_stored(channel, data, ext=ext, qos=qos)
        self.broker.publish(channel, data, ext=ext, qos=qos or None)
        return None

    def state(self) -> State:
        """The clients, the number of channels and the virtual time."""
        broker = self.broker
        clients = tuple(_client(session) for session in broker.sessions.by_id.values())
        return State(clients, len(broker.addressing.channels), self.now())

    async def letters(self) -> list[DeadLetter]:
        """The dead letters, the oldest first. Raises StoreError without a store."""
        access = self.broker.runtime.access
        access.require_writable()
        await self.broker.durability.committed()
        letters: list[DeadLetter] = []
        after, is_first = "", True
        while after or is_first:
            page = await dead_letter_store.page(access.store, DeadLetterFilter(), after)
            letters += [DeadLetter.read(each, self.settings.node.name) for each in page.letters]
            after, is_first = page.next, False
        return letters

    # Time

    def now(self) -> float:
        """Virtual time: seconds since the server was first started."""
        return self._loop.time() - self._started_at

    async def advance(self, duration: float | str, *, keep_up: bool = True) -> None:
        """Let this much time pass: everything that is due meanwhile happens, in order. With `keep_up` the clients stay: one
        whose connect was answered gets a moment of real time to connect again before time continues. One that does not is away
        for the rest. Without `keep_up` all clients are away: what they send is read afterwards. Raises ValueError."""
        seconds = seconds_of(duration)
        with nullcontext() if keep_up else self._virtual.unread(self.port):
            await self._pass(seconds, keep_up=keep_up)

    async def _pass(self, seconds: float, *, keep_up: bool) -> None:
        end = self._loop.time() + seconds
        away: set[Session] = set()
        while (due := self._next(end)) < end:
            held = [each for each in self._sessions() if each.held is not None] if keep_up else []
            self._skip_to(due)
            await self._settle()
            for session in held:
                if session not in away and not await _is_back(session):
                    away.add(session)
        self._skip_to(end)
        await self._settle()

    def _sessions(self) -> list[Session]:
        return list(self.broker.sessions.by_id.values()) if self._app is not None else []

    def _next(self, end: float) -> float:
        due = self._virtual.next_timer()
        if self._app is not None and self.broker.runtime.access.has_store:
            due = max(due, min(self._loop.time() + _LONGEST_STEP_S, end))
        return due

    def _skip_to(self, moment: float) -> None:
        passed = moment - self._loop.time()
        if passed > 0:
            self._virtual.skip(passed)
            if self._app is not None:
                self.broker.runtime.clock.advance(passed)

    async def _settle(self) -> None:
        """Let what has become due happen. The store has answered by then: time must not run out for an answer that is on
        its way."""
        await self._take_turns()
        while self._app is not None and self._virtual.next_timer() == inf:  # noqa: ASYNC110 - turns are what is waited for
            await asyncio.sleep(0)  # the sweeper always has a next time
        access = self.broker.runtime.access if self._app is not None else None
        if access is not None and access.has_store and access.store.is_up:
            with suppress(CrewelError, RedisError, OSError):
                await access.store.reader.ping()
            await self._take_turns()

    async def _take_turns(self) -> None:
        """Let the loop run until nothing waits for its turn, at most `_MOST_TURNS`. Most timers wake nothing: a night of
        virtual time has 80,000 of them."""
        await asyncio.sleep(0)  # in this turn the timers that are due join the queue
        for _ in range(_MOST_TURNS - 1):
            if self._virtual.is_idle:
                return
            await asyncio.sleep(0)


def _client(session: Session) -> ConnectedClient:
    return ConnectedClient(
        session.id,
        session.name,
        session.advised_on or "",
        tuple(session.subscriptions),
        session.held is not None,
        session.mailbox.view().queued,
    )


async def _is_back(session: Session) -> bool:
    """Wait until the client of this session has connected again, in real time; False if it does not."""
    until = time.monotonic() + KEEP_UP_S
    while session.is_live and session.held is None and not session.requests and session.expires_at < inf:
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(0.001)
    return True
