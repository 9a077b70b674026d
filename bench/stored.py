"""What storing a message costs, beside an earlier state of the server.

    python bench/stored.py --before DIRECTORY          medians of 7, written into bench/RESULTS.md (about 3 minutes)
    python bench/stored.py --before DIRECTORY --quick

DIRECTORY is a checkout of the earlier state (`git worktree add DIRECTORY COMMIT`). Both servers run on one core, each
with a store of its own, and are asked in turn; the meter has the other core, with the stores. Costs are processor time of the
server alone. What is measured, and what is asked of it, is as in durable.py.
"""

import asyncio
import os
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from durable import CORES, PERSISTENT, Server, serving
from section import Section, parser, spread, verdict
from waiting import Clients

NOW = Path(__file__).parents[1]
SETTLED_S = 0.6  # commits come every 200 ms
STAYS = "bayeux.max_interval_ms=3600000"  # publishers never connect, and wait while the other server starts
QUESTIONS = {
    "publishing": "a publish, 50 concurrent publishers, no subscriber",
    "acknowledged": "a delivery, fan-out 100, acknowledged, 50 messages/s",
    "plain": "a delivery, fan-out 100, not acknowledged, 50 messages/s",
}

Arms = dict[str, Callable[[], Awaitable[int]]]
Costs = dict[str, list[float]]


@asynccontextmanager
async def asked(question: str, checkout: Path, seconds: float) -> AsyncIterator[tuple[Server, Arms]]:
    """A server of this state, and how it is asked."""
    os.environ["PYTHONPATH"] = str(checkout.resolve() / "app")
    with TemporaryDirectory() as directory:
        async with serving(directory, STAYS) as server, Clients(server.port) as clients:
            publishers = [await clients.shake_hands(ack=False) for _ in range(50)]
            for _ in range(0 if question == "publishing" else 100):
                await clients.receive(b"/bench/s", ack=question == "acknowledged")

            async def ask(more: bytes) -> int:
                if question == "publishing":
                    return await clients.publish_all(publishers, b"/bench/s", more, seconds)
                return await clients.fan_out(publishers[0], b"/bench/s", more, 50, seconds)

            yield server, {"transient": lambda: ask(b""), "persistent": lambda: ask(PERSISTENT)}


async def measure(question: str, before: Path, rounds: int, seconds: float) -> Costs:
    """Microseconds of each state and kind, by round. The states are asked for the same kind one after the other, in another
    order each round, and each begins when the commits of the one before are done: the states share the cores."""
    os.sched_setaffinity(0, {CORES[0]})
    costs: Costs = {}
    async with AsyncExitStack() as stack:
        states = []
        for state, checkout in (("before", before), ("now", NOW)):
            server, kinds = await stack.enter_async_context(asked(question, checkout, seconds))
            states.append([(f"{state}, {kind}", server, ask) for kind, ask in kinds.items()])
        pairs = list(zip(*states, strict=True))
        for pair in pairs:
            for _, _, ask in pair:
                await ask()  # warm
        for number in range(rounds):
            for name, server, ask in (arm for pair in pairs for arm in (pair if number % 2 else reversed(pair))):
                await asyncio.sleep(SETTLED_S)
                begun = server.cpu()
                count = await ask()
                costs.setdefault(name, []).append((server.cpu() - begun) / count * 1e6)
    return costs


def row(question: str, state: str, costs: Costs) -> tuple[str, ...]:
    """A row of the report."""
    transient, persistent = costs[f"{state}, transient"], costs[f"{state}, persistent"]
    more = statistics.median(b - a for a, b in zip(transient, persistent, strict=True))
    ratio = statistics.median(b / a for a, b in zip(transient, persistent, strict=True))
    is_now = state == "now"
    return (
        QUESTIONS[question],
        state,
        spread(transient),
        spread(persistent),
        f"{more:.1f}",
        f"{ratio:.2f}",
        target(question, more, ratio) if is_now else "",
        ", ".join(f"{to:.2f}" for to in compared(costs)) if is_now else "",
    )


def compared(costs: Costs) -> list[float]:
    """What each kind costs now in terms of what it cost before: the medians of the rounds."""
    return [
        statistics.median(b / a for a, b in zip(costs[f"before, {kind}"], costs[f"now, {kind}"], strict=True))
        for kind in ("transient", "persistent")
    ]


def target(question: str, more: float, ratio: float) -> str:
    """What is asked of it, as in durable.py, and whether it is so."""
    if question == "publishing":
        return f"at most 12 more: {verdict(is_met=more <= 12)}"
    return f"at most 1.10: {verdict(is_met=ratio <= 1.10)}"


def report(measured: dict[str, Costs], rounds: int, seconds: float) -> Section:
    """The section of bench/RESULTS.md."""
    return Section(
        "stored",
        "What storing costs, beside an earlier state",
        f"medians of {rounds} interleaved rounds of {seconds:g} s (in brackets the lowest and the highest); µs of the server.",
        (
            "of what",
            "state",
            "transient:",
            "persistent:",
            "more:",
            "ratio:",
            "target",
            "transient and persistent, to before:",
        ),
        [row(question, state, costs) for question, costs in measured.items() for state in ("before", "now")],
    )


def main() -> None:
    """Measure and write."""
    line = parser(__doc__, "three short rounds")
    line.add_argument("--before", type=Path, required=True, help="a checkout of the earlier state")
    options = line.parse_args()
    if not (options.before / "app" / "crewel").is_dir():
        sys.exit(f"--before: {options.before} is not a checkout of Crewel")
    uvloop.install()
    rounds, seconds = (3, 0.7) if options.quick else (7, 1.5)
    measured = {each: asyncio.run(measure(each, options.before, rounds, seconds)) for each in QUESTIONS}
    report(measured, rounds, seconds).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
