"""How long others wait when very many sockets are ready at once, and how much of that is the machine's.

    python bench/ready.py             15 rounds with 1,000 sockets, written into bench/RESULTS.md (about 5 minutes)
    python bench/ready.py --quick     two rounds with 200, printed only

While the server stands still, all sockets of a stranger send. Behind them, another client asks for the processor time of the
server. What is counted is the processor time from the moment when the server runs again until it handles that request. Beside
Crewel runs the floor, a bare protocol on uvloop that keeps what it receives and does nothing with it: less is not possible for
a server that reads all that is there. The two take turns.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from section import Section, parser, spread
from servers import raise_file_limit

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.faults.abuser import Abuser, Socket
from tests.faults.costs import SERVICE, SETS, STRANGER, WITNESS
from tests.server_process import Server

PING = bytes((0x89, 0x80, 0, 0, 0, 0))  # masked, without a payload (RFC 6455, 5.2)
LOADS = {"one ping each": PING, "5,461 pings each, 32 KiB": PING * 5461}
MORE = ("limits.max_sessions_per_address=0", "limits.max_connections_per_address=0")
AT_ONCE = 50
SETTLE_S = 0.3
"""How long what was sent may take to lie in the buffers of the server, and the server to be done with it."""
ASKED = b"clock"
NEWCOMER = 3
"""Requests of a socket after which its client is no newcomer: those of newcomers wait longer."""


class Keeping(asyncio.Protocol):
    """A connection of the floor."""

    def connection_made(self, transport: Any) -> None:
        """Nothing has been received."""
        self._transport, self._kept = transport, b""

    def data_received(self, data: bytes) -> None:
        """Keep it, and read no more, as a server has to that is flooded; or tell the processor time."""
        if data == ASKED:
            self._transport.write(b"%r" % time.process_time())
        else:
            self._kept = data
            self._transport.pause_reading()


async def floor() -> None:
    """Serve until the end of this process."""
    server = await asyncio.get_running_loop().create_server(Keeping, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


class Target:
    """One of the servers, and the client that asks it."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port
        self._clock = (~pid << 3) | 2  # of its process: clock_getcpuclockid(3)

    async def measure(self, load: bytes, count: int) -> float:
        """Milliseconds."""
        asking = await self.connect(WITNESS)
        sending = []
        for start in range(0, count, AT_ONCE):
            sending += await asyncio.gather(
                *(self.connect(STRANGER) for _ in range(start, min(start + AT_ONCE, count)))
            )
        for _ in range(NEWCOMER):
            await self.handled(asking)
        os.kill(self.pid, signal.SIGSTOP)
        try:
            for at, each in enumerate(sending):
                each.writer.write(load)
                if not at % AT_ONCE:
                    await asyncio.sleep(0)
            await asyncio.sleep(SETTLE_S)
            began = time.clock_gettime(self._clock)
            answer = asyncio.create_task(self.handled(asking))
            await asyncio.sleep(SETTLE_S)
        finally:
            os.kill(self.pid, signal.SIGCONT)
        taken = await answer - began
        for each in (*sending, asking):
            each.writer.transport.abort()
        await asyncio.sleep(SETTLE_S)
        return taken * 1000

    async def connect(self, address: str) -> Socket:
        """A connection. The floor asks for no address."""
        return Socket(*await asyncio.open_connection("127.0.0.1", self.port))

    async def handled(self, socket: Socket) -> float:
        """The processor time of the server when it handles a request, seconds."""
        socket.writer.write(ASKED)
        return float(await socket.reader.read(100))


class Crewel(Target):
    """Crewel, with an application that tells its processor time."""

    async def connect(self, address: str) -> Socket:
        """A socket with a session."""
        return await Abuser(self.port, address).socket(reads=False)

    async def handled(self, socket: Socket) -> float:
        """The processor time of the server when it handles a request, seconds."""
        await socket.send(socket.message("/service/clock", data=0))
        while True:
            for each in await socket.receive():
                if each["channel"] == "/service/clock" and "data" in each:
                    return float(each["data"])


@contextmanager
def running() -> Iterator[dict[str, Target]]:
    """Both servers."""
    command = [sys.executable, __file__, "--floor"]
    with TemporaryDirectory() as data, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bare:
        assert bare.stdout is not None
        options = ["--port=0", f"--service={SERVICE}", *(f"--set={text}" for text in (*SETS, *MORE))]
        crewel = Server(options, Path(data))
        try:
            assert crewel.port is not None
            yield {"crewel": Crewel(crewel.pid, crewel.port), "floor": Target(bare.pid, int(bare.stdout.readline()))}
        finally:
            crewel.close()
            bare.terminate()


async def measure(count: int, rounds: int) -> dict[tuple[str, str], list[float]]:
    """The milliseconds of each server under each load."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for load, data in LOADS.items():
            with running() as targets:  # others each time: what is left of the sockets of a round costs the next one
                for name, target in targets.items():
                    found.setdefault((load, name), []).append(await target.measure(data, count))
    return found


def main() -> None:
    """Measure, and write the section."""
    options = parser(__doc__, "two rounds with 200 sockets")
    options.add_argument("--floor", action="store_true", help="be the floor")
    arguments = options.parse_args()
    if arguments.floor:
        uvloop.run(floor())
        return
    raise_file_limit()
    count, rounds = (200, 2) if arguments.quick else (1000, 15)
    found = uvloop.run(measure(count, rounds))

    rows = [(load, *(spread(found[load, name]) for name in ("crewel", "floor"))) for load in LOADS]
    Section(
        marker="ready",
        title="Sockets that are ready at once",
        stated=f"{count:,} sockets of one stranger send while the server stands still. Milliseconds of the server's processor"
        f" until a request behind them is handled, the median of {rounds} rounds (in brackets the lowest and the highest).",
        columns=("load", "Crewel:", "a bare server that keeps it:"),
        rows=rows,
    ).publish(is_part=arguments.quick)


if __name__ == "__main__":
    main()
