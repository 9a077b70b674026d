"""WebSockets beside mosquitto, NATS, socket.io, Centrifugo, Faye and a floor in C, in one interleaved run.

    python bench/sockets.py                    three rounds of 4 s, written into bench/RESULTS.md (about 10 minutes)
    python bench/sockets.py --quick            one round of 1.5 s, printed only
    python bench/sockets.py --cases fan-out,idle --peers crewel,nats
    python bench/sockets.py --before DIRECTORY    Crewel alone, beside a checkout of an earlier state, printed only

Each server runs alone on the last core, with its store if it has one, and the clients (speakers.py) on the first. Costs are
processor time of the server and all that it started. mosquitto is what the machine has, Go builds NATS and Centrifugo, and the
others come from npm; one that cannot be had is named and left out. The floor is peers/floor.c: the same bytes and no features.
"""

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import uvloop
from peers import BUILD, Missing, Peer, earlier
from section import Section, parser, spread, verdict
from servers import CORES, Failed, Server, raise_file_limit, running
from socket_peers import everyone
from speakers import Bayeux, Centrifugo, Client, Mqtt, Nats, SocketIo, Storing

CLIENTS, ROOMS = 1000, 10
AT_ONCE = 64
STORM = 5000
LIMIT_S = 180.0  # of one case of one server
SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, of whom, and what is asked: at most so much of the figure of a peer."""

    name: str
    title: str
    unit: str
    peers: tuple[str, ...]
    measure: Callable[[Server, str, float], Awaitable[float]]
    targets: tuple[tuple[str, float], ...] = ()
    most: float | None = None


# Processor time and memory


def _tree(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def cpu(server: Server) -> float:
    """Seconds of processor time of the server and what it started."""
    total = 0
    for pid in _tree(server.pid):
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(task.read_text().split()[0])
    return total / 1e9


def resident(server: Server) -> float:
    """KiB in memory, of the server and what it started."""
    total = 0
    for pid in _tree(server.pid):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return float(total)


def activity(server: Server) -> tuple[int, int]:
    """How often the server has slept, and how often it has written: what makes a figure move although the work is the same."""
    sleeps = writes = 0
    for pid in _tree(server.pid):
        with suppress(OSError):
            writes += _number(Path(f"/proc/{pid}/io"), "syscw:")
        for task in Path(f"/proc/{pid}/task").glob("*/status"):
            with suppress(OSError):
                sleeps += _number(task, "voluntary_ctxt_switches:")
    return sleeps, writes


def _number(file: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(name))


# Clients


SPEAKERS: dict[str, type[Client]] = {
    "crewel": Bayeux,
    "before": Bayeux,
    "floor": Bayeux,
    "faye": Bayeux,
    "mosquitto": Mqtt,
    "nats": Nats,
    "nats-synced": Nats,
    "socketio": SocketIo,
    "centrifugo": Centrifugo,
}


def _room(number: int) -> str:
    return f"room/{number % ROOMS}"


async def _all(works: list[Callable[[], Awaitable[object]]]) -> None:
    """Do these, some at once."""
    left = iter(works)

    async def worker() -> None:
        for work in left:
            await work()

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def _opened(server: Server, peer: str, count: int, **options: bool) -> list[Client]:
    clients = [SPEAKERS[peer](**options) for _ in range(count)]

    async def opened(client: Client, number: int) -> None:
        await client.open(server.port)
        await client.subscribe(_room(number))

    await _all([partial(opened, client, number) for number, client in enumerate(clients)])
    return clients


def _close(clients: list[Client]) -> None:
    for client in clients:
        assert not client.is_lost, "a server has closed a connection"
        client.transport.abort()


async def _publisher(server: Server, peer: str, **options: bool) -> Client:
    client = SPEAKERS[peer](**options)
    await client.open(server.port)
    if isinstance(client, Nats) and client.is_stored:
        await client.make_stream()
    return client


async def _paced(publisher: Client, rate: int, seconds: float) -> int:
    begun, count = time.perf_counter(), int(rate * seconds)
    for number in range(count):
        delay = begun + number / rate - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        publisher.publish(_room(number))
    return count


async def _arrived(clients: list[Client], wanted: int) -> None:
    async with asyncio.timeout(60):
        while sum(client.count for client in clients) < wanted:
            await asyncio.sleep(0.05)


# What is measured


async def deliveries(
    server: Server,
    peer: str,
    seconds: float,
    *,
    rate: int,
    acknowledges: bool = False,
    is_stored: bool = False,
    deflates: bool = False,
) -> float:
    """µs for each delivery, publishes included."""
    asked = {
        "acknowledges": acknowledges,
        "is_stored": is_stored,
        "deflates": deflates and peer in ("crewel", "before"),
    }
    publisher = await _publisher(server, peer, acknowledges=acknowledges and peer == "mosquitto", is_stored=is_stored)
    clients = await _opened(server, peer, CLIENTS, **asked)
    sent = await _paced(publisher, rate, 1.0)
    await _arrived(clients, sent * CLIENTS // ROOMS)
    before = sum(client.count for client in clients)
    begun, active = cpu(server), activity(server)
    sent = await _paced(publisher, rate, seconds)
    count = sent * CLIENTS // ROOMS
    await _arrived(clients, before + count)
    await asyncio.sleep(0.3)  # for what is written behind
    cost = (cpu(server) - begun) / count * 1e6
    sleeps, writes = ((now - then) / count for now, then in zip(activity(server), active, strict=True))
    print(f"a delivery of {peer}: {sleeps:.2f} sleeps, {writes:.2f} writes", file=sys.stderr, flush=True)
    _close([*clients, publisher])
    return cost


async def stored_publishes(server: Server, peer: str, seconds: float, *, count: int = 50) -> float:
    """µs for each publish that the server says is stored; publishers that wait for each."""
    publishers = [await _publisher(server, peer, is_stored=True)]
    for _ in range(count - 1):
        client = SPEAKERS[peer](is_stored=True)
        publishers.append(await client.open(server.port))

    async def publish(client: Client, end: float) -> int:
        number = 0
        assert isinstance(client, Storing)
        while time.perf_counter() < end:
            await client.store("room/0")
            number += 1
        return number

    await asyncio.gather(*(publish(client, time.perf_counter() + 1.0) for client in publishers))
    begun = cpu(server)
    counts = await asyncio.gather(*(publish(client, time.perf_counter() + seconds) for client in publishers))
    cost = (cpu(server) - begun) / sum(counts) * 1e6
    _close(publishers)
    return cost


async def idle(server: Server, peer: str, seconds: float, *, count: int = 4000) -> float:
    """KiB for each client that is subscribed and hears nothing."""
    _close(await _opened(server, peer, 200))
    await asyncio.sleep(1.0)
    before = resident(server)
    clients = await _opened(server, peer, count)
    await asyncio.sleep(min(seconds, 2.0))
    grown = (resident(server) - before) / count
    _close(clients)
    return grown


async def reconnects(server: Server, peer: str, seconds: float, *, count: int = 2000) -> float:
    """µs for each client that connects, logs in and subscribes."""
    _close(await _opened(server, peer, 500))
    await asyncio.sleep(0.5)
    begun = cpu(server)
    clients = await _opened(server, peer, count)
    cost = (cpu(server) - begun) / count * 1e6
    await asyncio.sleep(min(seconds, 0.5))
    _close(clients)
    return cost


async def storm(server: Server, peer: str, seconds: float) -> float:
    """The longest time (ms) that another client, in a process of its own, waits for its message while all connect at once."""
    words = (sys.executable, __file__, "--watch", f"{server.port},{peer}")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdin is not None
        assert watching.stdout is not None
        await asyncio.to_thread(watching.stdout.readline)
        clients = await _stormed(server, peer)
        watching.stdin.close()
        longest = float(await asyncio.to_thread(watching.stdout.read))
    if longest < 0:
        raise TimeoutError
    await asyncio.sleep(min(seconds, 0.5))
    _close(clients)
    return longest


async def _stormed(server: Server, peer: str) -> list[Client]:
    clients = [SPEAKERS[peer]() for _ in range(STORM)]

    async def come(client: Client, number: int) -> None:
        await client.open(server.port)
        await client.subscribe(_room(number))

    await asyncio.gather(*(come(client, number) for number, client in enumerate(clients)))
    return clients


async def watch(port: int, peer: str) -> None:
    """Send messages to oneself, one after another, until the input ends; print the longest wait (ms)."""
    client = await SPEAKERS[peer]().open(port)
    await client.subscribe("clock")
    end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    longest = 0.0
    print("watching", flush=True)
    while not end.done():
        before, begun = client.count, time.perf_counter()
        client.publish("clock")
        while client.count == before and not client.is_lost and time.perf_counter() - begun < SILENCE_S:
            await asyncio.sleep(0.001)
        if client.count == before:
            print(-1.0)  # else who reads this would wait for ever
            return
        longest = max(longest, time.perf_counter() - begun)
        await asyncio.sleep(0.005)
    print(longest * 1000)


_PLAIN = ("crewel", "floor", "mosquitto", "nats", "socketio", "centrifugo", "faye")
CASES = (
    Case(
        "fan-out",
        "plain fan-out, 20,000/s",
        "µs a delivery",
        _PLAIN,
        partial(deliveries, rate=200),
        (("mosquitto", 1.0), ("floor", 1.5), ("faye", 0.6)),
    ),
    Case(
        "deflate",
        "permessage-deflate offered to Crewel, 10,000/s",
        "µs a delivery",
        ("crewel", "socketio"),
        partial(deliveries, rate=100, deflates=True),
        (("socketio", 0.8),),
    ),
    Case(
        "acknowledged",
        "acknowledged (MQTT: QoS 1), 10,000/s",
        "µs a delivery",
        ("crewel", "floor", "mosquitto"),
        partial(deliveries, rate=100, acknowledges=True),
        (("mosquitto", 1.2), ("floor", 1.8)),
    ),
    Case(
        "stored",
        "stored and acknowledged, 10,000/s",
        "µs a delivery",
        ("crewel", "floor", "nats-synced"),
        partial(deliveries, rate=100, acknowledges=True, is_stored=True),
        (("nats-synced", 0.7),),
    ),
    Case(
        "publishes",
        "stored publishes, 50 publishers",
        "µs a publish",
        ("crewel", "floor", "nats", "nats-synced"),
        stored_publishes,
        # nats syncs every two minutes: the store alone needs more for a sync before each answer.
        (("nats-synced", 0.7),),
    ),
    Case("idle", "an idle client", "KiB", _PLAIN, idle, most=8.0),
    Case("reconnect", "connect and subscribe", "µs a client", _PLAIN, reconnects, (("nats", 0.85),)),
    Case(
        "storm",
        f"{STORM:,} clients at once: the longest wait of another one",
        "ms",
        ("crewel", "floor", "nats"),
        storm,
        most=100.0,
    ),
)


# The run


async def _limited(measuring: Awaitable[float]) -> float:
    async with asyncio.timeout(LIMIT_S):
        return await measuring


def run(case: Case, peer: Peer, seconds: float) -> float | str:
    """The figure of one server, or why there is none."""
    with running(peer) as server:
        for pid in _tree(server.pid):
            os.sched_setaffinity(pid, {CORES[-1]})
        os.sched_setaffinity(0, {CORES[0]})
        try:
            return asyncio.run(_limited(case.measure(server, peer.name, seconds)))
        except TimeoutError:
            return "it fell silent"
        except (OSError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            os.sched_setaffinity(0, CORES)
            gc.collect()


def row(case: Case, figures: dict[str, list[float]], titles: dict[str, str]) -> tuple[str, ...]:
    """A row of the report."""
    own = figures["crewel"]
    others = ", ".join(f"{titles[name]} {spread(figures[name])}" for name in case.peers[1:] if figures.get(name))
    verdicts = []
    for name, most in case.targets:
        if own and figures.get(name):
            ratio = statistics.median(own) / statistics.median(figures[name])
            verdicts.append(f"{titles[name]} {ratio:.2f} (at most {most}): {verdict(is_met=ratio <= most)}")
    if case.most is not None and own:
        is_met = statistics.median(own) <= case.most
        verdicts.append(f"at most {case.most:g} {case.unit}: {verdict(is_met=is_met)}")
    return f"{case.title}, {case.unit}", spread(own), others, "; ".join(verdicts)


def main() -> int:
    """Measure and write."""
    line = parser(__doc__, "one short round")
    line.add_argument("--cases", help="names, such as fan-out,idle; all by default")
    line.add_argument("--peers", help="names, such as crewel,nats; all by default")
    line.add_argument("--rounds", type=int, help="how often everything is measured (3)")
    line.add_argument("--before", type=Path, help="Crewel alone, beside a checkout of an earlier state, printed only")
    line.add_argument("--watch", help=argparse.SUPPRESS)
    options = line.parse_args()
    if options.watch:
        port, _, name = options.watch.partition(",")
        asyncio.run(watch(int(port), name))
        return 0
    raise_file_limit()
    BUILD.mkdir(exist_ok=True)
    uvloop.install()
    rounds, seconds = options.rounds or (1 if options.quick else 3), 1.5 if options.quick else 4.0
    cases = [each for each in CASES if not options.cases or each.name in options.cases.split(",")]
    known, versions, trouble = everyone(), {}, []
    if options.before is not None:
        known = {"crewel": known["crewel"], "before": earlier(options.before, [])}
        cases = [replace(case, peers=tuple(known), targets=(("before", 1.0),), most=None) for case in cases]
    for peer in list(known.values()):
        if options.peers and peer.name not in options.peers.split(","):
            del known[peer.name]
            continue
        try:
            peer.prepare()
            versions[peer.name] = peer.version()
        except Missing as missing:
            trouble.append(f"{peer.title} is missing: {missing}")
            del known[peer.name]
    measured: dict[str, dict[str, list[float]]] = {case.name: {name: [] for name in case.peers} for case in cases}
    for number in range(rounds):
        for case in cases:
            for name in case.peers if number % 2 else reversed(case.peers):
                if name not in known:
                    continue
                try:
                    figure = run(case, known[name], seconds)
                except Failed as failure:
                    figure = str(failure)
                print(f"round {number + 1}, {case.name}, {name}: {figure}", file=sys.stderr, flush=True)
                if isinstance(figure, str):
                    trouble.append(f"round {number + 1}, {case.title}, {known[name].title}: {figure}")
                else:
                    measured[case.name][name].append(figure)
    titles = {name: peer.title for name, peer in known.items()}
    Section(
        "sockets",
        "WebSockets beside others",
        f"medians of {rounds} interleaved rounds of {seconds:g} s (in brackets the lowest and the highest); processor time of"
        " the server and all that it started.",
        ("what", "Crewel:", "others", "targets"),
        [row(case, measured[case.name], titles) for case in cases],
        notes=(f"Versions: {'; '.join(dict.fromkeys(versions.values()))}.", *trouble),
    ).publish(is_part=bool(options.quick or options.cases or options.peers or options.before))
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
