"""What grows with the number of sessions that a store has, and whether it grows in a straight line.

    python bench/slope.py                        10,000 to 300,000 sessions, written into bench/RESULTS.md
                                                 (about 12 minutes)
    python bench/slope.py --sizes 1000,3000      these numbers, printed only

An earlier server has left the sessions in the store, each with one subscription; the scripts of the store have written them, so
that their format is today's. A server starts on them, one client in a hundred comes back, and an operator looks. Then a node
takes as many over from a dead one. All figures are processor time, as the machine has other work, or memory. The last column
compares what a session more costs between the two largest numbers with what it costs between the two smallest: 1 is straight.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import redis.asyncio as redis
import uvloop
from adoption import adoption, cpu, storing
from aiohttp import ClientSession
from durable import CORES, PERSISTENT, Server, serving
from section import Section, parser, verdict
from servers import raise_file_limit
from waiting import Clients, Connection, end_lease, store_sessions

from crewel.settings.storage import Storage
from crewel.storage.node_leases import Membership

SIZES: Final = (10_000, 30_000, 100_000, 300_000)
SHARE: Final = 100
"""One client in so many comes back."""
ROOMS: Final = 1000  # as store_sessions divides them
PUBLISHES, ROOM_MESSAGES, ASKED, IDLE_S = 200, 20, 5, 3.0
REST_S, QUIET_SECONDS, REST_MOST_S = 0.06, 6, 300
"""Five seconds after a start, all sessions are counted for the metrics history. That is over when a server has rested for so
long, and no part of what comes next."""
CONNECT: Final = (
    b'[{"channel":"/meta/connect","connectionType":"long-polling","ext":{"ack":0},"clientId":"client%032d",%b}]'
)
TOKEN: Final = "the-token-of-this-measurement"
SETS: Final = (
    f"admin.token={TOKEN}",
    "bayeux.max_interval_ms=3600000",
    "limits.max_sessions=0",
    "limits.max_sessions_per_address=0",
)
LISTS: Final = {
    "sessions, a page": "/admin/api/sessions?count=100",
    "sessions, those with most messages": "/admin/api/sessions?sort=waiting&count=100",
    "receivers, a page": "/admin/api/receivers?count=100",
    "receivers, those in most trouble": "/admin/api/receivers?sort=trouble&count=100",
    "subjects, a page": "/admin/api/subjects?count=100",
    "overview": "/admin/api/overview",
    "metrics": "/metrics",
}
MOST_BEND: Final = 1.25

Found = dict[str, float]
"""Figures of one number of sessions, by name, in ms, or in MiB."""


def memory(pid: int) -> float:
    """MiB that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


async def used(processes: dict[str, Callable[[], float]], work: Callable[[], Awaitable[object]]) -> Found:
    """Processor time, in ms, of each of these while something is done."""
    before = {name: look() for name, look in processes.items()}
    await work()
    return {name: (look() - before[name]) * 1e3 for name, look in processes.items()}


async def rest(look: Callable[[], float]) -> None:
    """Wait until a server has had hardly anything to do for some seconds: after a take-over, commits tell the store of each
    session."""
    quiet = 0
    async with asyncio.timeout(REST_MOST_S):
        while quiet < QUIET_SECONDS:
            before = look()
            await asyncio.sleep(1)
            quiet = quiet + 1 if look() - before < REST_S else 0


async def come_back(server: Server, numbers: range) -> list[Connection]:
    """Let the clients of these sessions connect, and hold their connects."""
    loop, connections = asyncio.get_running_loop(), []
    for number in numbers:
        _, connection = await loop.create_connection(Connection, "127.0.0.1", server.port)
        connection.cookie = b"BAYEUX_BROWSER=browser%032d" % number
        answer = await connection.post(CONNECT % (number, b'"id":"1","advice":{"timeout":0}'))
        assert b'"successful":true' in answer, answer
        connection.post(CONNECT % (number, b'"id":"2"'))
        connections.append(connection)
    return connections


async def of_start(count: int) -> Found:
    """A server starts on so many sessions, and works."""
    found: Found = {}
    with TemporaryDirectory() as directory:
        async with storing(directory) as (url, store):
            await store_sessions(Storage(url=url), count)
            begun, since = cpu(store), time.perf_counter()
            async with serving(directory, f"storage.url={url}", *SETS) as server:
                found["start, by the clock"] = (time.perf_counter() - since) * 1e3
                found["start: server"] = server.cpu() * 1e3
                found["start: store"] = (cpu(store) - begun) * 1e3
                found["memory of the server, MiB"] = memory(server.process.pid)
                async with redis.Redis(unix_socket_path=url.removeprefix("unix://")) as client:
                    found["memory of the store, MiB"] = (await client.info("memory"))["used_memory"] / 2**20
                both = {"server": server.cpu, "store": lambda: cpu(store)}
                after = await used(both, lambda: rest(server.cpu))
                for name in both:
                    found[f"after the start, until it rests: {name}"] = after[name]
                returning = range(0, count, SHARE)
                connections: list[Connection] = []

                async def returned() -> None:
                    connections.extend(await come_back(server, returning))

                took = await used(both, returned)
                found["clients come back: server"] = took["server"]
                await rest(server.cpu)
                found |= await working(server, both)
                for connection in connections:
                    connection.transport.close()
    return found


async def working(server: Server, both: dict[str, Callable[[], float]]) -> Found:
    """What a running server takes: idle, for publishes and their commits, and for an operator."""
    found: Found = {}
    async with Clients(server.port) as clients:
        publisher = await clients.shake_hands(ack=False)
        await clients.receive(b"/bench/own")
        first = await used(both, lambda: clients.deliver(publisher, b"/bench/own", PERSISTENT, 100, 0.2))
        rested = await used(both, lambda: rest(server.cpu))
        for name in both:
            found[f"the first messages after the start: {name}"] = first[name] + rested[name]
        idle = await used(both, lambda: asyncio.sleep(IDLE_S))
        found["idle, a second: server"] = idle["server"] / IDLE_S
        found["idle, a second: store"] = idle["store"] / IDLE_S
        one = await used(both, lambda: clients.fan_out(publisher, b"/bench/own", PERSISTENT, 100, PUBLISHES / 100))
        found["a message to one session, with its commit: server"] = one["server"] / PUBLISHES
        found["a message to one session, with its commit: store"] = one["store"] / PUBLISHES

        async def to_room() -> None:
            await clients.publish_at(publisher, b"/bench/7", PERSISTENT, 20, ROOM_MESSAGES / 20)
            await asyncio.sleep(0.5)  # for the commits

        room = await used(both, to_room)
        found[f"a message to 1 of {ROOMS:,} sessions, with its commit: server"] = room["server"] / ROOM_MESSAGES
        found[f"a message to 1 of {ROOMS:,} sessions, with its commit: store"] = room["store"] / ROOM_MESSAGES
    async with ClientSession(f"http://127.0.0.1:{server.port}", headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        for name, path in LISTS.items():

            async def ask(path: str = path) -> None:
                for _ in range(ASKED):
                    async with http.get(path) as response:
                        assert response.status == 200, (path, await response.text())
                        await response.read()

            await ask()
            found[f"operators, {name}: server"] = (await used(both, ask))["server"] / ASKED
    return found


async def of_adoption(count: int) -> Found:
    """A node takes so many sessions over from a dead one."""
    with TemporaryDirectory() as directory:
        async with storing(directory) as (url, store):
            sets = (f"storage.url={url}", "cluster.enabled=true", "cluster.lease_ms=3000", *SETS)
            async with serving(directory, *sets) as server:
                await store_sessions(Storage(url=url), count, Membership("former", "127.0.0.1:1"), lease_ms=600_000)
                both = {"server": server.cpu, "store": lambda: cpu(store)}

                async def taken_over() -> None:
                    await end_lease(Storage(url=url))
                    await adoption(Storage(url=url))
                    await rest(server.cpu)

                took = await used(both, taken_over)
    return {"take-over by a node: server": took["server"], "take-over by a node: store": took["store"]}


def bend(sizes: list[int], values: list[float]) -> float | None:
    """What a session more costs at the end, by what it costs at the beginning; None if it costs nothing that can be told from
    the noise of the figure."""
    first, last = values[1] - values[0], values[-1] - values[-2]
    if values[-1] < 2 * values[0] or first <= 0:
        return None
    return last / (sizes[-1] - sizes[-2]) / (first / (sizes[1] - sizes[0]))


def report(sizes: list[int], found: list[Found]) -> Section:
    """The section of bench/RESULTS.md."""
    rows = []
    for name in found[0]:
        values = [each[name] for each in found]
        ratio = bend(sizes, values)
        told = "does not grow" if ratio is None else f"{ratio:.2f}: {verdict(is_met=ratio <= MOST_BEND)}"
        rows.append((name, *(f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in values), told))
    start = found[-1]["start: server"] + found[-1]["start: store"]
    told = f"{start / 1e3:.1f} s of processor time, {start * 1e3 / sizes[-1]:.0f} µs a session"
    return Section(
        "slope",
        "By the number of sessions",
        f"each session has one subscription; one client in {SHARE} is connected; messages go to one session, and to one"
        f" session in {ROOMS:,}. Processor time in ms, once each; a message is the mean of {PUBLISHES} and of {ROOM_MESSAGES},"
        f" a request of {ASKED}.",
        (
            "figure",
            *(f"{size:,}:" for size in sizes),
            f"a session more, at the end by the beginning (at most {MOST_BEND})",
        ),
        rows,
        conclusion=f"A start with {sizes[-1]:,} sessions takes {told}.",
    )


async def measure(sizes: list[int]) -> list[Found]:
    """All figures of each number of sessions."""
    found = []
    for count in sizes:
        found.append(await of_start(count) | await of_adoption(count))
        print(count, json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure and write."""
    line = parser(__doc__)
    line.add_argument(
        "--sizes", default="", help="other numbers of sessions, two at least, smallest first, printed only"
    )
    options = line.parse_args()
    sizes = [int(text) for text in options.sizes.split(",")] if options.sizes else list(SIZES)
    os.sched_setaffinity(0, {CORES[0]})
    uvloop.install()
    raise_file_limit()
    report(sizes, asyncio.run(measure(sizes))).publish(is_part=bool(options.sizes))


if __name__ == "__main__":
    main()
