"""What surviving costs: measures the figures that persistent messages and stored sessions have to keep.

    python bench/durable.py                  everything, medians of 7, written into bench/RESULTS.md (about 6 minutes)
    python bench/durable.py --quick          three short rounds, printed only

A and B run in turn in one server, on the same connections, so that whatever drifts meets both. Costs are processor time of
the server's process, as the scheduler counts it; its store is a process of its own, on the other core with this meter.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from section import TARGETS, Figure, Section, parser, spread
from servers import METER, build_meter, raise_file_limit
from waiting import Clients, store_sessions

from crewel.settings.storage import Storage

CORES = sorted(os.sched_getaffinity(0))
PERSISTENT = b',"ext":{"publish":{"persistent":true}}'


class Server:
    """A running server with a store of its own."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    def cpu(self) -> float:
        """Seconds of processor time that it has had."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@asynccontextmanager
async def serving(directory: str, *sets: str, state: Path | None = None) -> AsyncIterator[Server]:
    """A server on the last core; its store is moved to the first. `state`: a checkout of another state, whose code it runs."""
    words = [
        word
        for text in (f"storage.data_dir={directory}", "bayeux.max_sessions_per_browser=-1", *sets)
        for word in ("--set", text)
    ]
    command = [sys.executable, "-m", "crewel", "serve", "--port", "0", *words]
    earlier = {} if state is None else {"PYTHONPATH": f"{state / 'app'}"}
    os.sched_setaffinity(0, {CORES[-1]})
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env={**os.environ, **earlier}
        )
    finally:
        os.sched_setaffinity(0, {CORES[0]})
    try:
        assert process.stdout is not None
        async with asyncio.timeout(120):
            line = (await process.stdout.readline()).decode()
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.sched_setaffinity(int(child), {CORES[0]})
        yield Server(process, int(line.rpartition(":")[2].partition("/")[0]))
    finally:
        process.terminate()
        await process.wait()


async def in_turn(
    rounds: int, server: Server, arms: dict[str, Callable[[], Awaitable[int]]]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Run the arms in turn, each round in the other order; the server's microseconds for one thing of each, by round, and
    how many things a second there were."""
    costs: dict[str, list[float]] = {name: [] for name in arms}
    rates = dict.fromkeys(arms, 0.0)
    for each in arms.values():
        await each()  # warm
    for number in range(rounds):
        for name in arms if number % 2 else reversed(list(arms)):
            before, begun = server.cpu(), time.perf_counter()
            count = await arms[name]()
            costs[name].append((server.cpu() - before) / count * 1e6)
            rates[name] = count / (time.perf_counter() - begun)
    return costs, rates


async def publishing(rounds: int, seconds: float) -> Figure:
    """50 publishers, each with one publish under way at any time, no one receives them."""
    with TemporaryDirectory() as directory:
        async with serving(directory) as server, Clients(server.port) as clients:
            publishers = [await clients.shake_hands(ack=False) for _ in range(50)]
            costs, rates = await in_turn(
                rounds,
                server,
                {
                    "transient": lambda: clients.publish_all(publishers, b"/bench/p", b"", seconds),
                    "persistent": lambda: clients.publish_all(publishers, b"/bench/p", PERSISTENT, seconds),
                },
            )
    more = [b - a for a, b in zip(costs["transient"], costs["persistent"], strict=True)]
    middle = statistics.median(more)
    return Figure(
        "a persistent publish costs at most a transient one plus 12 µs, 50 concurrent publishers",
        f"plus {middle:.1f} µs",
        middle <= 12,
        f"{spread(costs['transient'])} µs at {rates['transient']:,.0f}/s;"
        f" {spread(costs['persistent'])} µs at {rates['persistent']:,.0f}/s, fsync always",
    )


async def fanning_out(rounds: int, seconds: float, *, ack: bool, rate: int) -> Figure:
    """100 receivers over long-polling, so many messages a second; those that acknowledge are reliable, and others are not
    known to the store."""
    with TemporaryDirectory() as directory:
        async with serving(directory) as server, Clients(server.port) as clients:
            publisher = await clients.shake_hands(ack=False)
            for _ in range(100):
                await clients.receive(b"/bench/f", ack=ack)
            costs, rates = await in_turn(
                rounds,
                server,
                {
                    "transient": lambda: clients.fan_out(publisher, b"/bench/f", b"", rate, seconds),
                    "persistent": lambda: clients.fan_out(publisher, b"/bench/f", PERSISTENT, rate, seconds),
                    "transient, unheard": lambda: clients.publish_at(publisher, b"/bench/u", b"", rate, seconds),
                    "persistent, unheard": lambda: clients.publish_at(
                        publisher, b"/bench/u", PERSISTENT, rate, seconds
                    ),
                },
            )
    alone = [b - a for a, b in zip(costs["transient, unheard"], costs["persistent, unheard"], strict=True)]
    ratios = [b / a for a, b in zip(costs["transient"], costs["persistent"], strict=True)]
    middle = statistics.median(ratios)
    return Figure(
        f"a delivery of a persistent message costs at most 1.10 of a transient one, fan-out 100,"
        f" {'acknowledged' if ack else 'not acknowledged'}, {rate} messages a second",
        f"{middle:.2f}",
        middle <= 1.10,
        f"{spread(costs['transient'])} µs and {spread(costs['persistent'])} µs a delivery, {rates['persistent']:,.0f}/s;"
        f" a publish without a subscriber: plus {statistics.median(alone):.0f} µs",
    )


async def talking_in_rooms(rounds: int, seconds: float) -> Figure:
    """The load of case B (cases.py): 1,000 clients that acknowledge, in 10 rooms of 100, 200 messages a second. A round goes to
    and fro four times, for the machine's speed changes within seconds."""
    build_meter()
    load = {"mode": "deliver", "clients": "1000", "rooms": "10", "payload": "64", "limit": "240"}
    with TemporaryDirectory() as directory:
        async with serving(directory) as server:
            options = load | {"port": str(server.port), "pid": str(server.process.pid)}
            options |= {"rates": ",".join(["200"] * 8 * rounds), "seconds": str(seconds / 3)}
            words = [word for name, value in options.items() for word in (f"--{name}", value)]
            meter = await asyncio.create_subprocess_exec(
                str(METER), *words, "--ack", "--stores", stdout=asyncio.subprocess.PIPE
            )
            result = json.loads((await meter.communicate())[0])
    assert not any(result["errors"].values()), result["errors"]
    assert not any(step["lost"] for step in result["steps"]), "not everything came"
    kinds = {}
    for stored in (False, True):
        steps = [step["process_us_per_delivery"] for step in result["steps"] if step["stored"] is stored]
        kinds[stored] = [statistics.fmean(steps[start : start + 4]) for start in range(0, len(steps), 4)]
    middle = statistics.median(b / a for a, b in zip(kinds[False], kinds[True], strict=True))
    return Figure(
        "the same in case B: 1,000 clients in 10 rooms of 100, acknowledged, 200 messages a second",
        f"{middle:.2f}",
        middle <= 1.10,
        f"{spread(kinds[False])} µs and {spread(kinds[True])} µs a delivery, 20,000/s",
    )


async def idling(rounds: int, seconds: float) -> Figure:
    """1,000 reliable sessions with a held connect, and nothing happens."""
    shares = []
    with TemporaryDirectory() as directory:
        async with serving(directory) as server, Clients(server.port) as clients:
            for _ in range(1000):
                await clients.receive(b"/bench/i")
            await asyncio.sleep(2)
            for _ in range(rounds):
                before = server.cpu()
                await asyncio.sleep(seconds * 3)
                shares.append((server.cpu() - before) / (seconds * 3) * 100)
    middle = statistics.median(shares)
    return Figure(
        "1,000 reliable sessions, a commit every 200 ms, idle: under 2 % of a core",
        f"{middle:.2f} %",
        middle < 2,
        f"{min(shares):.2f} to {max(shares):.2f} %",
    )


async def starting(rounds: int) -> Figure:
    """100,000 sessions with a subscription each lie in the store; from the start of the process to its ready line."""
    times = []
    with TemporaryDirectory() as directory:
        await store_sessions(Storage(data_dir=directory), 100_000)
        for _ in range(rounds):
            begun = time.perf_counter()
            async with serving(directory, "bayeux.max_interval_ms=3600000"):
                times.append(time.perf_counter() - begun)
    middle = statistics.median(times)
    return Figure(
        "a start with 100,000 stored sessions: under 5 s, the start of the store included",
        f"{middle:.1f} s",
        middle < 5,
        f"{min(times):.1f} to {max(times):.1f} s",
    )


async def measure(rounds: int, seconds: float, only: str) -> list[Figure]:
    """All figures, or one."""
    os.sched_setaffinity(0, {CORES[0]})
    parts: dict[str, Callable[[], Awaitable[Figure]]] = {
        "publishing": lambda: publishing(rounds, seconds),
        "fan-out": lambda: fanning_out(rounds, seconds, ack=True, rate=50),
        "fan-out-busy": lambda: fanning_out(rounds, seconds, ack=True, rate=200),
        "rooms": lambda: talking_in_rooms(rounds, seconds),
        "plain": lambda: fanning_out(rounds, seconds, ack=False, rate=50),
        "plain-busy": lambda: fanning_out(rounds, seconds, ack=False, rate=200),
        "idle": lambda: idling(rounds, seconds),
        "start": lambda: starting(rounds),
    }
    figures = []
    for name, part in parts.items():
        if only in ("", name):
            figures.append(await part())
            print(*figures[-1].row(), sep=" | ", file=sys.stderr, flush=True)
    return figures


def report(figures: list[Figure], rounds: int, seconds: float) -> Section:
    """The section of RESULTS.md."""
    return Section(
        "durable",
        "What surviving costs",
        f"A and B in turn in one server, medians of {rounds} rounds of {seconds:g} s (in brackets the lowest and the highest);"
        " processor time of the server alone.",
        TARGETS,
        [figure.row() for figure in figures],
    )


def main() -> None:
    """Measure and write."""
    line = parser(__doc__, "three short rounds")
    line.add_argument(
        "--only",
        default="",
        choices=["", "publishing", "fan-out", "fan-out-busy", "rooms", "plain", "plain-busy", "idle", "start"],
    )
    options = line.parse_args()
    rounds, seconds = (3, 0.7) if options.quick else (7, 2.0)
    uvloop.install()
    raise_file_limit()
    figures = asyncio.run(measure(rounds, seconds, options.only))
    report(figures, rounds, seconds).publish(is_part=options.quick or bool(options.only))


if __name__ == "__main__":
    main()
