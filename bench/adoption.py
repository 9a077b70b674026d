"""What others wait while a node takes over the sessions of a dead one.

    python bench/adoption.py                         50,000 sessions, 3 rounds, written into bench/RESULTS.md (about 3 minutes)
    python bench/adoption.py --sessions 5000         printed only

The dead node has left its sessions in the store, each with one subscription. When its lease ends, the node that lives
takes them over, while a publisher stores messages at times that the clock gives, 10 ms apart: a message that waits for the
one before it counts from when it was due. The node has the last core, its store and the publisher have the first.
"""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import uvloop
from durable import CORES, PERSISTENT, serving
from section import Section, parser, spread, verdict
from waiting import FORMER, Clients, Session, end_lease, publication, store_sessions

from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage import nodes
from crewel.storage.embedded import server_binary
from crewel.storage.node_leases import Membership
from crewel.storage.store import Store

EVERY_S, BEFORE_S, LIMIT_S = 0.01, 3.0, 120.0
MOST_S, MOST_P99_S = 2.0, 0.05


class Round(NamedTuple):
    """What one take-over gave, in seconds."""

    took: float
    store: float
    """Processor time of the store meanwhile, less that of the publishes."""
    before: list[float]
    """How long each publish took before it began."""
    meanwhile: list[float]


@asynccontextmanager
async def storing(directory: str, *options: str) -> AsyncIterator[tuple[str, int]]:
    """A store of its own, with these options: its address, and its process."""
    socket = f"{directory}/s.sock"
    words = ["--dir", directory, "--unixsocket", socket, "--port", "0", "--save", "", "--appendonly", "yes"]
    words += ["--appendfsync", "always", "--maxmemory-policy", "noeviction"]
    process = await asyncio.create_subprocess_exec(
        server_binary(Storage()), *words, *options, stdout=subprocess.DEVNULL
    )
    try:
        while not Path(socket).exists():
            await asyncio.sleep(0.01)
        yield f"unix://{socket}", process.pid
    finally:
        process.terminate()
        await process.wait()


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has had."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


async def adoption(storage: Storage) -> None:
    """Wait until nothing of the dead node is left in the store. The server is not asked: to count for an answer what waits
    for all its sessions takes longer than to adopt some."""
    store = Store(Settings(storage=storage))
    await store.open()
    while FORMER in await nodes.tokens(store):
        await asyncio.sleep(0.02)
    await store.close()


async def publish(session: Session, until: asyncio.Event, taken: list[tuple[float, float]]) -> None:
    """Publish by the clock; note for each message when it was due and how long its answer took from then on."""
    due = time.perf_counter()
    body = publication(session, b"/bench/other", PERSISTENT)
    while not until.is_set():
        due += EVERY_S
        await asyncio.sleep(max(0, due - time.perf_counter()))
        await session.connection.post(body)
        taken.append((due, time.perf_counter() - due))


async def round_of(count: int) -> Round:
    """Let a node take over so many sessions."""
    with TemporaryDirectory() as directory:
        async with storing(directory) as (url, store):
            sets = (
                "cluster.enabled=true",
                f"storage.url={url}",
                "bayeux.max_interval_ms=600000",
                "cluster.lease_ms=3000",
            )
            async with serving(directory, *sets) as server, Clients(server.port) as clients:
                publisher = await clients.shake_hands(ack=False)
                storage = Storage(url=url)
                await store_sessions(storage, count, Membership("former", "127.0.0.1:1"), lease_ms=600_000)
                over, taken = asyncio.Event(), list[tuple[float, float]]()
                publishing = asyncio.create_task(publish(publisher, over, taken))
                idle = cpu(store)
                await asyncio.sleep(BEFORE_S)
                begun, before, published = time.perf_counter(), cpu(store), len(taken)
                each = (before - idle) / published  # what a publish alone takes
                await end_lease(storage)
                async with asyncio.timeout(LIMIT_S):
                    await adoption(storage)
                took = time.perf_counter() - begun
                # By their number and not by the time: where the machine is busy, there are fewer of them meanwhile.
                used = cpu(store) - before - each * (len(taken) - published)
                over.set()
                await publishing
    return Round(
        took,
        used,
        [wait for due, wait in taken if due + wait < begun],
        [wait for due, wait in taken if due + wait >= begun],
    )


def percentile(values: list[float], part: float) -> float:
    """The value below which this part of them lies."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def ms(values: list[float], part: float) -> float:
    """The same in milliseconds."""
    return percentile(values, part) * 1e3


def report(rounds: list[Round], count: int) -> Section:
    """The section of bench/RESULTS.md."""
    took = [each.took for each in rounds]
    store = [each.store for each in rounds]
    p99 = [ms(each.meanwhile, 0.99) for each in rounds]
    rows = [
        ("until all were taken over, s", took, ""),
        (
            "of the store's processor time, s",
            store,
            f"at most {MOST_S:g}: {verdict(is_met=statistics.median(store) <= MOST_S)}",
        ),
        ("a publish before, p99 ms", [ms(each.before, 0.99) for each in rounds], ""),
        ("a publish meanwhile, p50 ms", [ms(each.meanwhile, 0.5) for each in rounds], ""),
        (
            "a publish meanwhile, p99 ms",
            p99,
            f"at most {MOST_P99_S * 1e3:g}: {verdict(is_met=statistics.median(p99) <= MOST_P99_S * 1e3)}",
        ),
        ("a publish meanwhile, longest ms", [ms(each.meanwhile, 1) for each in rounds], ""),
    ]
    return Section(
        "adoption",
        "Taking over the sessions of a dead node",
        f"{count:,} sessions, each with one subscription; a stored publish every {EVERY_S * 1e3:g} ms. Medians of {len(rounds)}"
        " rounds (in brackets the lowest and the highest).",
        ("figure", "measured:", "asked"),
        [(name, spread(values), asked) for name, values, asked in rows],
    )


async def measure(rounds: int, count: int) -> list[Round]:
    """One take-over after the other."""
    return [await round_of(count) for _ in range(rounds)]


def main() -> None:
    """Measure and write."""
    line = parser(__doc__)
    line.add_argument("--sessions", type=int, default=0, help="another number of sessions, one round, printed only")
    options = line.parse_args()
    os.sched_setaffinity(0, {CORES[0]})
    uvloop.install()
    count = options.sessions or 50_000
    rounds = asyncio.run(measure(1 if options.sessions else 3, count))
    report(rounds, count).publish(is_part=bool(options.sessions))


if __name__ == "__main__":
    main()
