"""What asking costs: the round trip of a request and its answer, with the Python client on both sides.

    python bench/requests.py                 medians of 7 rounds, written into bench/RESULTS.md (about a minute)
    python bench/requests.py --quick         three short rounds, printed only

The server has one core; who asks and who answers share the other, in one process. Each arm has clients of its own, and they
take turns, so that whatever drifts meets all of them.
"""

import asyncio
import os
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import uvloop
from durable import CORES, serving
from section import Section, parser, verdict

from crewel.client import Client

TARGET_MS = 3.0


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of asking: over this transport, so many at once."""

    name: str
    transport: str
    at_once: int
    ack: bool = True
    has_target: bool = False


ARMS = (
    Arm("WebSocket, one after the other", "websocket", 1, has_target=True),
    Arm("the same, without acknowledgement", "websocket", 1, ack=False),
    Arm("WebSocket, 20 at once", "websocket", 20),
    Arm("long-polling, one after the other", "long-polling", 1),
)


@dataclass(frozen=True, slots=True)
class Round:
    """The round trips of one round, in ms, sorted; and how long it took, in s."""

    trips: list[float]
    took: float

    def at(self, share: float) -> float:
        """The round trip that this share of them does not exceed."""
        return self.trips[min(int(len(self.trips) * share), len(self.trips) - 1)]


async def one_round(asking: Client, channel: str, at_once: int, seconds: float) -> Round:
    """Ask for so long."""
    trips: list[float] = []
    begun = time.perf_counter()
    end = begun + seconds

    async def ask() -> None:
        while (before := time.perf_counter()) < end:
            answer = await asking.request(channel, before)
            if answer.data != before:
                raise SystemExit("an answer to another request: the figures would mean nothing")
            trips.append((time.perf_counter() - before) * 1000)

    await asyncio.gather(*(ask() for _ in range(at_once)))
    return Round(sorted(trips), time.perf_counter() - begun)


async def measure(rounds: int, seconds: float) -> dict[Arm, list[Round]]:
    """The rounds of each arm; every other time they go the other way round."""
    results: dict[Arm, list[Round]] = {arm: [] for arm in ARMS}
    with TemporaryDirectory() as directory:
        async with serving(directory) as server, AsyncExitStack() as stack:
            os.sched_setaffinity(0, {CORES[0]})
            url = f"http://127.0.0.1:{server.port}/cometd"
            asking: dict[Arm, Client] = {}
            for number, arm in enumerate(ARMS):
                answering, asking[arm] = [
                    await stack.enter_async_context(Client(url, transports=[arm.transport], ack=arm.ack))
                    for _ in range(2)
                ]
                await answering.reply(f"/bench/{number}", lambda message: message.data, at_once=arm.at_once)
                await one_round(asking[arm], f"/bench/{number}", arm.at_once, 0.3)  # warm
            for turn in range(rounds):
                for arm in ARMS if turn % 2 else reversed(ARMS):
                    channel = f"/bench/{ARMS.index(arm)}"
                    results[arm].append(await one_round(asking[arm], channel, arm.at_once, seconds))
            late = sum(client.requests.late + client.requests.duplicates for client in asking.values())
    if late:
        raise SystemExit(f"{late} answers came twice or late: the figures would mean nothing")
    return results


def row(arm: Arm, rounds: list[Round]) -> tuple[str, ...]:
    """A row of the report."""
    p50s, p99s = ([each.at(share) for each in rounds] for share in (0.5, 0.99))
    p50 = statistics.median(p50s)
    rate = statistics.median(len(each.trips) / each.took for each in rounds)
    target = f"p50 under {TARGET_MS:g}: {verdict(is_met=p50 < TARGET_MS)}" if arm.has_target else ""
    spread = f"{p50:.2f} ({min(p50s):.2f} to {max(p50s):.2f})"
    return arm.name, spread, f"{statistics.median(p99s):.2f}", f"{rate:,.0f}", target


def report(results: dict[Arm, list[Round]], seconds: float) -> Section:
    """The section of bench/RESULTS.md."""
    return Section(
        "requests",
        "Requests and their answers",
        f"medians of {len(results[ARMS[0]])} rounds of {seconds:g} s (in brackets the lowest and the highest), from the call to"
        " the answer; both clients are Python's.",
        ("asked", "p50 ms:", "p99 ms:", "requests/s:", "target"),
        [row(arm, rounds) for arm, rounds in results.items()],
    )


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "three short rounds").parse_args()
    rounds, seconds = (3, 0.5) if options.quick else (7, 1.5)
    uvloop.install()
    report(asyncio.run(measure(rounds, seconds)), seconds).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
