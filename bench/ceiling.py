"""Where one store ends: what its thread needs for each thing, and what an entry of another node costs a node.

    python bench/ceiling.py                       medians of 5, written into bench/RESULTS.md (about 4 minutes)
    python bench/ceiling.py --quick               three short rounds, printed only
    python bench/ceiling.py --before DIRECTORY    entries of other nodes, beside a checkout of an earlier state, printed only

Costs are processor time, as the scheduler counts it: of the store's process, or of a node. The nodes have the last core; the
store and this meter have the first. The floor is a process that only reads the log, with a socket that blocks and the parser of
a node: no node can do with less. The store syncs its file with each write, where temporary files are: on a disk, its thread
waits for that as well, which is no processor time.
"""

import asyncio
import multiprocessing
import os
import socket
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import hiredis
import uvloop
from adoption import cpu, storing
from durable import CORES, serving
from section import Section, parser, spread, verdict

from crewel.broker.durability.log_tail import Pace
from crewel.delivery.records import Commit, LogId, SessionName, Settled, Submission
from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage import log, node_leases, nodes, session_store
from crewel.storage.keys import Keys
from crewel.storage.log_follower import LogFollower, Unread, id_of
from crewel.storage.log_replica import Replicas
from crewel.storage.node_leases import Membership
from crewel.storage.store import Store
from crewel.storage.store_connection import pack
from crewel.storage.store_info import StoreInfo

RATES = {1: 1_000, 4: 2_000, 22: 5_000, 100: 10_000}
"""Entries of another node in a second, by the size of the groups in which they come: a busy log comes in large ones."""
WANTED = {1: 0.55, 4: 0.5, 22: 0.45, 100: 0.35}
"""What an entry may cost a node, of what it cost when the tail neither paused nor passed over channels by their bytes."""
BODY = b'{"channel":"/bench/foreign/%d","data":{"n":1,"text":"%s"}}'
FACTS_MAX = 1000
LEASE_MS = 3_600_000
ROOMS, IN_A_ROOM = 100, 10
PAUSE_S = 0.01
"""The pause of a node's tail."""


def entries(count: int) -> list[Submission]:
    """Messages on channels that have no subscriber."""
    return [Submission(f"/bench/foreign/{each % 50}", BODY % (each % 50, b"x" * 40)) for each in range(count)]


# What the store needs


class Node:
    """A node as the store sees it: its token and its connection."""

    def __init__(self, store: Store, token: str) -> None:
        self.store, self.keys, self.token = store, store.keys, token
        self._commits = 0

    async def join(self) -> None:
        """Register it."""
        process = node_leases.this_process(self.token, has_directory=False)
        membership = Membership(self.token, "127.0.0.1:1")
        claim = node_leases.claim(self.keys, self.token, self.token, process, LEASE_MS, (), membership)
        await self.store.run([claim])

    async def append(self, size: int) -> int:
        """Append a group."""
        (answer,) = await self.store.run([log.append(self.keys, self.token, entries(size), FACTS_MAX)])
        return len(answer.ids)

    async def login(self, count: int) -> list[SessionName]:
        """Let so many sessions log in, in one exchange."""
        facts = [{"id": f"{self.token}{each:030}", "ack": True} for each in range(count)]
        steps = [session_store.login(self.keys, self.token, "client/anonymous/", each, -1, FACTS_MAX) for each in facts]
        return [answer.name for answer in await self.store.run(steps)]

    async def subscribe(self, names: list[SessionName]) -> int:
        """Let each of them subscribe, in one exchange."""
        steps = [session_store.subscribe(self.keys, self.token, each, ["/bench/room"], FACTS_MAX) for each in names]
        await self.store.run(steps)
        return len(names)

    async def commit(self, names: list[SessionName]) -> int:
        """Note that each room has acknowledged two messages."""
        self._commits += 1
        rooms = [tuple(names[start : start + IN_A_ROOM]) for start in range(0, len(names), IN_A_ROOM)]
        ids = [
            (LogId(self._commits * 1000 + 2 * room), LogId(self._commits * 1000 + 2 * room + 1))
            for room in range(ROOMS)
        ]
        settled = tuple(Settled(each, room) for each, room in zip(ids, rooms, strict=True))
        commit = Commit(self._commits, LogId(self._commits), LogId(self._commits), (), (), (), settled)
        await self.store.run(log.commit(self.keys, self.token, commit, FACTS_MAX, 1000))
        return 1


class Costs(NamedTuple):
    """A store, and its microseconds of processor time by what it was asked for, one a round."""

    pid: int
    found: dict[str, list[float]]

    async def of(self, what: str, work: Callable[[], Awaitable[int]], seconds: float) -> None:
        """Do this over and over for so long; it returns how many things it has done."""
        before, end, count = cpu(self.pid), time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            count += await work()
        self.found.setdefault(what, []).append((cpu(self.pid) - before) / count * 1e6)


@asynccontextmanager
async def following(stores: list[Store], pause_s: float = 0.0, *, on_replica: bool = False) -> AsyncIterator[None]:
    """A tail on each of these connections, which reads all that is appended from now on, with pauses as those of a node."""

    async def follow(store: Store) -> None:
        last, pace = LogId(int(await store.reader.get(store.keys.last) or 0)), Pace()

        def take(read: list[Unread]) -> float:
            nonlocal last
            if not read:
                return 0.0
            last = id_of(read[-1])
            return pace.answered(asyncio.get_running_loop().time(), len(read), pause_s)

        await LogFollower(store, replicas=replicas.get(store)).follow(lambda: last, take)

    replicas = {store: Replicas(store, "", Counter()) for store in stores if on_replica}
    tasks = [asyncio.create_task(follow(store)) for store in stores]
    try:
        await asyncio.sleep(0.1)
        while not all(each.current for each in replicas.values()):
            await asyncio.sleep(0.1)
        yield
        assert not any(each.left for each in replicas.values()), replicas
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask_at_once(every: list[Node], size: int) -> int:
    """Let each append a group at the same time."""
    return sum(await asyncio.gather(*(each.append(size) for each in every)))


async def store_costs(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of the store for each thing, by round."""
    async with AsyncExitStack() as stack:
        url, pid = await stack.enter_async_context(storing(stack.enter_context(TemporaryDirectory())))
        costs, stores = Costs(pid, {}), [Store(Settings(storage=Storage(url=url))) for _ in range(16)]
        for store in stores:
            await store.open()
        every = [Node(store, f"node{number:02}") for number, store in enumerate(stores)]
        for each in every:
            await each.join()
        names = await every[1].login(ROOMS * IN_A_ROOM)
        for number in range(rounds):
            for connections in (1, 4, 16):
                for size in (1, 4, 22, 100):
                    what = f"a message appended, {connections} connection{'s' * (connections > 1)}, groups of {size}"
                    await costs.of(what, lambda n=connections, s=size: ask_at_once(every[:n], s), seconds)  # type: ignore[misc]
            for tails in (4, 16):
                async with following(stores[:tails]):
                    what = f"a message appended, 4 connections, groups of 4, {tails} tails"
                    await costs.of(what, lambda: ask_at_once(every[:4], 4), seconds)
            await costs.of("a login", lambda: logged_in(every[0]), seconds)
            await costs.of("a subscribe", lambda: every[1].subscribe(names), seconds)
            what = f"a commit of {ROOMS} rooms of {IN_A_ROOM} that have acknowledged two messages"
            await costs.of(what, lambda: every[1].commit(names), seconds)
            await inherit(costs, Node(stores[2], f"dead{number:02}"), every[0])
        for store in stores:
            await store.close()
    return costs.found


async def replicated_costs(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of a store whose replica confirms all that it is asked for, by where the tails are and by round."""
    async with AsyncExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            ports = one.getsockname()[1], two.getsockname()[1]
        common = ("--repl-diskless-sync-delay", "0")
        own, copied = (stack.enter_context(TemporaryDirectory()) for _ in range(2))
        _, pid = await stack.enter_async_context(storing(own, *common, "--port", str(ports[0])))
        options = "--port", str(ports[1]), "--replicaof", f"127.0.0.1 {ports[0]}"
        await stack.enter_async_context(storing(copied, *common, *options))
        storage = Storage(url=f"redis://127.0.0.1:{ports[0]}", replicas=1)
        costs, stores = Costs(pid, {}), [Store(Settings(storage=storage)) for _ in range(16)]
        for store in stores:
            await store.open()
            stack.push_async_callback(store.close)
        while not StoreInfo((await stores[0].look(("INFO", "replication")))[0]).replicas_at_hand:
            await asyncio.sleep(0.1)
        every = [Node(store, f"node{number:02}") for number, store in enumerate(stores)]
        for each in every:
            await each.join()
        for _ in range(rounds):
            what = "a message appended and confirmed by a replica, 4 connections, groups of 4"
            await costs.of(what, lambda: ask_at_once(every[:4], 4), seconds)
            for on_replica in (False, True):
                async with following(stores, PAUSE_S, on_replica=on_replica):
                    where = "on the replica" if on_replica else "on the primary"
                    await costs.of(f"{what}, 16 tails {where}", lambda: ask_at_once(every[:4], 4), seconds)
        return costs.found


async def logged_in(node: Node) -> int:
    return len(await node.login(100))


async def inherit(costs: Costs, dead: Node, heir: Node) -> None:
    """Let a node take over 1,000 sessions of one whose lease has ended."""
    await dead.join()
    await dead.subscribe(await dead.login(1000))
    moved, before, others = 0, cpu(costs.pid), {dead.token}
    while moved < 1000:
        (found,) = await heir.store.run([nodes.inherit(heir.keys, heir.token, 100, others)])
        moved += len(found.records)
    costs.found.setdefault("a session inherited", []).append((cpu(costs.pid) - before) / moved * 1e6)


# What a node needs


def read_log(path: str, key: str) -> None:
    """Read what is appended to the log from now on, with the pauses of a node."""
    os.sched_setaffinity(0, {CORES[-1]})
    not_yet, pace, last = object(), Pace(), b"$"
    reader = hiredis.Reader(notEnoughData=not_yet)
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    while True:
        line.sendall(pack(("XREAD", "COUNT", 1000, "BLOCK", 1000, "STREAMS", key, last)))
        while (answer := reader.gets()) is not_yet:
            reader.feed(line.recv(1 << 16))
        if answer is not None:
            ((_, read),) = answer
            last = read[-1][0]
            time.sleep(pace.answered(time.monotonic(), len(read), PAUSE_S))


@contextmanager
def reading(url: str) -> Iterator[Callable[[], float]]:
    """The floor; yields the seconds of processor time that it has had."""
    words = url.removeprefix("unix://"), Keys(Storage().prefix).log
    process = multiprocessing.get_context("spawn").Process(target=read_log, args=words, daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield partial(cpu, process.pid)
    finally:
        process.terminate()
        process.join()


async def append_at_times(store: Store, token: str, size: int, seconds: float) -> int:
    """Append groups of this size at times that the clock gives; how many messages there were."""
    begun, group = time.perf_counter(), entries(size)
    every_s = size / RATES[size]
    groups = int(seconds / every_s)
    for number in range(groups):
        await asyncio.sleep(max(0.0, begun + number * every_s - time.perf_counter()))
        (answer,) = await store.run([log.append(store.keys, token, group, FACTS_MAX)])
        assert len(answer.ids) == size, answer
    return groups * size


async def foreign(rounds: int, seconds: float, states: list[Path]) -> dict[int, list[list[float]]]:
    """Microseconds for an entry of another node, of the floor and of each state's node, by the size of the groups in which they
    come and by round. All read the same entries at the same time."""
    found: dict[int, list[list[float]]] = {size: [[] for _ in ("the floor", *states)] for size in RATES}
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(storing(stack.enter_context(TemporaryDirectory())))
        used: list[Callable[[], float]] = [stack.enter_context(reading(url))]
        sets = (f"storage.url={url}", "cluster.enabled=true", "admin.token=the-token-of-this-measurement")
        for number, state in enumerate(states * 2 if len(states) == 1 else states):  # one alone would not read the log
            own = stack.enter_context(TemporaryDirectory())
            node = serving(own, *sets, f"node.name=node{number}", state=state)
            used.append((await stack.enter_async_context(node)).cpu)
        store = Store(Settings(storage=Storage(url=url)))
        await store.open()
        token = (await nodes.tokens(store))[0]
        for number in range(rounds + 1):  # the first one warms
            for size in RATES:
                before, begun = [each() for each in used], time.perf_counter()
                await asyncio.sleep(seconds)
                took = time.perf_counter() - begun
                idle = [(each() - was) / took for each, was in zip(used, before, strict=True)]
                before, begun = [each() for each in used], time.perf_counter()
                count = await append_at_times(store, token, size, seconds)
                await asyncio.sleep(0.1)
                took = time.perf_counter() - begun
                for place, costs in enumerate(found[size] if number else ()):
                    cost = used[place]() - before[place] - idle[place] * took
                    costs.append(cost / count * 1e6)
        await store.close()
    return found


# The report


def of_store(found: dict[str, list[float]], rounds: int, seconds: float) -> Section:
    """What the store needs, as a section of bench/RESULTS.md."""
    return Section(
        "ceiling",
        "What one store needs",
        f"Processor time of the store in µs, one thing after the other. Medians of {rounds} rounds of {seconds:g} s (in"
        " brackets the lowest and the highest). Connections ask at the same time; tails read all that is appended.",
        ("for", "µs each:"),
        [(what, spread(costs)) for what, costs in found.items()],
    )


def of_nodes(found: dict[int, list[list[float]]], rounds: int, seconds: float, before: str) -> Section:
    """What entries of other nodes cost a node, as a section of bench/RESULTS.md."""
    rows = []
    for size, costs in found.items():
        row = [f"{RATES[size]:,}/s in groups of {size}", *map(spread, costs)]
        if before:
            ratio = statistics.median(now / earlier for now, earlier in zip(*costs[1:], strict=True))
            row += [f"{ratio:.2f}", f"{WANTED[size]}: {verdict(is_met=ratio <= WANTED[size])}"]
        rows.append(row)
    return Section(
        "foreign",
        "What entries of other nodes cost a node",
        "Stored messages on 50 channels without a subscriber, appended at times that the clock gives; processor time of a node"
        " that reads them, less that of the same node without any. All nodes read the same ones at the same time. Medians of"
        f" {rounds} rounds of {seconds:g} s (in brackets the lowest and the highest).",
        ("entries", "the floor, µs each:", "a node:", *((f"{before}:", "ratio:", "at most") if before else ())),
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
    before = states[1].name if options.before else ""
    if not before:
        costs = asyncio.run(store_costs(rounds, seconds / 5)) | asyncio.run(replicated_costs(rounds, seconds / 2))
        of_store(costs, rounds, seconds / 5).publish(is_part=options.quick)
    found = asyncio.run(foreign(rounds, seconds, states))
    of_nodes(found, rounds, seconds, before).publish(is_part=options.quick or bool(before))


if __name__ == "__main__":
    main()
