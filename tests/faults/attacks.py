"""What one stranger does to a server, as a process of its own:
`python -m tests.faults.attacks PORT NAME SECONDS ADDRESS SESSIONS SEED`.

An attack is a method that yields once, when what it needs is there. It then does one thing as fast as it can, without looking
at the answers, until its time is over. `tests.faults.costs` measures what others wait meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import struct
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tests.faults.abuser import Abuser, Fields, Socket, message

BATCH: Final = 840
NO_PUBLISHES: Final[tuple[Fields, ...]] = (
    {"channel": "bad"},
    {"channel": "/meta/unsubscribe", "subscription": "/none"},
    {"channel": "/meta/connect", "advice": {"timeout": 0}},
    {"channel": "/meta/nonsense"},
    {"channel": "/a/*", "data": 1},
    {"channel": "/a", "clientId": "of no session"},
)
TOKEN: Final = "the-token-of-the-exports"
AT_ONCE: Final = 16  # sessions that begin side by side
_FLOOD: Final = 32_768  # bytes of small frames that are written at a time
_CONTINUATION: Final = 0x00  # a fragment that is not the last one (RFC 6455, 5.2)
_TEXT: Final = 0x01
_FINAL: Final = 0x80
_COMPRESSED: Final = 0x40
_PING: Final = _FINAL | 0x09
_PONG: Final = _FINAL | 0x0A


class Attacker(Abuser):
    """One stranger with so many sessions."""

    def __init__(self, port: int, address: str, sessions: int, seed: int) -> None:
        super().__init__(port, address)
        self.sessions = sessions
        self.random = random.Random(seed)

    async def sockets(self, count: int, *, reads: bool = True, ext: Fields | None = None) -> list[Socket]:
        """So many sessions, each with a socket of its own."""
        sockets: list[Socket] = []

        async def begin() -> None:
            while len(sockets) < count:
                sockets.append(await self.socket(reads=reads, ext=ext))

        await asyncio.gather(*(begin() for _ in range(min(AT_ONCE, count))))
        return sockets[:count]

    # Filters

    async def _sieved(self, filters: list[str]) -> AsyncIterator[None]:
        sockets = await self.sockets(self.sessions)
        for socket, text in zip(sockets, itertools.cycle(filters), strict=False):
            await subscribe(socket, "/sieve", text)
        talker = await self.socket()
        yield
        while True:
            await talker.send(talker.message("/sieve", data=list(range(400, 1000))))
            # An ended subscription is made again, as an application does.
            again = self.random.randrange(len(sockets))
            await subscribe(sockets[again], "/sieve", filters[again % len(filters)])
            await asyncio.sleep(0.005)

    async def filters_equal(self) -> AsyncIterator[None]:
        """All sessions have the same expensive filter."""
        async for _ in self._sieved([expensive(0)]):
            yield

    async def filters_blank(self) -> AsyncIterator[None]:
        """Each session has the same expensive filter, written with another number of blanks."""
        async for _ in self._sieved([expensive(0) + " " * number for number in range(min(self.sessions, 400))]):
            yield

    async def filters_different(self) -> AsyncIterator[None]:
        """Each session has an expensive filter of its own."""
        async for _ in self._sieved([expensive(number) for number in range(self.sessions)]):
            yield

    async def filters_cheap(self) -> AsyncIterator[None]:
        """Each session has a filter of its own that costs little."""
        async for _ in self._sieved([f"data[0] == `{number}`" for number in range(self.sessions)]):
            yield

    # Batches

    async def _from_all(
        self, *rounds: Callable[[Socket, int], list[Fields]], ext: Fields | None = None
    ) -> AsyncIterator[None]:
        sockets = await self.sockets(self.sessions, ext=ext)
        yield
        for number in itertools.count():
            for make in rounds:
                for socket in self.random.sample(sockets, min(len(sockets), 8)):
                    await socket.send(*make(socket, number))

    async def batches(self) -> AsyncIterator[None]:
        """Batches of 840 messages, to all sessions."""
        sockets = await self.sockets(self.sessions)
        for socket in sockets:
            await socket.send(socket.message("/meta/subscribe", subscription="/batch"))
        yield
        while True:
            socket = self.random.choice(sockets)
            await socket.send(*short(socket, ({"channel": "/batch", "data": 1} for _ in range(BATCH))))

    async def batches_unheard(self) -> AsyncIterator[None]:
        """Batches of 840 messages that have no receiver."""
        async for _ in self._from_all(
            lambda socket, _: short(socket, ({"channel": "/unheard", "data": 1} for _ in range(BATCH)))
        ):
            yield

    async def batches_deflated(self) -> AsyncIterator[None]:
        """Batches of 840 messages that are no publishes, compressed to a few hundred bytes each, so many at a time as one turn
        may receive."""
        floods = []
        for _ in range(self.sessions):
            socket = await self.open("permessage-deflate; server_no_context_takeover; client_no_context_takeover")
            await socket.send(message("/meta/handshake", version="1.0", supportedConnectionTypes=["websocket"]))
            socket.client_id = (await socket.receive())[0]["clientId"]
            frame = _deflated(socket.message("bad"), *itertools.islice(itertools.cycle(NO_PUBLISHES), BATCH - 1))
            floods.append((socket, frame * (_FLOOD // len(frame))))
            self.tasks.append(asyncio.create_task(socket.discard()))
        yield
        while True:
            for socket, flood in self.random.sample(floods, min(len(floods), 8)):
                socket.writer.write(flood)
                await socket.writer.drain()
                await asyncio.sleep(0)

    async def batches_invalid(self) -> AsyncIterator[None]:
        """Batches of messages that are refused."""
        async for _ in self._from_all(lambda socket, _: short(socket, ({"channel": "bad"} for _ in range(BATCH)))):
            yield

    async def new_channels(self) -> AsyncIterator[None]:
        """Batches of messages of which each is the first of its channel."""
        async for _ in self._from_all(
            lambda socket, _: short(
                socket, ({"channel": f"/new/{self.random.getrandbits(40)}", "data": 1} for _ in range(600))
            )
        ):
            yield

    async def subscribing(self) -> AsyncIterator[None]:
        """Many names in each subscribe and each unsubscribe."""

        def names(number: int) -> list[str]:
            return [f"/mine/{number % 7}/{each}/{'a/' * 4}b" for each in range(900)]

        async for _ in self._from_all(
            lambda socket, number: [socket.message("/meta/subscribe", subscription=names(number))],
            lambda socket, number: [socket.message("/meta/unsubscribe", subscription=names(number))],
        ):
            yield

    async def subscribing_one_by_one(self) -> AsyncIterator[None]:
        """Batches of subscribes and unsubscribes of one name each."""

        def batch(socket: Socket, kind: str) -> list[Fields]:
            return short(socket, ({"channel": f"/meta/{kind}", "subscription": f"/m/{each}"} for each in range(550)))

        async for _ in self._from_all(
            lambda socket, _: batch(socket, "subscribe"), lambda socket, _: batch(socket, "unsubscribe")
        ):
            yield

    async def groups(self) -> AsyncIterator[None]:
        """Many names in each subscribe of a member of groups, twice, and in each unsubscribe."""
        ext = {"subscribe": {"group": "stranger"}}

        def names(number: int) -> list[str]:
            return [f"/grouped/{number % 3}/{each}" for each in range(900)]

        async for _ in self._from_all(
            lambda socket, number: [socket.message("/meta/subscribe", subscription=names(number), ext=ext)],
            lambda socket, number: [socket.message("/meta/subscribe", subscription=names(number), ext=ext)],
            lambda socket, number: [socket.message("/meta/unsubscribe", subscription=names(number))],
            ext={"ack": True},
        ):
            yield

    async def mixed(self) -> AsyncIterator[None]:
        """Batches of anything, in any mixture."""
        sockets = await self.sockets(self.sessions)
        yield
        persistent = {"publish": {"persistent": True}}
        while True:
            socket, number = self.random.choice(sockets), self.random.getrandbits(30)
            names = [f"/m/{number % 50}/{each}" for each in range(self.random.choice((1, 40)))]
            kinds: list[Fields] = [
                {"channel": "/batch", "data": [number] * 20},
                {"channel": "/batch", "data": 1, "ext": persistent},
                {"channel": "/kept", "data": 1, "ext": {"publish": {"history": {"maxEntries": 50}}}},
                {"channel": f"/new/{number}", "data": 1},
                {"channel": "bad", "data": 1},
                {"channel": "/to", "data": 1, "ext": {"publish": {"destination": {"to": f"client/a{number % 99}"}}}},
                {"channel": "/meta/subscribe", "subscription": names},
                {"channel": "/meta/unsubscribe", "subscription": names},
                {
                    "channel": "/meta/subscribe",
                    "subscription": "/batch",
                    "ext": {"subscribe": {"filter": expensive(number)}},
                },
                {"channel": "/service/get", "data": {"channel": "/kept", "numEntries": -1}},
                {"channel": "/service/update", "data": [{"id": str(number), "state": "OK"}] * 20},
                {"channel": "/meta/connect", "connectionType": "websocket", "advice": {"timeout": 0}},
            ]
            some = self.random.sample(kinds, self.random.randint(1, 4))
            most = 60_000 // max(len(json.dumps(each)) + 60 for each in some)
            await socket.send(*short(socket, (self.random.choice(some) for _ in range(min(most, BATCH)))))

    # Histories

    async def gets(self) -> AsyncIterator[None]:
        """Batches of calls for a history of 500 KB."""
        sockets = await self.sockets(self.sessions)
        ext = {"publish": {"history": {"maxEntries": 100}}}
        for _ in range(25):
            await sockets[0].send(sockets[0].message("/kept", data="x" * 20_000, ext=ext))
        yield
        asked = {"channel": "/kept", "numEntries": -1}
        while True:
            socket = self.random.choice(sockets)
            await socket.send(*(socket.message("/service/get", data=asked) for _ in range(200)))

    # Receivers that are away

    async def _away(self, *, entries: int) -> list[str]:
        """So many reliable sessions that receive everything, and whose clients are gone; returns their clientIds."""
        ids: list[str] = []
        for start in range(0, self.sessions, AT_ONCE):
            names = [f"away{self.random.getrandbits(40)}/1" for _ in range(start, min(start + AT_ONCE, self.sessions))]
            receivers = await asyncio.gather(
                *(
                    self.socket(
                        reads=False, ext={"ack": True, "session": {"name": name, "queue": {"maxEntries": entries}}}
                    )
                    for name in names
                )
            )
            for each in receivers:
                await each.send(each.message("/meta/subscribe", subscription="/**"))
                await each.receive()
                each.writer.close()
            ids += [each.client_id for each in receivers]
        return ids

    async def absent_receivers(self) -> AsyncIterator[None]:
        """Batches of 400 persistent messages for sessions that are away, whose queues are soon full."""
        await self._away(entries=100)
        talkers = await self.sockets(8)
        yield
        ext = {"publish": {"persistent": True}}
        for number in itertools.count():
            talker = talkers[number % len(talkers)]
            await talker.send(*short(talker, ({"channel": "/full", "data": 1, "ext": ext} for _ in range(400))))

    async def absent_receivers_end(self) -> AsyncIterator[None]:
        """The ends of sessions with full queues, whose messages become dead letters, and new ones in their place."""
        talker = await self.socket()
        connection = await self.http()
        ext = {"publish": {"persistent": True}}
        has_begun = False
        while True:
            ids = await self._away(entries=1000)
            for _ in range(3):
                await talker.send(*short(talker, ({"channel": "/full", "data": 1, "ext": ext} for _ in range(400))))
            if not has_begun:
                has_begun = True
                yield
            for start in range(0, len(ids), 100):
                await self.ask(connection, *(message("/meta/disconnect", each) for each in ids[start : start + 100]))

    # An operator

    def exports(self) -> AsyncIterator[None]:
        """Exports of a few thousand dead letters and of the audit, on many connections."""
        return self._looks("dead-letters/export", "audit/export")

    def lists(self) -> AsyncIterator[None]:
        """The longest pages of dead letters and of the audit, and counts that read them, on many connections."""
        return self._looks("dead-letters?count=1000", "audit?count=1000", "dead-letters/count?by=code&contains=x")

    async def _looks(self, *resources: str) -> AsyncIterator[None]:
        """There are a few thousand dead letters, and many connections ask for what these resources tell."""
        await self._away(entries=1)
        talker = await self.socket()
        ext = {"publish": {"persistent": True}}
        await talker.send(*short(talker, ({"channel": "/full", "data": "x" * 50, "ext": ext} for _ in range(200))))
        head = f"Host: 127.0.0.1\r\n{self.forwarded}Authorization: Bearer {TOKEN}\r\n\r\n"
        flood = "".join(f"GET /admin/api/{each} HTTP/1.1\r\n{head}" for each in resources).encode()
        connections = [await self.http() for _ in range(min(self.sessions, 20))]
        self.tasks += [asyncio.create_task(_discard(reader)) for reader, _ in connections]
        yield
        while True:
            for _, writer in connections:
                writer.write(flood)
                await writer.drain()
                await asyncio.sleep(0.005)

    # Frames without a message

    async def _framed(self, frame: bytes, *, has_shaken_hands: bool, first: bytes = b"") -> AsyncIterator[None]:
        """All sockets send this frame without end. One that is closed comes again."""
        flood = frame * (_FLOOD // len(frame))

        async def send(socket: Socket | None) -> None:
            while True:
                with suppress(OSError, asyncio.IncompleteReadError, KeyError, ValueError):
                    socket = socket or await (self.socket(reads=False) if has_shaken_hands else self.open())
                    reading = asyncio.create_task(_discard(socket.reader))
                    socket.writer.write(first)
                    while not reading.done():
                        socket.writer.write(flood)
                        await socket.writer.drain()
                        await asyncio.sleep(0)
                    socket.writer.close()
                socket = None
                await asyncio.sleep(0.05)

        sockets = await self.sockets(self.sessions, reads=False) if has_shaken_hands else [None] * self.sessions
        yield
        async with asyncio.TaskGroup() as tasks:
            for socket in sockets:
                tasks.create_task(send(socket))

    async def pings(self) -> AsyncIterator[None]:
        """Pings before any handshake."""
        async for _ in self._framed(_frame(_PING), has_shaken_hands=False):
            yield

    async def pings_of_sessions(self) -> AsyncIterator[None]:
        """Pings of sockets that have shaken hands."""
        async for _ in self._framed(_frame(_PING), has_shaken_hands=True):
            yield

    async def pings_full(self) -> AsyncIterator[None]:
        """Pings that carry as much as they may."""
        async for _ in self._framed(_frame(_PING, b"x" * 125), has_shaken_hands=False):
            yield

    async def pongs(self) -> AsyncIterator[None]:
        """Pongs that answer nothing."""
        async for _ in self._framed(_frame(_PONG), has_shaken_hands=True):
            yield

    async def fragments_empty(self) -> AsyncIterator[None]:
        """A text of fragments with nothing in them, which has no end."""
        async for _ in self._framed(_frame(_CONTINUATION), has_shaken_hands=True, first=_frame(_TEXT)):
            yield

    async def texts_empty(self) -> AsyncIterator[None]:
        """Texts with no message in them."""
        async for _ in self._framed(_frame(_FINAL | _TEXT, b"[]"), has_shaken_hands=True):
            yield

    # Handshakes

    async def handshakes(self) -> AsyncIterator[None]:
        """Handshakes on many connections, without waiting for their answers."""
        flood = self.request(message("/meta/handshake", version="1.0")) * 20
        writers = []
        for _ in range(min(self.sessions, 100)):
            reader, writer = await self.http()
            self.tasks.append(asyncio.create_task(_discard(reader)))
            writers.append(writer)
        yield
        while True:
            for writer in writers:
                writer.write(flood)
                await writer.drain()
                await asyncio.sleep(0)

    async def handshakes_in_batches(self) -> AsyncIterator[None]:
        """Requests of many handshakes each."""
        flood = self.request(*({"channel": "/meta/handshake", "version": "1.0"} for _ in range(BATCH)))
        connections = [await self.http() for _ in range(min(self.sessions, 8))]
        self.tasks += [asyncio.create_task(_discard(reader)) for reader, _ in connections]
        yield
        while True:
            for _, writer in connections:
                writer.write(flood)
                await writer.drain()
                await asyncio.sleep(0)

    # Slow links

    async def slow_links(self) -> AsyncIterator[None]:
        """Requests that come byte by byte, on many connections."""
        request = self.request(*(message("/meta/handshake", version="1.0") for _ in range(10)))
        connections = [await self.http() for _ in range(self.sessions)]
        self.tasks += [asyncio.create_task(_discard(reader)) for reader, _ in connections]
        yield
        for place in itertools.cycle(range(len(request))):
            for _, writer in connections:
                writer.write(request[place : place + 1])
                await writer.drain()
                await asyncio.sleep(0)


def _frame(first: int, payload: bytes = b"") -> bytes:
    return bytes((first, 0x80 | len(payload))) + bytes(4) + payload


def _deflated(*messages: Fields) -> bytes:
    """A frame that carries them compressed."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    payload = deflate.compress(json.dumps(messages).encode()) + deflate.flush(zlib.Z_SYNC_FLUSH)
    payload = payload.removesuffix(b"\x00\x00\xff\xff")
    assert len(payload) >= 126  # else the head is shorter
    return struct.pack("!BBH", _FINAL | _COMPRESSED | _TEXT, 0xFE, len(payload)) + bytes(4) + payload


def expensive(number: int) -> str:
    """A filter that looks at each item of a list again and again; each number makes another one."""
    return f"length(data[?@ != `{-number - 1}` && @ != `-1` && @ != `-2` && @ != `-3`]) > `1`"


def short(socket: Socket, messages: Iterable[Fields]) -> list[Fields]:
    """Messages of which only the first says whose they are: so more of them fit into a request."""
    return [{**each, "clientId": socket.client_id} for each in messages]


async def subscribe(socket: Socket, channel: str, text: str) -> None:
    ext = {"subscribe": {"filter": text}}
    await socket.send(socket.message("/meta/subscribe", subscription=channel, ext=ext))


async def _discard(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1 << 18):
            pass


@dataclass(frozen=True)
class Attack:
    """One of the things that a stranger may do."""

    run: Callable[[Attacker], AsyncIterator[None]]
    sets: tuple[str, ...] = ()
    """The settings of the server that it is done to."""
    address: str = "203.0.113.7"
    """Where it comes from; empty: from loopback, where no rates hold."""
    work_s: float = 1.0
    """Processor seconds of the server until a persistent publish of another client has its answer, at most."""


_OPERATED: Final = (f"admin.token={TOKEN}",)
_AIOHTTP: Final = ("http.fast_lane=false",)

ATTACKS: Final[Mapping[str, Attack]] = {
    "filters_equal": Attack(Attacker.filters_equal),
    "filters_blank": Attack(Attacker.filters_blank),
    "filters_different": Attack(Attacker.filters_different),
    "filters_cheap": Attack(Attacker.filters_cheap),
    "batches": Attack(Attacker.batches),
    "batches_unheard": Attack(Attacker.batches_unheard),
    "batches_deflated": Attack(Attacker.batches_deflated),
    "batches_deflated_aiohttp": Attack(Attacker.batches_deflated, _AIOHTTP),
    "batches_invalid": Attack(Attacker.batches_invalid),
    "new_channels": Attack(Attacker.new_channels),
    "subscribing": Attack(Attacker.subscribing),
    "subscribing_one_by_one": Attack(Attacker.subscribing_one_by_one),
    "groups": Attack(Attacker.groups),
    "mixed": Attack(Attacker.mixed),
    "gets": Attack(Attacker.gets),
    "absent_receivers": Attack(Attacker.absent_receivers),
    # One request of 400 messages for 1,000 full queues, which no rate delays, comes before the publish, or what the store has
    # answered to the ends of 1,000 sessions, in turns with all others.
    "absent_receivers_local": Attack(Attacker.absent_receivers, address="", work_s=2.0),
    "absent_receivers_end": Attack(Attacker.absent_receivers_end, work_s=2.0),
    "exports": Attack(Attacker.exports, _OPERATED),
    "lists": Attack(Attacker.lists, _OPERATED),
    "pings": Attack(Attacker.pings),
    "pings_of_sessions": Attack(Attacker.pings_of_sessions),
    "pings_full": Attack(Attacker.pings_full),
    "pongs": Attack(Attacker.pongs),
    "fragments_empty": Attack(Attacker.fragments_empty),
    "texts_empty": Attack(Attacker.texts_empty),
    "pings_aiohttp": Attack(Attacker.pings, _AIOHTTP),
    "fragments_empty_aiohttp": Attack(Attacker.fragments_empty, _AIOHTTP),
    "texts_empty_aiohttp": Attack(Attacker.texts_empty, _AIOHTTP),
    "handshakes": Attack(Attacker.handshakes),
    "handshakes_in_batches": Attack(Attacker.handshakes_in_batches),
    "slow_links": Attack(Attacker.slow_links),
}
"""By name."""


async def main(port: int, name: str, seconds: float, address: str, sessions: int, seed: int) -> None:
    attacker = Attacker(port, address, sessions, seed)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds + 300
    has_begun = False
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline) as limit:
            while True:
                try:
                    async for _ in ATTACKS[name].run(attacker):
                        if not has_begun:
                            has_begun = True
                            print("ready", flush=True)
                            limit.reschedule(loop.time() + seconds)
                except (OSError, asyncio.IncompleteReadError, KeyError, ValueError):
                    await asyncio.sleep(0.05)  # it was thrown out, and comes again
    for task in attacker.tasks:
        task.cancel()


if __name__ == "__main__":
    _, given_port, given_name, given_seconds, given_address, given_sessions, given_seed = sys.argv
    os.nice(5)  # what is measured beside it must not wait for it
    asyncio.run(
        main(int(given_port), given_name, float(given_seconds), given_address, int(given_sessions), int(given_seed))
    )
