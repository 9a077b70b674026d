"""Count the machine's instructions that a delivery takes in the server, beside those of an earlier state.

    .venv/bin/python bench/instructions.py --before DIRECTORY    # a checkout of the earlier state; about ten minutes

Each case runs under valgrind with few rounds and with many; the difference belongs to the rounds alone. There is no socket:
what a client sends is handed to the connection, and what the server writes is read back, so the kernel has no share. The
figures hold on a busy machine, where times do not. They include what the client of this script does, the same in both.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from mmap import mmap
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import orjson
from section import Figure, Section, parser
from websockets.frames import Frame, Opcode

HERE: Final = Path(__file__).parents[1]
SESSIONS: Final = 50
FEW, MANY = 10, 50
LIMIT: Final = 1.01
"""At most so many times the instructions of the earlier state."""
PATIENCE_S: Final = 900

IDLE: Final = 10_000
"""Clients that hold a connect while nothing happens."""

OWN: Final = mmap(-1, 64 * 1024)
"""The buffer of a loop."""


class Wire(asyncio.Transport):
    """The far end of a connection, at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.on_write: Callable[[], None] | None = None

    def write(self, data: Any) -> None:
        """Keep what the server sends."""
        self.written.append(bytes(data))
        if self.on_write is not None:
            self.on_write()

    def is_closing(self) -> bool:
        """No."""
        return False

    def get_write_buffer_size(self) -> int:
        """Nothing waits to be sent."""
        return 0

    def close(self) -> None:
        """Nothing is open."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Note what the connection has become."""
        self.protocol: Any = protocol

    def resume_reading(self) -> None:
        """What is sent is always handed over."""

    def pause_reading(self) -> None:
        """As above."""


class Client:
    """A long-polling client of the front door."""

    connection_type = "long-polling"

    def __init__(self, connection: asyncio.Protocol, *, acknowledges: bool) -> None:
        self.wire = Wire()
        self._connection = connection
        connection.connection_made(self.wire)
        self._acknowledges = acknowledges
        self._batch = self._sent = 0
        self._cookie = self._id = ""

    def begin(self) -> None:
        """Shake hands, subscribe and connect, where no store has to be waited for."""
        for message in self.beginning():
            self.ask(message)

    def beginning(self, **session: str) -> list[dict[str, Any]]:
        """What it begins with."""
        ext = {"ack": self._acknowledges, **({"session": session} if session else {})}
        return [
            {
                "channel": "/meta/handshake",
                "version": "1.0",
                "supportedConnectionTypes": [self.connection_type],
                "ext": ext,
            },
            {"channel": "/meta/subscribe", "subscription": "/room"},
            {"channel": "/meta/connect", "connectionType": self.connection_type},
        ]

    def body(self, messages: Iterable[dict[str, Any]]) -> bytes:
        """Messages as one payload."""
        elements = []
        for message in messages:
            self._sent += 1  # a connect with the id of the one before would be taken for its copy
            elements.append({"id": str(self._sent), "clientId": self._id, **message})
        return orjson.dumps(elements)

    def send(self, *messages: dict[str, Any]) -> None:
        """Hand a request to the connection."""
        body = self.body(messages)
        head = (
            f"POST /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nCookie: {self._cookie}\r\n"
        )
        self._connection.data_received(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def read(self) -> None:
        """Read the answer that has come. Raises RuntimeError if it is a refusal."""
        head, _, body = self.wire.written.pop().partition(b"\r\n\r\n")
        if cookie := re.search(rb"Set-Cookie: ([^;\r]+)", head):
            self._cookie = cookie[1].decode()
        self._note(orjson.loads(body)[-1])

    def _note(self, reply: dict[str, Any]) -> None:
        if not reply["successful"]:
            raise RuntimeError(f"refused: {reply}")
        self._id = reply.get("clientId", self._id)
        self._batch = reply.get("ext", {}).get("ack", self._batch)

    def ask(self, message: dict[str, Any]) -> None:
        """Send a request and read its answer."""
        self.send(message)
        self.read()

    def connect(self) -> None:
        """Send a connect, which is held."""
        ext = {"ext": {"ack": self._batch}} if self._acknowledges else {}
        self.send({"channel": "/meta/connect", "connectionType": self.connection_type, **ext})


class SocketClient(Client):
    """A client on a WebSocket."""

    connection_type = "websocket"

    def __init__(self, connection: asyncio.Protocol, *, acknowledges: bool) -> None:
        super().__init__(connection, acknowledges=acknowledges)
        connection.data_received(
            b"GET /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        self.wire.written.clear()

    def send(self, *messages: dict[str, Any]) -> None:
        """Hand a frame to the socket, as a loop does: it has a buffer of its own, or that of the socket, and makes bytes of its
        own one."""
        frame = Frame(Opcode.TEXT, self.body(messages)).serialize(mask=True)
        socket = self.wire.protocol
        if hasattr(socket, "get_buffer"):
            socket.get_buffer(-1)[: len(frame)] = frame
            socket.buffer_updated(len(frame))
        else:
            OWN[: len(frame)] = frame
            socket.data_received(OWN[: len(frame)])

    def read(self) -> None:
        """Read the frame that has come. Raises RuntimeError if it is a refusal."""
        frame = self.wire.written.pop()
        self._note(orjson.loads(frame[frame.index(b"[{") :])[-1])


@dataclass(slots=True)
class World:
    """A server without sockets, and its clients."""

    broker: Any
    let_in: Callable[[], Client]
    """A new client, which has sent nothing."""
    clients: list[Client]


Step = Callable[[World], None]


def _outbound(broker: Any) -> Any:
    """The way out of this broker: in the state before, the broker had all parts itself."""
    return broker.outbound if hasattr(broker, "outbound") else broker.mailboxes.outbound


def _deliver(world: World) -> None:
    for client in world.clients:
        client.connect()
    world.broker.publish("/room", {"text": "x" * 40})
    _outbound(world.broker)._flush()  # noqa: SLF001 - the loop would do it at the end of its turn
    for client in world.clients:
        client.read()


def _publish(world: World) -> None:
    for client in world.clients:
        client.ask({"channel": "/empty", "data": {"text": "x" * 40}})


def _let_in(world: World) -> None:
    for _ in range(SESSIONS):
        client = world.let_in()
        client.begin()
        client.connect()


async def _answered(broker: Any) -> None:
    """Wait until the store has answered everything, and all that came of it is written."""
    access = broker.access if hasattr(broker, "access") else broker.runtime.access
    while (busy := access.writing.under_way) is not None:
        await asyncio.wait([busy])
    _outbound(broker)._flush()  # noqa: SLF001 - as above


async def _written(broker: Any, client: Client) -> None:
    """Wait for the answer to a request."""
    while not client.wire.written:
        await _answered(broker)
        await asyncio.sleep(0)


async def _deliver_stored(broker: Any, clients: list[Client]) -> None:
    message = {"channel": "/room", "data": {"text": "x" * 40}, "ext": {"publish": {"persistent": True}}}
    await _publish_stored(broker, clients, [message])


async def _deliver_addressed(broker: Any, clients: list[Client]) -> None:
    names = [f"client/joe{number}/1" for number in range(1, len(clients))]
    qos = [{"publish": {"persistent": True, "destination": [{"to": each}]}} for each in names]
    data = {"text": "x" * 40}
    await _publish_stored(broker, clients, [{"channel": "/service/box", "data": data, "ext": each} for each in qos])


async def _publish_stored(broker: Any, clients: list[Client], messages: list[dict[str, Any]]) -> None:
    """The last of the clients publishes these together, and the others receive what they bring."""
    *receivers, publisher = clients
    for client in receivers:
        client.connect()
    publisher.send(*messages)
    await _written(broker, publisher)
    for client in (publisher, *receivers):
        client.read()


STORED: Final[dict[str, tuple[str, Callable[[Any, list[Client]], Awaitable[None]]]]] = {
    "stored": ("a delivery of a stored message, acknowledged", _deliver_stored),
    "addressed": ("a stored message to a session, acknowledged", _deliver_addressed),
}
"""The same with a store, which is another process and is not counted."""

IDLING: Final = {"idle": f"a second in which {IDLE:,} clients hold a connect, 1 in 30 of which ends"}
"""The same with a clock of its own; a round is not divided by the clients."""

CASES: Final[dict[str, tuple[str, type[Client], bool, Step]]] = {
    "delivery": ("a delivery over long-polling", Client, False, _deliver),
    "acknowledged": ("a delivery over long-polling, acknowledged", Client, True, _deliver),
    "publish": ("a publish without subscribers", Client, False, _publish),
    "socket": ("a delivery over a WebSocket, acknowledged", SocketClient, True, _deliver),
    "socket_publish": ("a publish over a WebSocket without subscribers", SocketClient, False, _publish),
    "let_in": ("letting a client in: handshake, subscribe, connect", Client, False, _let_in),
    "socket_let_in": ("letting a client in over a WebSocket, its upgrade included", SocketClient, False, _let_in),
}
"""What is counted, by which clients, whether they acknowledge, and a round of it."""


def _no_other_lane() -> NoReturn:
    raise RuntimeError("a request was left to aiohttp")


def _as_served() -> None:
    """Collect garbage as a started server does: a look at all that was imported would fall into one of the counts, or not."""
    gc.freeze()
    gc.set_threshold(4_000, 2, 800)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be stopped, and then stands still until it is moved."""

    now: float | None = None

    def time(self) -> float:
        """Seconds since some moment."""
        return super().time() if self.now is None else self.now

    async def pass_second(self) -> None:
        """Let the timers of a second fire, one after the other."""
        self.now = self.time()
        end = self.now + 1.0
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined] # a heap; asyncio has no other way
        while timers and (due := timers[0].when()) < end:
            self.now = max(self.now, due)
            await asyncio.sleep(0)  # in this turn the timers that are due join the queue
            while self._ready:  # type: ignore[attr-defined] # a deque, as above
                await asyncio.sleep(0)
        self.now = end


@asynccontextmanager
async def _served() -> AsyncIterator[tuple[Any, Any]]:
    """The broker and the lane of a server with a store, in the state whose `app` comes first on the path."""
    from aiohttp import web

    from crewel import server
    from crewel.settings import load
    from crewel.transports.fast_lane import FastLane

    with tempfile.TemporaryDirectory() as directory:
        app = web.Application()
        sets = ["bayeux.max_sessions_per_browser=-1", f"storage.data_dir={directory}", "delivery.commit_ms=60000"]
        broker = server.attach(app, load(None, sets))
        runner = web.AppRunner(app)
        await runner.setup()
        lane = FastLane(app[server.ENDPOINT], _no_other_lane)
        if hasattr(lane, "turns"):
            lane.turns.slice_s = inf
        yield broker, lane
        await lane.close(0)
        await runner.cleanup()


async def _run_stored(case: str, rounds: int) -> None:
    """The rounds of a case with a store."""
    time.perf_counter = lambda: 0.0  # under valgrind a round takes longer than a turn of the loop
    from crewel.transports.http_fast import FastConnection

    async with _served() as (broker, lane):
        clients = [Client(FastConnection(lane), acknowledges=True) for _ in range(SESSIONS + 1)]
        for number, client in enumerate(clients, 1):
            messages = client.beginning(name=f"client/joe{number}/1")
            for message in messages if number <= SESSIONS else messages[:1]:
                client.send(message)
                await _written(broker, client)
                client.read()
        _as_served()
        for _ in range(rounds):
            await STORED[case][1](broker, clients)


async def _run_idle(rounds: int) -> None:
    """Clients that come in over the time of a held connect, and so many seconds in which each connects again when it is due."""
    from crewel.admin import metrics_history
    from crewel.transports.http_fast import FastConnection

    # How often all sessions are counted depends on how long a count takes: here ten milliseconds.
    metrics_history.process_time = count(step=0.01).__next__
    answered: list[Client] = []
    loop = cast("VirtualLoop", asyncio.get_running_loop())
    async with _served() as (broker, lane):
        held_s = broker.settings.bayeux.timeout_ms // 1000
        for _ in range(held_s):
            for _ in range(-(-IDLE // held_s)):
                client = Client(FastConnection(lane), acknowledges=False)
                client.begin()
                client.connect()
                client.wire.on_write = partial(answered.append, client)
            await loop.pass_second()
        _as_served()
        for _ in range(rounds):
            await loop.pass_second()
            while answered:
                client = answered.pop()
                client.read()
                client.connect()
        loop.now = None


async def _run(case: str, rounds: int) -> None:
    """The rounds, in the state whose `app` comes first on the path."""
    from aiohttp import web

    from crewel import server
    from crewel.settings import load
    from crewel.transports.fast_lane import FastLane
    from crewel.transports.http_fast import FastConnection

    _, kind, acknowledges, step = CASES[case]
    app = web.Application()
    broker = server.attach(app, load(None, ["bayeux.max_sessions_per_browser=-1"]))
    lane = FastLane(app[server.ENDPOINT], _no_other_lane)
    if hasattr(lane, "turns"):
        lane.turns.slice_s = inf  # under valgrind a round takes longer than a turn of the loop
    if hasattr(lane.sockets, "arrivals"):
        lane.sockets.arrivals.slice_s = inf

    def let_in() -> Client:
        return kind(FastConnection(lane), acknowledges=acknowledges)

    world = World(broker, let_in, [let_in() for _ in range(SESSIONS)])
    for client in world.clients:
        client.begin()
    _as_served()
    for _ in range(rounds):
        step(world)
        await asyncio.sleep(0)
    await lane.close(0)
    await broker.close()


def _count(state: Path, case: str, rounds: int) -> int:
    """The instructions of a whole process. Raises SystemExit if it fails."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, __file__, "--child", case, str(rounds)]
    environment = {**os.environ, "PYTHONPATH": str(state / "app"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    found = re.search(r"I +refs: +([\d,]+)", done.stderr)
    if done.returncode or found is None:
        raise SystemExit(f"{case} in {state} failed:\n{done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def _per_round(state: Path, case: str) -> int:
    spent = _count(state, case, MANY) - _count(state, case, FEW)
    return round(spent / (MANY - FEW) / (1 if case in IDLING else SESSIONS))


def main() -> None:
    """Measure, and write the section of RESULTS.md."""
    line: argparse.ArgumentParser = parser(__doc__)
    line.add_argument("--before", type=Path, help="a checkout of the earlier state")
    line.add_argument("--child", nargs=2, metavar=("CASE", "ROUNDS"), help=argparse.SUPPRESS)
    given = line.parse_args()
    if given.child:
        case, rounds = given.child[0], int(given.child[1])
        if case in IDLING:
            asyncio.Runner(loop_factory=VirtualLoop).run(_run_idle(rounds))
        else:
            asyncio.run((_run_stored if case in STORED else _run)(case, rounds))
        return
    if given.before is None or not (given.before / "app" / "crewel").is_dir():
        line.error("--before needs a checkout of Crewel, with app/crewel in it")
    if shutil.which("valgrind") is None:
        line.error("valgrind is missing: install it (Debian: apt-get install valgrind)")
    for state in (HERE, given.before):
        compileall.compile_dir(state / "app" / "crewel", quiet=1)  # the first run of a new checkout would count it
    rows = []
    for case, what in {
        **{each: row[0] for each, row in CASES.items()},
        **{each: row[0] for each, row in STORED.items()},
        **IDLING,
    }.items():
        now, before = _per_round(HERE, case), _per_round(given.before.resolve(), case)
        ratio = now / before
        rows.append(Figure(what, f"{now:,}", ratio <= LIMIT, f"{before:,} before: {ratio:.3f}, at most {LIMIT}").row())
    Section(
        "instructions",
        f"Instructions of a delivery, beside {given.before.name}",
        f"instructions of the processor, in the server and without the kernel, {SESSIONS} clients.",
        ("what", "instructions:", "verdict", "in figures"),
        rows,
    ).publish(is_part=False)


if __name__ == "__main__":
    main()
