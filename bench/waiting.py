"""Clients that wait for each answer, for durable.py: few, cheap, and each message known; and sessions put into a store."""

import asyncio
import json
import random
import re
import time
from itertools import count
from types import TracebackType
from typing import Self, cast

from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage import node_leases, session_store
from crewel.storage.node_leases import ALONE, Membership
from crewel.storage.store import Store

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_COOKIE = re.compile(rb"(?i)\r\nset-cookie: *([^;\r]+)")
_ACK = re.compile(rb'"ack":(\d+)')
_LIMIT_S = 30.0
FORMER = "earlier"
"""The token of the server whose sessions `store_sessions` makes."""


class Connection(asyncio.Protocol):
    """One connection with at most one request under way."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.cookie = b""
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand over the body when it is complete."""
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or self._answer is None:
            return
        length = _LENGTH.search(self._buffer, 0, end)
        assert length is not None, self._buffer
        if len(self._buffer) < end + 4 + int(length[1]):
            return
        cookie = _COOKIE.search(self._buffer, 0, end)
        if cookie:
            self.cookie = cookie[1]
        answer, self._answer = self._answer, None
        body, self._buffer = self._buffer[end + 4 :], b""
        answer.set_result(body)

    def post(self, body: bytes) -> asyncio.Future[bytes]:
        """Send messages; the future has the body of the response."""
        self._answer = asyncio.get_running_loop().create_future()
        cookie = b"Cookie: %b\r\n" % self.cookie if self.cookie else b""
        self.transport.write(
            b"POST /cometd HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
            % (cookie, len(body), body)
        )
        return self._answer


class Session:
    """A session with its connection."""

    def __init__(self, connection: Connection, client_id: bytes) -> None:
        self.connection = connection
        self.id = client_id
        self.received = 0


class Clients:
    """All clients of a measurement. With several ports each connection reaches one of them at random."""

    def __init__(self, *ports: int, stay: bool = False) -> None:
        """`stay`: each client keeps the connection of its handshake."""
        self._ports = ports
        self._stay = stay
        self._random = random.Random(len(ports))
        self._sessions: list[Session] = []
        self._receivers: list[Session] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._sessions:
            session.connection.transport.close()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self._random.choice(self._ports))
        return connection

    async def shake_hands(self, *, ack: bool) -> Session:
        """A new session, whose further requests have a connection of their own if there are several ports, unless it stays."""
        connection = await self._connect()
        message = {
            "channel": "/meta/handshake",
            "id": "0",
            "version": "1.0",
            "supportedConnectionTypes": ["long-polling"],
            "ext": {"ack": ack},
        }
        if not ack:
            del message["ext"]  # to the floor, all that say something of it want it
        (reply,) = json.loads(await connection.post(json.dumps([message]).encode()))
        assert reply["successful"], reply
        if len(self._ports) > 1 and not self._stay:
            cookie = connection.cookie
            connection.transport.close()
            connection = await self._connect()
            connection.cookie = cookie
        session = Session(connection, reply["clientId"].encode())
        self._sessions.append(session)
        return session

    async def receive(self, channel: bytes, *, ack: bool = True, more: bytes = b"") -> None:
        """A session that receives the channel and takes what comes, until the end; a reliable one acknowledges it. `more` goes
        into the subscribe."""
        session = await self.shake_hands(ack=ack)
        answer = await session.connection.post(
            b'[{"channel":"/meta/subscribe","subscription":["%b"],"clientId":"%b","id":"1"%b}]'
            % (channel, session.id, more)
        )
        assert b'"successful":true' in answer, answer
        self._receivers.append(session)
        self._tasks.append(asyncio.create_task(self._take(session, b'"channel":"%b"' % channel, ack=ack)))

    async def _take(self, session: Session, mark: bytes, *, ack: bool) -> None:
        connect = b'[{"channel":"/meta/connect","connectionType":"long-polling","clientId":"%b"' % session.id
        more = b',"ext":{"ack":0}' if ack else b""
        for number in count(2):  # a connect with the id of the one before would be taken for its copy
            body = await session.connection.post(b'%b,"id":"%d"%b}]' % (connect, number, more))
            session.received += body.count(mark)
            if ack:
                found = _ACK.search(body)
                assert found is not None, body
                more = b',"ext":{"ack":%b}' % found[1]

    async def publish_all(self, publishers: list[Session], channel: bytes, more: bytes, seconds: float) -> int:
        """Let each publish, wait for the answer and publish again; how many were answered."""
        end = time.perf_counter() + seconds
        bodies = [publication(session, channel, more) for session in publishers]
        publishing = (_publish_until(end, *each) for each in zip(publishers, bodies, strict=True))
        return sum(await asyncio.gather(*publishing))

    async def publish_at(self, publisher: Session, channel: bytes, more: bytes, rate: int, seconds: float) -> int:
        """Publish at this rate, one after the other; how many were answered."""
        begun = time.perf_counter()
        count = int(rate * seconds)
        for number in range(count):
            await asyncio.sleep(max(0, begun + number / rate - time.perf_counter()))
            await _publish(publisher, publication(publisher, channel, more))
        return count

    async def fan_out(self, publisher: Session, channel: bytes, more: bytes, rate: int, seconds: float) -> int:
        """Publish at this rate, wait until all has come, and for the commits; how many deliveries there were."""
        count = await self.deliver(publisher, channel, more, rate, seconds)
        await asyncio.sleep(0.5)  # for the commits
        return count

    async def deliver(self, publisher: Session, channel: bytes, more: bytes, rate: int, seconds: float) -> int:
        """Publish at this rate and wait until all has come; how many deliveries there were."""
        before = sum(session.received for session in self._receivers)
        count = await self.publish_at(publisher, channel, more, rate, seconds)
        wanted = before + count * len(self._receivers)
        deadline = time.perf_counter() + _LIMIT_S
        while sum(session.received for session in self._receivers) < wanted:
            assert time.perf_counter() < deadline, "not everything came"
            await asyncio.sleep(0.01)
        return count * len(self._receivers)


def publication(session: Session, channel: bytes, more: bytes) -> bytes:
    data = b'{"n":1,"text":"%b"}' % (b"x" * 40)
    return b'[{"channel":"%b","data":%b,"clientId":"%b","id":"3"%b}]' % (channel, data, session.id, more)


async def _publish(session: Session, body: bytes) -> None:
    answer = await session.connection.post(body)
    assert b'"successful":true' in answer, answer


async def _publish_until(end: float, session: Session, body: bytes) -> int:
    count = 0
    while time.perf_counter() < end:
        await _publish(session, body)
        count += 1
    return count


async def store_sessions(storage: Storage, count: int, membership: Membership = ALONE, lease_ms: int = 0) -> None:
    """Put sessions into a store as an earlier server would have left them, each with one subscription; or a node with this
    membership, whose lease `end_lease` ends."""
    store = Store(Settings(storage=storage))
    await store.open()
    keys, facts_max = store.keys, 1000
    process = node_leases.this_process("bench", has_directory=False)
    await store.run([node_leases.claim(keys, FORMER, "bench", process, lease_ms, (), membership)])
    for start in range(0, count, 250):
        numbers = range(start, min(start + 250, count))
        login = [{"id": f"client{number:032}", "browser": f"browser{number:032}", "ack": True} for number in numbers]
        logins = [session_store.login(keys, FORMER, "client/anonymous/", each, -1, facts_max) for each in login]
        names = [answer.name for answer in await store.run(logins)]
        subscribes = [
            session_store.subscribe(keys, FORMER, name, [f"/bench/{number % 1000}"], facts_max)
            for number, name in zip(numbers, names, strict=True)
        ]
        await store.run(subscribes)
    await store.close()


async def end_lease(storage: Storage) -> None:
    """End that lease."""
    store = Store(Settings(storage=storage))
    await store.open()
    process = node_leases.this_process("bench", has_directory=False)
    await store.run([node_leases.renew(store.keys, FORMER, process, 0)])
    await store.close()
