"""What a second node costs, beside one server.

    python bench/nodes.py            medians of 7, written into bench/RESULTS.md (about 3 minutes)
    python bench/nodes.py --quick    printed only

One server, and two nodes on one store, run at the same time and are asked in turn; all have the last core, their stores and
this meter the first. Each connection reaches one of the nodes at random, and stays: so half of all requests are forwarded.
"""

import argparse
import asyncio
import datetime as dt
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

import uvloop
from adoption import storing, verdict
from durable import BENCH, CORES, PERSISTENT, Server, serving, spread, write
from waiting import Clients, Session

MARKER = "nodes"
RECEIVERS, RATE, PUBLISHERS = 200, 50, 50
CHANNEL = b"/bench/n"
QUESTIONS = {
    "a transient delivery, acknowledged, long-polling": 1.4,
    "a persistent delivery, acknowledged, long-polling": 1.4,
    f"a stored publish, {PUBLISHERS} publishers at each node": 1.3,
}


class Arm(NamedTuple):
    """One server, or two nodes, under test."""

    nodes: list[Server]
    ways: list[Callable[[float], Awaitable[int]]]
    """How it is asked, by question: for so many seconds; how many things there were."""

    def cpu(self) -> float:
        """Seconds of processor time that they have had."""
        return sum(node.cpu() for node in self.nodes)


@asynccontextmanager
async def serving_nodes(count: int) -> AsyncIterator[Arm]:
    """So many nodes with their clients; one is a server without others."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory())
        url, _ = await stack.enter_async_context(storing(directory))
        sets = [f"storage.url={url}", "bayeux.max_interval_ms=3600000", "admin.token=the-token-of-this-measurement"]
        if count > 1:
            sets.append("cluster.enabled=true")
        nodes = []
        for number in range(count):
            own = stack.enter_context(TemporaryDirectory())
            nodes.append(await stack.enter_async_context(serving(own, *sets, f"node.name=node{number}")))
        clients = await stack.enter_async_context(Clients(*(node.port for node in nodes)))
        at_home = [await stack.enter_async_context(Clients(node.port)) for node in nodes]
        publisher = await at_home[0].shake_hands(ack=False)
        publishers = [[await each.shake_hands(ack=False) for _ in range(PUBLISHERS)] for each in at_home]
        for _ in range(RECEIVERS):
            await clients.receive(CHANNEL)
        yield Arm(
            nodes,
            [
                lambda seconds: clients.fan_out(publisher, CHANNEL, b"", RATE, seconds),
                lambda seconds: clients.fan_out(publisher, CHANNEL, PERSISTENT, RATE, seconds),
                lambda seconds: publish_at_home(at_home, publishers, seconds),
            ],
        )


async def publish_at_home(at_home: list[Clients], publishers: list[list[Session]], seconds: float) -> int:
    """All publishers publish at full speed, each at the node of its session."""
    asked = zip(at_home, publishers, strict=True)
    return sum(await asyncio.gather(*(each.publish_all(own, b"/bench/x", PERSISTENT, seconds) for each, own in asked)))


async def measure(rounds: int, seconds: float) -> dict[str, tuple[list[float], list[float]]]:
    """Microseconds of the one and of the two for each question, by round."""
    os.sched_setaffinity(0, {CORES[0]})
    found: dict[str, tuple[list[float], list[float]]] = {}
    async with AsyncExitStack() as stack:
        arms = [await stack.enter_async_context(serving_nodes(count)) for count in (1, 2)]
        for place, question in enumerate(QUESTIONS):
            found[question] = ([], [])
            for arm in arms:
                await arm.ways[place](seconds / 3)  # warm
            for number in range(rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    await asyncio.sleep(0.6)  # for the commits
                    before = arms[which].cpu()
                    count = await arms[which].ways[place](seconds)
                    found[question][which].append((arms[which].cpu() - before) / count * 1e6)
    return found


def report(found: dict[str, tuple[list[float], list[float]]], rounds: int, seconds: float) -> str:
    """The section of bench/RESULTS.md."""
    rows = []
    for question, most in QUESTIONS.items():
        one, two = found[question]
        ratio = statistics.median(b / a for a, b in zip(one, two, strict=True))
        rows.append(
            f"| {question} | {spread(one)} | {spread(two)} | {ratio:.2f} | {most}: {verdict(is_met=ratio <= most)} |"
        )
    return "\n".join(
        [
            f"<!-- {MARKER} -->",
            "## Two nodes",
            "",
            f"`python bench/nodes.py` on {dt.datetime.now(dt.UTC).date()}: {RECEIVERS} receivers, {RATE} messages/s to all of"
            f" them, each connection at one of two nodes at random. Processor time in µs, of both nodes together. Medians of"
            f" {rounds} interleaved rounds of {seconds:g} s (in brackets the lowest and the highest). Load average at the end"
            f" {os.getloadavg()[0]:.1f} on {len(CORES)} cores.",
            "",
            "| of what | one server | two nodes | ratio | at most |",
            "| --- | ---: | ---: | ---: | --- |",
            *rows,
            f"<!-- /{MARKER} -->",
        ]
    )


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="bench/nodes.py", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="three short rounds, printed only")
    options = parser.parse_args()
    uvloop.install()
    rounds, seconds = (3, 1.0) if options.quick else (7, 2.0)
    text = report(asyncio.run(measure(rounds, seconds)), rounds, seconds)
    print(text)
    if not options.quick:
        write(text, BENCH / "RESULTS.md", MARKER)


if __name__ == "__main__":
    main()
