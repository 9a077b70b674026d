"""What two workers cost and bring, beside one process.

    python bench/workers.py            medians of 5, written into bench/RESULTS.md (about 2 minutes)
    python bench/workers.py --quick    printed only

Both servers run at the same time, each with a store of its own, and are asked in turn. Costs are processor time of the parent
and its workers; the store's is shown apart. Nothing is bound to a core, and the meter needs one too: on two cores the rates say
little.
"""

import asyncio
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple
from urllib.request import urlopen

import uvloop
from durable import PERSISTENT
from section import Section, parser, spread, verdict
from waiting import Clients, Session

RECEIVERS, RATE = 200, 50
CHANNEL = b"/bench/w"


class Arm(NamedTuple):
    """One server under test."""

    workers: int
    processes: list[int]
    store: int
    clients: Clients
    publishers: list[Session]
    split: str


def cpu(pids: list[int]) -> float:
    """Seconds of processor time that these have had."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@asynccontextmanager
async def serving(workers: int) -> AsyncIterator[Arm]:
    """A server with its clients."""
    with TemporaryDirectory() as directory:
        sets = (
            f"storage.data_dir={directory}",
            "bayeux.max_sessions_per_browser=-1",
            "bayeux.max_interval_ms=600000",
            f"cluster.workers={workers}",
        )
        command = [sys.executable, "-m", "crewel", "serve", "--port", "0", *(f"--set={each}" for each in sets)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            port = int(line.rpartition(":")[2].partition("/")[0])
            children = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
            named = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children}
            store = next(pid for pid, name in named.items() if "valkey-server" in name)
            async with Clients(port) as clients:
                publishers = [await clients.shake_hands(ack=False) for _ in range(50)]
                for _ in range(RECEIVERS):
                    await clients.receive(CHANNEL)
                split = await asyncio.to_thread(sessions, port)
                yield Arm(workers, [process.pid, *named.keys() - {store}], store, clients, publishers, split)
        finally:
            process.terminate()
            await process.wait()


def sessions(port: int) -> str:
    """How many sessions each process has."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return " + ".join(
        line.rpartition(" ")[2].removesuffix(".0")
        for line in lines
        if line.startswith(("crewel_sessions ", "crewel_sessions{"))
    )


async def ask(arm: Arm, seconds: float) -> dict[str, float]:
    """What one round of one server gives."""
    before, store = cpu(arm.processes), cpu([arm.store])
    count = await arm.clients.fan_out(arm.publishers[0], CHANNEL, PERSISTENT, RATE, seconds)
    found = {
        "delivery": (cpu(arm.processes) - before) / count * 1e6,
        "store": (cpu([arm.store]) - store) / count * 1e6,
    }
    before, begun = cpu(arm.processes), perf_counter()
    count = await arm.clients.publish_all(arm.publishers, b"/bench/none", PERSISTENT, seconds)
    return found | {"publish": (cpu(arm.processes) - before) / count * 1e6, "rate": count / (perf_counter() - begun)}


async def measure(rounds: int, seconds: float) -> Section:
    """The section of bench/RESULTS.md."""
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    async with AsyncExitStack() as stack:
        arms = [await stack.enter_async_context(serving(workers)) for workers in found]
        for arm in arms:
            await ask(arm, seconds / 3)
        for number in range(rounds):
            for arm in arms if number % 2 else arms[::-1]:
                found[arm.workers].append(await ask(arm, seconds))
    ratio = statistics.median(two["delivery"] / one["delivery"] for one, two in zip(found[1], found[2], strict=True))
    rows = [
        (
            f"{arm.workers} ({arm.split} sessions)",
            *(spread([each[name] for each in found[arm.workers]]) for name in ("delivery", "store", "publish")),
            f"{statistics.median(each['rate'] for each in found[arm.workers]):,.0f}",
        )
        for arm in arms
    ]
    return Section(
        "workers",
        "Workers",
        f"{RECEIVERS} reliable receivers, {RATE} persistent messages/s to all of them; then 50 publishers at full speed without"
        f" receivers. Medians of {rounds} interleaved rounds of {seconds:g} s (in brackets the lowest and the highest). The"
        " rates show the machine's load.",
        (
            "workers",
            "CPU µs per delivery, all processes:",
            "store:",
            "CPU µs per stored publish:",
            "stored publishes/s:",
        ),
        rows,
        conclusion=f"Two workers cost {ratio:.2f} of one per delivery; asked: at most 1.15: {verdict(is_met=ratio <= 1.15)}.",
    )


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "two short rounds").parse_args()
    uvloop.install()
    asyncio.run(measure(2, 1.5) if options.quick else measure(5, 3)).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
