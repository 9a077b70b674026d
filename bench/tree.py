"""What the whole process tree costs at moderate rates: one server, two workers, two nodes.

    python bench/tree.py            medians of 7, written into bench/RESULTS.md (about 7 minutes)
    python bench/tree.py --quick    printed only

All arms run at the same time, each with a store of its own, and are asked in turn. A cost is the processor time of all
processes of an arm but its store, which is shown apart: idle work counts, and at few deliveries a second it is a large part.
The connections of two nodes reach one of them at random, or stay where their sessions are. Nothing is bound to a core.

The floor (floor.py) is measured in the same rounds, as one process and as two with half of the clients each and a publisher of
their own: what the same deliveries cost when another process makes half of them, without anything that two servers share.
"""

import asyncio
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import uvloop
from adoption import storing
from durable import PERSISTENT
from section import Section, parser, spread, verdict
from waiting import Clients, Session
from workers import cpu

FLOOR = str(Path(__file__).with_name("floor.py"))
RECEIVERS = 100
CHANNEL = b"/bench/t"
RATES = (0, 5, 15)
"""Messages a second, each to all receivers; 0: nothing happens."""
ARMS = ("one server", "two workers", "two nodes", "two nodes, at home")
FLOORS = {"floor, one process": 1, "floor, two processes": 2}
MOST = {"two nodes": 1.5}  # the floor alone needs for two processes what two workers were asked to need
"""At most so many times one server, at the highest rate."""
SETS = (
    "bayeux.max_sessions_per_browser=-1",
    "bayeux.max_interval_ms=3600000",
    "http.keepalive_ms=3600000",
    "http.header_timeout_ms=3600000",  # a publisher whose second connection sends nothing until all arms are ready
)

Costs = dict[tuple[str, str, int], list[tuple[float, float]]]
"""By arm, kind of message and rate: for each round milliseconds a second, or microseconds a delivery; of the server's
processes, and of the store."""


class Arm(NamedTuple):
    """What is measured."""

    name: str
    processes: list[int]
    stores: list[int]
    clients: list[tuple[Clients, Session]]
    """Each with its publisher."""

    def cpu(self) -> tuple[float, float]:
        """Seconds of processor time of its processes, and of its store."""
        return cpu(self.processes), cpu(self.stores)

    async def deliver(self, more: bytes, rate: int, seconds: float) -> int:
        """Publish to all receivers at this rate; how many deliveries there were."""
        asked = (clients.deliver(publisher, CHANNEL, more, rate, seconds) for clients, publisher in self.clients)
        return sum(await asyncio.gather(*asked))


@asynccontextmanager
async def _started(*command: str) -> AsyncIterator[tuple[int, int]]:
    """A program that prints its URL: its process and its port."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        yield process.pid, int(line.rpartition(":")[2].partition("/")[0])
    finally:
        process.terminate()
        await process.wait()


def _running(*sets: str) -> AbstractAsyncContextManager[tuple[int, int]]:
    """A server: its process and its port."""
    options = [f"--set={each}" for each in (*SETS, *sets)]
    return _started(sys.executable, "-m", "crewel", "serve", "--port", "0", *options)


def _children(pid: int) -> dict[int, str]:
    """The processes that this one has started, with their command lines."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(each): Path(f"/proc/{each}/cmdline").read_text() for each in found}


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[Arm]:
    """One arm with its clients."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory())
        if name.startswith("two nodes"):
            url, store = await stack.enter_async_context(storing(directory))
            shared = (f"storage.url={url}", "cluster.enabled=true", "admin.token=the-token-of-this-measurement")
            servers = [await stack.enter_async_context(_running(*shared, f"node.name=node{each}")) for each in (1, 2)]
            processes = [pid for pid, _ in servers]
        else:
            workers = 2 if name == "two workers" else 1
            sets = (f"storage.data_dir={directory}", f"cluster.workers={workers}")
            servers = [await stack.enter_async_context(_running(*sets))]
            children = _children(servers[0][0])
            store = next(pid for pid, command in children.items() if "valkey-server" in command)
            processes = [servers[0][0], *children.keys() - {store}]
        clients = await stack.enter_async_context(Clients(*(port for _, port in servers), stay=name != "two nodes"))
        yield Arm(name, processes, [store], [(clients, await _received(clients, RECEIVERS))])


async def _received(clients: Clients, count: int) -> Session:
    """Let so many clients receive; returns a publisher."""
    publisher = await clients.shake_hands(ack=False)
    for _ in range(count):
        await clients.receive(CHANNEL)
    return publisher


@asynccontextmanager
async def floor(name: str) -> AsyncIterator[Arm]:
    """One arm of the floor with its clients."""
    count = FLOORS[name]
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(_started(sys.executable, FLOOR)) for _ in range(count)]
        clients = [await stack.enter_async_context(Clients(port)) for _, port in servers]
        yield Arm(
            name,
            [pid for pid, _ in servers],
            [],
            [(each, await _received(each, RECEIVERS // count)) for each in clients],
        )


async def ask(arm: Arm, more: bytes, rate: int, seconds: float) -> tuple[float, float]:
    """What one round takes."""
    before, begun = arm.cpu(), perf_counter()
    if rate:
        count = await arm.deliver(more, rate, seconds)
        await asyncio.sleep(max(0.0, begun + seconds - perf_counter()))
    else:
        await asyncio.sleep(seconds)
    unit = count / 1e6 if rate else (perf_counter() - begun) / 1e3
    server, store = ((now - then) / unit for now, then in zip(arm.cpu(), before, strict=True))
    return server, store


async def measure(rounds: int, seconds: float) -> Costs:
    """All figures."""
    found: Costs = {}
    async with AsyncExitStack() as stack:
        arms = [await stack.enter_async_context(serving(name)) for name in ARMS]
        floors = [await stack.enter_async_context(floor(name)) for name in FLOORS]
        kinds = [("idle", b"", 0)]
        kinds += [
            (kind, more, rate) for kind, more in (("transient", b""), ("persistent", PERSISTENT)) for rate in RATES[1:]
        ]
        for arm in arms + floors:
            await ask(arm, PERSISTENT, RATES[-1], seconds)
        for number in range(rounds):
            for kind, more, rate in kinds:
                asked = arms if kind == "persistent" else arms + floors
                for arm in asked if number % 2 else asked[::-1]:
                    found.setdefault((arm.name, kind, rate), []).append(await ask(arm, more, rate, seconds))
    return found


def report(found: Costs, rounds: int, seconds: float) -> Section:
    """The section of bench/RESULTS.md."""
    rows, missed = [], []
    for (name, kind, rate), costs in found.items():
        if name != ARMS[0]:
            continue
        one = [server for server, _ in costs]
        title = f"{kind}, {rate * RECEIVERS:,}/s, µs a delivery" if rate else "idle, ms a second"
        row = [title, spread(one)]
        for arm in ARMS[1:]:
            several = [server for server, _ in found[arm, kind, rate]]
            ratio = statistics.median(more / less for less, more in zip(one, several, strict=True))
            row += [spread(several), f"{ratio:.2f}"]
            if rate == RATES[-1] and arm in MOST:
                missed.append(f"{arm}, {kind}: {ratio:.2f}, at most {MOST[arm]}: {verdict(is_met=ratio <= MOST[arm])}")
        stores = (statistics.median(store for _, store in found[arm, kind, rate]) for arm in ARMS)
        rows.append((*row, " / ".join(f"{each:.1f}" for each in stores)))
    rows += [_floor_row(found, rate) for rate in RATES]
    return Section(
        "tree",
        "The whole process tree",
        f"{RECEIVERS} reliable receivers over long-polling; processor time of all processes of the server, parent included;"
        f" the store's is in the last column. Medians of {rounds} interleaved rounds of {seconds:g} s (in brackets the lowest"
        " and the highest). The floor is a bare server with the same bytes, as one process and as two with half of the clients"
        " each. At random: half of the connections reach the node without their session.",
        (
            "of what",
            "one server:",
            *("two workers:", "ratio:", "two nodes, at random:", "ratio:", "two nodes, at home:", "ratio:"),
            "their stores:",
        ),
        rows,
        conclusion=f"At {RATES[-1] * RECEIVERS:,} deliveries/s: {'; '.join(missed)}.\n\n{_parts(found)}",
    )


def _parts(found: Costs) -> str:
    """Where goes what several processes take more than one, at the highest rate: medians of the differences of each round."""

    def more(these: tuple[str, str, int], those: tuple[str, str, int]) -> float:
        return statistics.median(a - b for (a, _), (b, _) in zip(found[these], found[those], strict=True))

    rate, said = RATES[-1], []
    floor = more(*((name, "transient", rate) for name in reversed(FLOORS)))
    for arm in ARMS[1:3]:
        idle = more((arm, "idle", 0), (ARMS[0], "idle", 0)) * 1e3 / (rate * RECEIVERS)
        for kind in ("transient", "persistent"):
            whole = more((arm, kind, rate), (ARMS[0], kind, rate))
            hop = more((arm, kind, rate), (ARMS[3], kind, rate)) if arm == ARMS[2] else 0.0
            hops = f", forwarding {hop:.1f}" if arm == ARMS[2] else ""
            rest = whole - idle - floor - hop
            said.append(
                f"{arm}, {kind}: {whole:.1f}: idle work {idle:.1f}, the floor {floor:.1f}{hops}, the rest {rest:.1f}"
            )
    return f"What several processes take more, µs a delivery: {'; '.join(said)}."


def _floor_row(found: Costs, rate: int) -> tuple[str, ...]:
    kind = "transient" if rate else "idle"
    one, two = ([server for server, _ in found[name, kind, rate]] for name in FLOORS)
    ratio = statistics.median(more / less for less, more in zip(one, two, strict=True))
    title = f"the floor, {rate * RECEIVERS:,}/s, µs a delivery" if rate else "the floor, idle, ms a second"
    return title, spread(one), f"{spread(two)} (two processes)", f"{ratio:.2f}", *[""] * 5


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "three short rounds").parse_args()
    uvloop.install()
    rounds, seconds = (3, 1.5) if options.quick else (7, 2.0)
    report(asyncio.run(measure(rounds, seconds)), rounds, seconds).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
