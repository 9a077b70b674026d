"""What it costs the server to write facts and events.

    python bench/told.py                    medians of 7, written into bench/RESULTS.md (about two minutes)
    python bench/told.py --quick            three short rounds, printed only

Two servers run on one core, each with a store of its own, and are asked in turn: one as it is, one that is made to write
neither facts nor events. A hundred clients acknowledge what they get of a channel with stored messages. Costs are processor
time by delivery; the meter and the stores have the other core.
"""

import argparse
import asyncio
import datetime as dt
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from durable import BENCH, CORES, PERSISTENT, Server, serving, spread, write
from waiting import Clients

MARKER = "told"
TARGET = 1.08
RECEIVERS, MESSAGES_A_SECOND = 100, 50

SILENCED = '''
"""Makes the server write neither facts nor events: python runs this file by its name when it starts."""

import hashlib
import re

import crewel.broker.events as events
import crewel.storage.log as log
import crewel.storage.steps as scripts

log._settled = lambda ended, changes: ([], [])
log.ends = lambda ended, letters: {}
events.Events.start = lambda self: None
_read = scripts._read


def _without_facts(file):
    script = _read(file)
    text = re.sub(rb"^.*call\\('XADD', facts,.*\\n", b"", script.text, flags=re.MULTILINE)
    return scripts.Script(text, hashlib.sha1(text).hexdigest().encode())


scripts._read = _without_facts
'''

Ask = Callable[[], Awaitable[int]]
Costs = dict[str, list[float]]


@asynccontextmanager
async def asked(path: str, seconds: float) -> AsyncIterator[tuple[Server, Server, Ask]]:
    """A server that is started with this PYTHONPATH, its store, and how it is asked."""
    os.environ["PYTHONPATH"] = path
    with TemporaryDirectory() as directory:
        async with serving(directory) as server, Clients(server.port) as clients:
            publisher = await clients.shake_hands(ack=False)
            for _ in range(RECEIVERS):
                await clients.receive(b"/bench/s", ack=True)
            yield (
                server,
                store_of(server),
                lambda: clients.fan_out(publisher, b"/bench/s", PERSISTENT, MESSAGES_A_SECOND, seconds),
            )


def store_of(server: Server) -> Server:
    """The store of a server, to read its processor time."""
    pid = server.process.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    store = Server(server.process, 0)
    store.cpu = lambda: (
        sum(  # type: ignore[method-assign]
            int(task.read_text().split()[0]) for task in Path(f"/proc/{child}/task").glob("*/schedstat")
        )
        / 1e9
    )
    return store


async def measure(rounds: int, seconds: float) -> Costs:
    """Microseconds of server and store by delivery, by round; every other round goes the other way round."""
    os.sched_setaffinity(0, {CORES[0]})
    app, costs = str(BENCH.parent / "app"), Costs()
    with TemporaryDirectory() as directory:
        (Path(directory) / "sitecustomize.py").write_text(SILENCED)
        async with AsyncExitStack() as stack:
            arms = {}
            for name, path in (("with", app), ("without", f"{directory}:{app}")):
                arms[name] = await stack.enter_async_context(asked(path, seconds))
                await arms[name][2]()  # warm
            for number in range(rounds):
                for name, (server, store, ask) in arms.items() if number % 2 else reversed(arms.items()):
                    begun, begun_store = server.cpu(), store.cpu()
                    count = await ask()
                    costs.setdefault(f"server, {name}", []).append((server.cpu() - begun) / count * 1e6)
                    costs.setdefault(f"store, {name}", []).append((store.cpu() - begun_store) / count * 1e6)
    return costs


def report(costs: Costs, rounds: int, seconds: float) -> str:
    """The section of bench/RESULTS.md."""
    rows = []
    for who in ("server", "store"):
        less, more = costs[f"{who}, without"], costs[f"{who}, with"]
        ratio = statistics.median(b / a for a, b in zip(less, more, strict=True))
        verdict = f"at most {TARGET}: {'met' if ratio <= TARGET else 'MISSED'}" if who == "server" else ""
        rows.append(f"| the {who} | {spread(less)} | {spread(more)} | {ratio:.3f} | {verdict} |")
    return "\n".join(
        [
            f"<!-- {MARKER} -->",
            "## What facts and events cost",
            "",
            f"`python bench/told.py` on {dt.datetime.now(dt.UTC).date()}, medians of {rounds} rounds in turn of {seconds:g} s"
            f" (in brackets the lowest and highest); µs by delivery of {MESSAGES_A_SECOND} stored messages a second to"
            f" {RECEIVERS} receivers that acknowledge, `events.level` as usual. Load average of the machine at the end, this"
            f" meter included: {os.getloadavg()[0]:.1f} on {len(CORES)} cores.",
            "",
            "| whose time | without facts and events | with them | ratio | target |",
            "| --- | ---: | ---: | ---: | --- |",
            *rows,
            f"<!-- /{MARKER} -->",
        ]
    )


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="bench/told.py", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="three short rounds, printed only")
    options = parser.parse_args()
    uvloop.install()
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    text = report(asyncio.run(measure(rounds, seconds)), rounds, seconds)
    print(text)
    if not options.quick:
        write(text, BENCH / "RESULTS.md", MARKER)


if __name__ == "__main__":
    main()
