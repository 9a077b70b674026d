"""How long clients wait while nodes, or the workers of a server, are replaced as planned.

    python bench/restarts.py            10 times each, written into bench/RESULTS.md (about 3 minutes)
    python bench/restarts.py --quick    twice each, printed only

Reliable clients, half of them over WebSockets, receive a message every 50 ms. They do as the official client does: they obey
the advice of each reply, connect again a second after a failure, and handshake only if they are asked to. Each new connection
reaches one of the servers that listen, at random. The servers have the last core, their store and the clients the first.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import uvloop
from adoption import percentile, storing
from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientWebSocketResponse, CookieJar, WSMsgType
from durable import CORES, Server, serving
from section import Section, parser, verdict

CLIENTS, EVERY_S, MOST_S = 60, 0.05, 0.5
CHANNEL = "/bench/restart"
BACKOFF_S, AFTER_S, LIMIT_S = 1.0, 1.5, 60.0
REFUSED = (ClientError, ConnectionError, TimeoutError)
SETS = ("bayeux.timeout_ms=10000", "bayeux.max_interval_ms=60000", "admin.token=the-token-of-this-measurement")


class Replaced(NamedTuple):
    """What the clients noticed of the ends of one kind."""

    kind: str
    ends: int
    gaps: list[float]
    """The longest time without an answered connect, in seconds, of each client and end."""
    failures: int
    handshakes: int
    """Beyond the first of each client."""
    missing: int
    """Messages that were answered and have not come, of all clients."""


class Client(ABC):
    """A reliable client."""

    def __init__(self, http: ClientSession, ports: list[int]) -> None:
        """`ports` are those of the servers that listen; the list changes."""
        self._http = http
        self._ports = ports
        self._numbers = itertools.count(1)
        self._batch = 0
        self._id = ""
        self.seen: set[int] = set()
        self.handshakes = self.failures = 0
        self.longest = self._answered_at = 0.0

    @abstractmethod
    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message, take what comes, and return the reply. Raises one of `REFUSED`."""

    @abstractmethod
    async def rest(self, seconds: float) -> None:
        """Wait before the next request."""

    def message(self, channel: str, **fields: Any) -> dict[str, Any]:
        """A message of this client."""
        named = {"clientId": self._id} if self._id else {}
        return {"channel": channel, "id": str(next(self._numbers)), **named, **fields}

    def at_random(self) -> list[int]:
        """The ports in the order in which a balancer tries them."""
        return random.sample(self._ports, len(self._ports))

    async def insist(self, message: dict[str, Any], pause: float = BACKOFF_S) -> dict[str, Any]:
        """Send it until it is answered successfully."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    reply = await self.ask(message)
                except REFUSED:
                    reply = {"successful": False}
                if reply["successful"]:
                    return reply
                await asyncio.sleep(pause)

    async def shake_hands(self) -> None:
        """Begin a session."""
        self._id, self._batch = "", 0
        kinds = ["long-polling", "websocket"]
        asked = self.message("/meta/handshake", version="1.0", supportedConnectionTypes=kinds, ext={"ack": True})
        self._id = (await self.insist(asked))["clientId"]
        self.handshakes += 1

    async def receive(self) -> None:
        """Subscribe."""
        await self.shake_hands()
        await self.insist(self.message("/meta/subscribe", subscription=CHANNEL))

    async def run(self) -> None:
        """Connect again and again."""
        failed = 0
        while True:
            ext = {"ack": self._batch}
            try:
                reply = await self.ask(self.message("/meta/connect", connectionType=self.kind, ext=ext))
            except REFUSED:
                failed += 1
                self.failures += 1
                await asyncio.sleep(failed * BACKOFF_S)
                continue
            advice = reply.get("advice", {})
            if not reply["successful"] and advice.get("reconnect") == "handshake":
                await self.receive()
                continue
            failed = 0
            if reply["successful"]:
                self._batch = reply["ext"]["ack"]
                self.answered()
            await self.rest(advice.get("interval", 0) / 1000)

    def answered(self) -> None:
        """A connect was answered."""
        now = time.perf_counter()
        self.longest, self._answered_at = max(self.longest, now - self._answered_at), now

    def watch(self) -> None:
        """Measure from here on."""
        self.longest, self._answered_at = 0.0, self._answered_at or time.perf_counter()

    def take(self, messages: list[dict[str, Any]], to: dict[str, Any]) -> dict[str, Any] | None:
        """Note what has come; the reply to this message, if that is among it."""
        self.seen.update(each["data"] for each in messages if each["channel"] == CHANNEL and "data" in each)
        return next((each for each in messages if each.get("id") == to["id"] and "successful" in each), None)

    kind = ""


class Polling(Client):
    """It speaks by requests."""

    kind = "long-polling"
    _port = 0

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        for port in [self._port] if self._port in self._ports else self.at_random():
            with suppress(ClientConnectorError):
                async with self._http.post(f"http://127.0.0.1:{port}/cometd", json=[message]) as response:
                    self._port = 0 if response.headers.get("Connection") == "close" else port
                    if response.status != 200:
                        raise ClientError(f"status {response.status}")
                    reply = self.take(await response.json(), message)
                    assert reply is not None
                    return reply
        if self._port:  # it listens no more: a balancer takes another one
            self._port = 0
            return await self.ask(message)
        raise ConnectionError("no server listens")

    async def rest(self, seconds: float) -> None:
        """The connection is closed meanwhile, if its node ends."""
        await asyncio.sleep(seconds)


class Socket(Client):
    """It speaks over a WebSocket."""

    kind = "websocket"
    _socket: ClientWebSocketResponse | None = None

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._socket is None:
            self._socket = await self._open()
        try:
            await self._socket.send_str(json.dumps([message]))
            while True:
                came = await self._socket.receive(LIMIT_S)
                if came.type is not WSMsgType.TEXT:
                    raise ConnectionError("the socket was closed")
                reply = self.take(json.loads(came.data), message)
                if reply is not None:
                    return reply
        except REFUSED:
            self._socket = None
            raise

    async def _open(self) -> ClientWebSocketResponse:
        for port in self.at_random():
            with suppress(ClientConnectorError):
                return await self._http.ws_connect(f"http://127.0.0.1:{port}/cometd")
        raise ConnectionError("no server listens")

    async def rest(self, seconds: float) -> None:
        """A socket that is closed meanwhile is opened again with the next message."""
        if seconds and self._socket is not None:
            until = time.perf_counter() + seconds
            with suppress(TimeoutError):
                await self._socket.receive(seconds)
                self._socket = None
            await asyncio.sleep(max(0, until - time.perf_counter()))


class Audience:
    """All clients, and who publishes to them."""

    def __init__(self, clients: list[Client], publisher: Client) -> None:
        self.clients = clients
        self.publisher = publisher
        self.published = 0

    async def publish(self) -> None:
        """A message every so often, each until it is answered; its key keeps it from coming twice."""
        for number in itertools.count(1):
            ext = {"publish": {"persistent": True, "key": str(number)}}
            await self.publisher.insist(self.publisher.message(CHANNEL, data=number, ext=ext), 0.05)
            self.published = number
            await asyncio.sleep(EVERY_S)

    async def notice(self, kind: str, times: int, end: Callable[[], Awaitable[None]]) -> Replaced:
        """What the clients notice when something ends so many times."""
        gaps = []
        failures, handshakes = self._failures(), self._handshakes()
        for _ in range(times):
            for each in self.clients:
                each.watch()
            await end()
            await asyncio.sleep(AFTER_S)  # for those that have not been back yet
            for each in self.clients:
                each.answered()
            gaps += [each.longest for each in self.clients]
        answered = set(range(1, self.published + 1))
        await asyncio.sleep(AFTER_S)
        missing = sum(len(answered - each.seen) for each in self.clients)
        return Replaced(kind, times, gaps, self._failures() - failures, self._handshakes() - handshakes, missing)

    def _failures(self) -> int:
        return sum(each.failures for each in self.clients)

    def _handshakes(self) -> int:
        return sum(each.handshakes for each in self.clients)


@asynccontextmanager
async def audience(ports: list[int]) -> AsyncIterator[Audience]:
    """Clients that receive from the servers at these ports, and are served."""
    async with AsyncExitStack() as stack:

        async def http() -> ClientSession:
            return await stack.enter_async_context(ClientSession(cookie_jar=CookieJar(unsafe=True)))  # of an address

        clients = [(Polling, Socket)[number % 2](await http(), ports) for number in range(CLIENTS)]
        people = Audience(list(clients), Polling(await http(), ports))
        for each in clients:
            await each.receive()
        await people.publisher.shake_hands()
        tasks = [asyncio.create_task(each.run()) for each in (*clients, people.publisher)]
        tasks.append(asyncio.create_task(people.publish()))
        await asyncio.sleep(2)
        try:
            yield people
        finally:
            for task in tasks:
                task.cancel()
            for done in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(done, Exception):
                    raise done


async def until(holds: Callable[[], bool]) -> None:
    """Wait until this holds."""
    async with asyncio.timeout(LIMIT_S):
        while not holds():
            await asyncio.sleep(0.02)


async def nodes(times: int) -> Replaced:
    """Two nodes, of which one ends by SIGTERM; another one comes in its place when it has ended."""
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(storing(stack.enter_context(TemporaryDirectory())))
        running: list[tuple[AsyncExitStack, int]] = []
        ports: list[int] = []

        async def start() -> None:
            own = await stack.enter_async_context(AsyncExitStack())
            directory = own.enter_context(TemporaryDirectory())
            name = f"node.name=node{len(ports)}"
            node = await own.enter_async_context(
                serving(directory, f"storage.url={url}", "cluster.enabled=true", name, *SETS)
            )
            running.append((own, node.port))
            ports.append(node.port)

        async def replace() -> None:
            own, port = running.pop(0)
            await own.aclose()
            ports.remove(port)
            await asyncio.sleep(AFTER_S)
            await start()

        await start()
        await start()
        async with audience(ports) as people:
            return await people.notice("one of two nodes, SIGTERM", times, replace)


def workers_of(server: Server) -> set[int]:
    """The processes that serve."""
    pid = server.process.pid
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


async def workers(times: int) -> Replaced:
    """A server that replaces its two workers by SIGHUP."""
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(storing(stack.enter_context(TemporaryDirectory())))
        directory = stack.enter_context(TemporaryDirectory())
        server = await stack.enter_async_context(serving(directory, f"storage.url={url}", "cluster.workers=2", *SETS))
        for pid in workers_of(server):
            os.sched_setaffinity(pid, {CORES[-1]})

        async def replace() -> None:
            before = workers_of(server)
            server.process.send_signal(signal.SIGHUP)
            await until(lambda: not before & (now := workers_of(server)) and len(now) == len(before))

        async with audience([server.port]) as people:
            return await people.notice("both workers of a server, SIGHUP", times, replace)


def report(found: list[Replaced]) -> Section:
    """The section of bench/RESULTS.md."""
    rows = []
    for each in found:
        p99 = percentile(each.gaps, 0.99)
        is_met = p99 <= MOST_S and not (each.handshakes or each.missing)
        figures = [f"{value:.2f}" for value in (statistics.median(each.gaps), p99, max(each.gaps))]
        counts = map(str, (each.failures, each.handshakes, each.missing))
        rows.append((each.kind, str(each.ends), *figures, *counts, verdict(is_met=is_met)))
    return Section(
        "restarts",
        "Planned restarts",
        f"{CLIENTS} reliable clients, half over WebSockets; a stored message to all every {EVERY_S * 1e3:g} ms. The gap is the"
        " longest time without an answered connect, in seconds, of each client and end. Asked: a p99 of at most"
        f" {MOST_S:g} s, no handshake, nothing missing.",
        (
            "what ended",
            "times:",
            "gap p50:",
            "p99:",
            "longest:",
            "failed connects:",
            "handshakes:",
            "missing:",
            "verdict",
        ),
        rows,
    )


async def measure(times: int) -> list[Replaced]:
    """Both kinds, one after the other."""
    return [await nodes(times), await workers(times)]


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "twice each").parse_args()
    os.sched_setaffinity(0, {CORES[0]})
    uvloop.install()
    report(asyncio.run(measure(2 if options.quick else 10))).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
