"""What a second node costs, beside one server.

    python bench/nodes.py            medians of 7, written into bench/RESULTS.md (about 3 minutes)
    python bench/nodes.py --quick    printed only

One server, and two nodes on one store, run at the same time and are asked in turn; all have the last core, their stores and
this meter the first. Each connection reaches one of the nodes at random, and stays: so half of all requests are forwarded.
"""

import asyncio
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

import uvloop
from adoption import storing
from durable import CORES, PERSISTENT, Server, serving
from section import Section, parser, spread, verdict
from waiting import Clients, Session

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
        sets.append("http.keepalive_ms=3600000")  # publishers are idle while others are measured
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


def report(found: dict[str, tuple[list[float], list[float]]], rounds: int, seconds: float) -> Section:
    """The section of bench/RESULTS.md."""
    rows = []
    for question, most in QUESTIONS.items():
        one, two = found[question]
        ratio = statistics.median(b / a for a, b in zip(one, two, strict=True))
        rows.append((question, spread(one), spread(two), f"{ratio:.2f}", f"{most}: {verdict(is_met=ratio <= most)}"))
    return Section(
        "nodes",
        "Two nodes",
        f"{RECEIVERS} receivers, {RATE} messages/s to all of them, each connection at one of two nodes at random. Processor"
        f" time in µs, of both nodes together. Medians of {rounds} interleaved rounds of {seconds:g} s (in brackets the lowest"
        " and the highest).",
        ("of what", "one server:", "two nodes:", "ratio:", "at most"),
        rows,
    )


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "three short rounds").parse_args()
    uvloop.install()
    rounds, seconds = (3, 1.0) if options.quick else (7, 2.0)
    report(asyncio.run(measure(rounds, seconds)), rounds, seconds).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
