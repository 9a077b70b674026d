"""What an entry of another node costs a node.

    python bench/ceiling.py                       medians of 5, written into bench/RESULTS.md (about 90 seconds)
    python bench/ceiling.py --quick               three short rounds, printed only
    python bench/ceiling.py --before DIRECTORY    beside a checkout of an earlier state, printed only

Costs are processor time, as the scheduler counts it. The nodes have the last core; the store and this meter have the first.
"""

import asyncio
import os
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from adoption import storing
from durable import CORES, Server, serving
from section import Section, parser, spread, verdict

from crewel.delivery.records import Submission
from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage import log, nodes
from crewel.storage.store import Store

RATES = {1: 1_000, 4: 2_000, 22: 5_000, 100: 10_000}
"""Entries of another node in a second, by the size of the groups in which they come: a busy log comes in large ones."""
WANTED = {1: 0.55, 4: 0.5, 22: 0.45, 100: 0.35}
"""What an entry may cost a node, of what it cost when the tail neither paused nor passed over channels by their bytes."""
BODY = b'{"channel":"/bench/foreign/%d","data":{"n":1,"text":"%s"}}'


def entries(count: int) -> list[Submission]:
    """Messages on channels that have no subscriber."""
    return [Submission(f"/bench/foreign/{each % 50}", BODY % (each % 50, b"x" * 40)) for each in range(count)]


async def append_at_times(store: Store, token: str, size: int, seconds: float) -> int:
    """Append groups of this size at times that the clock gives; how many messages there were."""
    begun, group = time.perf_counter(), entries(size)
    every_s = size / RATES[size]
    groups = int(seconds / every_s)
    for number in range(groups):
        await asyncio.sleep(max(0.0, begun + number * every_s - time.perf_counter()))
        (answer,) = await store.run([log.append(store.keys, token, group, 1000)])
        assert len(answer.ids) == size, answer
    return groups * size


async def foreign(rounds: int, seconds: float, states: list[Path]) -> dict[int, list[list[float]]]:
    """Microseconds of each state's node for an entry of another node, by the size of the groups in which they come and by
    round. All nodes read the same entries at the same time."""
    found: dict[int, list[list[float]]] = {size: [[] for _ in states] for size in RATES}
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(storing(stack.enter_context(TemporaryDirectory())))
        servers: list[Server] = []
        sets = (f"storage.url={url}", "cluster.enabled=true", "admin.token=the-token-of-this-measurement")
        for number, state in enumerate(states * 2 if len(states) == 1 else states):  # one alone would not read the log
            own = stack.enter_context(TemporaryDirectory())
            servers.append(await stack.enter_async_context(serving(own, *sets, f"node.name=node{number}", state=state)))
        store = Store(Settings(storage=Storage(url=url)))
        await store.open()
        token = (await nodes.tokens(store))[0]
        for number in range(rounds + 1):  # the first one warms
            for size in RATES:
                before, begun = [each.cpu() for each in servers], time.perf_counter()
                await asyncio.sleep(seconds)
                idle = [
                    (each.cpu() - was) / (time.perf_counter() - begun)
                    for each, was in zip(servers, before, strict=True)
                ]
                before, begun = [each.cpu() for each in servers], time.perf_counter()
                count = await append_at_times(store, token, size, seconds)
                await asyncio.sleep(0.1)
                took = time.perf_counter() - begun
                for place in range(len(states) if number else 0):
                    used = servers[place].cpu() - before[place] - idle[place] * took
                    found[size][place].append(used / count * 1e6)
        await store.close()
    return found


def report(found: dict[int, list[list[float]]], rounds: int, seconds: float, before: str) -> Section:
    """The section of bench/RESULTS.md."""
    rows = []
    for size, costs in found.items():
        row = [f"{RATES[size]:,}/s in groups of {size}", spread(costs[0])]
        if before:
            ratio = statistics.median(now / earlier for now, earlier in zip(*costs, strict=True))
            row += [spread(costs[1]), f"{ratio:.2f}", f"{WANTED[size]}: {verdict(is_met=ratio <= WANTED[size])}"]
        rows.append(row)
    columns = ("entries of another node", "µs each:", *((f"{before}:", "ratio:", "at most") if before else ()))
    return Section(
        "ceiling",
        "What entries of other nodes cost a node",
        "Stored messages on 50 channels without a subscriber, appended at times that the clock gives; processor time of a node"
        " that reads them, less that of the same node without any. All nodes read the same ones at the same time. Medians of"
        f" {rounds} rounds of {seconds:g} s (in brackets the lowest and the highest).",
        columns,
        rows,
    )


def main() -> None:
    """Measure and write."""
    line = parser(__doc__, "three short rounds")
    line.add_argument("--before", type=Path, help="a checkout of an earlier state")
    options = line.parse_args()
    if options.before is not None and not (options.before / "app" / "crewel").is_dir():
        line.error("--before needs a checkout of Crewel, with app/crewel in it")
    uvloop.install()
    os.sched_setaffinity(0, {CORES[0]})
    rounds, seconds = (3, 1.0) if options.quick else (5, 2.0)
    states = [Path(__file__).parents[1], *([options.before.resolve()] if options.before else [])]
    found = asyncio.run(foreign(rounds, seconds, states))
    before = options.before.resolve().name if options.before else ""
    report(found, rounds, seconds, before).publish(is_part=options.quick or bool(before))


if __name__ == "__main__":
    main()
