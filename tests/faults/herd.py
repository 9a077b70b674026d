"""Reliable anonymous clients in numbers, with the manners of a stock client, and publishers that always find a healthy node.

A client polls, or has a WebSocket, behind a balancer. A request that fails is repeated after 1, 2, 3 s; advice is obeyed. What
counts here is that none of them ever needs a second handshake, how long each was without an answered connect, and that each
gets all that was answered, in order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import aiohttp

from tests.faults.load import wait_for

CHANNEL: Final = "/herd/news"
NETWORK_S: Final = 40.0
"""How long a stock client waits for the answer to a connect: 30 s that the server may hold it, and 10 s more."""
_BACKOFF_S: Final = 1.0
_PUBLISH_LIMIT_S: Final = 3.0
_PAUSE_S: Final = 0.1


@dataclass(eq=False)
class Member:
    """One client."""

    name: str
    port: int
    transport: str
    keeps_connection: bool
    """Whether its requests use one connection as long as that lasts; else the balancer chooses with each."""
    handshakes: int = 0
    refusals: list[Any] = field(default_factory=list)
    longest_gap: float = 0.0
    answered_at: float = 0.0
    got: dict[str, int] = field(default_factory=dict)
    """Number of each message by its id, in the order of first arrival."""
    _id: str = ""
    _batch: int = 0
    _number: int = 0
    _failures: int = 0

    async def run(self) -> None:
        """Be a client until cancelled."""
        async with self._http() as http:
            await self._join(http)
            while True:
                try:
                    await (self._poll(http) if self.transport == "long-polling" else self._speak(http))
                except (aiohttp.ClientError, OSError, TimeoutError, _Failed) as error:
                    self.refusals.append((monotonic(), repr(error)[:120]))
                    self._failures += 1
                    await asyncio.sleep(self._failures * _BACKOFF_S)

    def _http(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(force_close=not self.keeps_connection)
        jar = aiohttp.CookieJar(unsafe=True)  # the address is an IP
        return aiohttp.ClientSession(connector=connector, cookie_jar=jar, timeout=aiohttp.ClientTimeout(NETWORK_S))

    async def _join(self, http: aiohttp.ClientSession) -> None:
        ext = {"ack": True}
        types = ["websocket", "long-polling"]
        handshake = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": types, "ext": ext}
        (reply,) = await self._post(http, [handshake])
        assert reply["successful"], reply
        self._id, self._batch = reply["clientId"], 0
        self.handshakes += 1
        (reply,) = await self._post(http, [self._message("/meta/subscribe", subscription=CHANNEL)])
        assert reply["successful"], reply
        self.answered_at = monotonic()

    def _message(self, channel: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"channel": channel, "clientId": self._id, "id": str(self._number), **fields}

    def _connect(self) -> dict[str, Any]:
        return self._message("/meta/connect", connectionType=self.transport, ext={"ack": self._batch})

    async def _post(self, http: aiohttp.ClientSession, messages: list[dict[str, Any]]) -> list[Any]:
        async with http.post(f"http://127.0.0.1:{self.port}/cometd", json=messages) as response:
            if response.status != 200:
                raise _Failed(f"{response.status}: {await response.text()}")
            return list(await response.json())

    async def _poll(self, http: aiohttp.ClientSession) -> None:
        await self._take(http, await self._post(http, [self._connect()]))

    async def _speak(self, http: aiohttp.ClientSession) -> None:
        """Until the socket ends."""
        async with http.ws_connect(f"ws://127.0.0.1:{self.port}/cometd") as socket:
            await socket.send_json([self._connect()])
            while True:
                frame = await socket.receive(timeout=NETWORK_S)
                if frame.type is not aiohttp.WSMsgType.TEXT:
                    raise _Failed(f"the socket ended: {frame.type.name} {frame.data}")
                if await self._take(http, frame.json()):
                    await socket.send_json([self._connect()])

    async def _take(self, http: aiohttp.ClientSession, messages: list[dict[str, Any]]) -> bool:
        """Take what has come; returns whether a connect was answered."""
        is_answered = False
        for each in messages:
            if each["channel"] == "/meta/connect":
                is_answered = True
                await self._connected(http, each)
            elif "data" in each:
                self.got.setdefault(each["id"], each["data"])
        return is_answered

    async def _connected(self, http: aiohttp.ClientSession, reply: dict[str, Any]) -> None:
        advice = reply.get("advice", {})
        if reply["successful"]:
            now = monotonic()
            self.longest_gap, self.answered_at = max(self.longest_gap, now - self.answered_at), now
            self._batch, self._failures = reply["ext"]["ack"], 0
            await asyncio.sleep(advice.get("interval", 0) / 1000)
            return
        self.refusals.append((monotonic(), reply))
        if advice.get("reconnect") == "handshake":
            await self._join(http)
            return
        self._failures += 1
        await asyncio.sleep(advice.get("interval", 0) / 1000 + self._failures * _BACKOFF_S)


class _Failed(Exception):
    """A request was not answered as Bayeux has it."""


class Herd:
    """All clients, and what was published."""

    def __init__(self, ports: Callable[[], list[int]], rng: random.Random) -> None:
        """`ports` are those of nodes that work."""
        self.members: list[Member] = []
        self.answered: dict[str, int] = {}
        """Number of each answered publish, by id."""
        self._answered_at: dict[str, float] = {}
        self.log: Callable[[], str] = str
        self._ports = ports
        self._rng = rng
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ending = False
        self._number = 0

    async def begin(self, port: int, count: int, *, publishers: int = 2) -> None:
        """Let so many clients join behind this port: two thirds of them poll. Publish from then on."""
        for number in range(count):
            transport = ("long-polling", "long-polling", "websocket")[number % 3]
            member = Member(f"{transport}-{number}", port, transport, keeps_connection=number % 2 == 0)
            self.members.append(member)
            self._tasks.append(asyncio.create_task(member.run()))
        await wait_for(lambda: all(each.answered_at for each in self.members), 30, self.report)
        self._publishing = [asyncio.create_task(self._publish()) for _ in range(publishers)]

    async def settle(self, limit_s: float) -> None:
        """Publish no more, and wait until all have what was answered. Raises AssertionError."""
        self._is_ending = True
        await asyncio.gather(*self._publishing)
        with suppress(AssertionError):
            await wait_for(lambda: not any(map(self.missing, self.members)), limit_s, every_s=0.2)
        for each in self.members:
            assert each.handshakes == 1, f"{each.name} shook hands {each.handshakes} times\n{self.report()}"
            missing = self.missing(each)
            assert not missing, f"{each.name} never got {self._which(each, missing)}\n{self.report()}"
            ids = [int(log_id) for log_id in each.got]
            assert ids == sorted(ids), f"{each.name} got messages out of their order"

    def _which(self, member: Member, missing: list[str]) -> str:
        """The missing messages in words: their numbers, and whether later ones have come."""
        later = sum(int(each) > int(missing[-1]) for each in member.got)
        ago = [f"{self.answered[each]} ({monotonic() - self._answered_at[each]:.1f} s ago)" for each in missing[:5]]
        served = f"last served {monotonic() - member.answered_at:.1f} s ago"
        return f"{len(missing)} of {len(self.answered)}: {', '.join(ago)}; {later} later ones have come; {served}"

    def missing(self, member: Member) -> list[str]:
        """What this one has not got of what was answered."""
        return [each for each in self.answered if each not in member.got]

    async def served(self, since: float, limit_s: float) -> None:
        """Wait until a connect of each was answered after `since`."""
        await wait_for(lambda: self._is_served(since), limit_s, self.report)

    def _is_served(self, since: float) -> bool:
        """Whether a connect of each was answered after `since`. Raises the error of a client that has ended with one."""
        for task in self._tasks:
            if task.done():
                task.result()
        return all(each.answered_at > since for each in self.members)

    def watch_gaps(self) -> None:
        """Measure the gaps from here on."""
        for each in self.members:
            each.longest_gap, each.answered_at = 0.0, monotonic()

    @property
    def handshakes(self) -> int:
        """How many there were after the first of each."""
        return sum(each.handshakes - 1 for each in self.members)

    async def stop(self) -> None:
        """End all."""
        self._is_ending = True
        for task in (*self._tasks, *getattr(self, "_publishing", ())):
            task.cancel()
        await asyncio.gather(*self._tasks, *getattr(self, "_publishing", ()), return_exceptions=True)

    def report(self) -> str:
        """What is known of each client that had any trouble, for a failure."""
        now = monotonic()
        lines = [
            f"{each.name}: {each.handshakes} handshakes, {now - each.answered_at:.1f} s ago, longest"
            f" {each.longest_gap:.1f}, {[(round(at - now, 1), what) for at, what in each.refusals[-6:]]}"
            for each in self.members
            if each.refusals
        ]
        return "\n".join([*lines, self.log()])

    async def _publish(self) -> None:
        """Publish one after the other, at a node that works; what is not answered is sent again with the same key."""
        connector, jar = aiohttp.TCPConnector(force_close=True), aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as http:
            publishers: dict[int, _Publisher] = {}  # by port: so a node with a fault has no part in what others get
            while not self._is_ending:
                self._number += 1
                number = self._number
                while True:
                    port = self._rng.choice(self._ports())
                    publisher = publishers.setdefault(port, _Publisher(http, port))
                    log_id = await publisher.publish(number)
                    if log_id:
                        self.answered[log_id] = number
                        self._answered_at[log_id] = monotonic()
                        break
                    await asyncio.sleep(_PAUSE_S)
                await asyncio.sleep(_PAUSE_S)


class _Publisher:
    """A session without `ack` at one node, which is made again when it is gone."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self._port = port
        self._id = ""

    async def publish(self, number: int) -> str:
        """Return the id; empty if it was not answered, or refused."""
        try:
            async with asyncio.timeout(_PUBLISH_LIMIT_S):
                if not self._id:
                    types = ["long-polling"]
                    handshake = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": types}
                    (reply,) = await self._post(handshake)
                    self._id = reply["clientId"]
                ext = {"publish": {"persistent": True, "key": str(number)}}
                message = {"channel": CHANNEL, "clientId": self._id, "id": "1", "data": number, "ext": ext}
                (reply,) = await self._post(message)
        except (aiohttp.ClientError, OSError, TimeoutError, _Failed, KeyError):
            self._id = ""
            return ""
        if reply["successful"]:
            return str(reply["ext"]["publish"]["id"])
        if reply["error"].startswith("402"):
            self._id = ""
        return ""

    async def _post(self, message: dict[str, Any]) -> list[Any]:
        async with self._http.post(f"http://127.0.0.1:{self._port}/cometd", json=[message]) as response:
            if response.status != 200:
                raise _Failed(str(response.status))
            return list(await response.json())
