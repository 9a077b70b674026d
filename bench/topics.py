"""What a long history costs, and what a filter does.

    python bench/topics.py                   a million messages, medians of 7, written into bench/RESULTS.md (about 5 minutes)
    python bench/topics.py --quick           100,000, three short rounds, printed only

The histories are put into a store by the steps that the server uses; then a server is started on it. A topic with a long and
one with a short history are asked in turn, in one server; costs are processor time of the server and of its store.
"""

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from durable import CORES, Server, in_turn, serving
from section import TARGETS, Figure, Section, parser, spread
from waiting import Clients, Session

from crewel.delivery.records import Submission
from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage import log, node_leases
from crewel.storage.store import Store

SHORT = 1_000
AT_ONCE = 250
MOST = 1.10
FILTER_US = 5.0
MEMORY_MIB = 5.0
RECEIVERS = 100
NAMES = {"short": b"/bench/short", "long": b"/bench/long"}


class Both(Server):
    """A server, whose costs are those of its store as well."""

    def cpu(self) -> float:
        """Seconds of processor time that they have had."""
        return super().cpu() + sum(_cpu(child) for child in self._children())

    def resident(self) -> float:
        """MiB that the server alone has in memory."""
        return _resident(self.process.pid)

    def store_resident(self) -> float:
        """MiB that its store has."""
        return sum(map(_resident, self._children()))

    def _children(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cpu(pid: int) -> float:
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def both(directory: str) -> AsyncIterator[Both]:
    """A server with a store of its own."""
    async with serving(directory) as server:
        yield Both(server.process, server.port)


async def fill(directory: str, lengths: dict[str, int]) -> float:
    """Put so many messages into the histories of these channels, as an earlier server would have left them; seconds."""
    store = Store(Settings(storage=Storage(data_dir=directory)))
    await store.open()
    begun = time.perf_counter()
    await store.run(
        [node_leases.claim(store.keys, "earlier", "bench", node_leases.this_process("bench", has_directory=False), 0)]
    )
    for channel, length in lengths.items():
        for first in range(0, length, AT_ONCE):
            group = [_submission(channel, number, length) for number in range(first, min(first + AT_ONCE, length))]
            (answer,) = await store.run([log.append(store.keys, "earlier", group, 10_000)])
            if isinstance(answer, Exception):
                raise answer
        await store.run([log.trim(store.keys, "earlier")])
    await store.close()
    return time.perf_counter() - begun


def _submission(channel: str, number: int, length: int) -> Submission:
    body = json.dumps({"channel": channel, "data": {"n": number, "text": "x" * 40}}).encode()
    return Submission(channel, body, history_max=length)


def _history(length: int) -> bytes:
    return b',"ext":{"publish":{"history":{"maxEntries":%d}}}' % length


async def publishing(server: Both, lengths: dict[str, int], rounds: int, seconds: float) -> Figure:
    """20 publishers, each with one publish under way; each drives the oldest out of the history."""
    async with Clients(server.port) as clients:
        publishers = [await clients.shake_hands(ack=False) for _ in range(20)]

        def arm(name: str) -> Callable[[], Awaitable[int]]:
            return lambda: clients.publish_all(publishers, NAMES[name], _history(lengths[name]), seconds)

        costs, rates = await in_turn(rounds, server, {name: arm(name) for name in lengths})
    return _flat("a publish to a topic", lengths, costs, rates)


async def subscribing(
    server: Both, lengths: dict[str, int], rounds: int, seconds: float, what: str, asked: dict[str, bytes]
) -> Figure:
    """20 sessions subscribe, take what comes at once and unsubscribe, over and over."""
    async with Clients(server.port) as clients:
        readers = [await clients.shake_hands(ack=False) for _ in range(20)]

        def arm(name: str) -> Callable[[], Awaitable[int]]:
            bodies = [_visit(session, NAMES[name], asked[name]) for session in readers]
            return lambda: _visit_all(readers, bodies, seconds)

        costs, rates = await in_turn(rounds, server, {name: arm(name) for name in lengths})
    return _flat(what, lengths, costs, rates)


def _visit(session: Session, channel: bytes, asked: bytes) -> bytes:
    """A subscribe, a connect that is not held, and an unsubscribe."""
    return (
        b'[{"channel":"/meta/subscribe","subscription":"%b","clientId":"%b","id":"1","ext":{"subscribe":%b}},'
        b'{"channel":"/meta/connect","connectionType":"long-polling","clientId":"%b","id":"2","advice":{"timeout":0}},'
        b'{"channel":"/meta/unsubscribe","subscription":"%b","clientId":"%b","id":"3"}]'
    ) % (channel, session.id, asked, session.id, channel, session.id)


async def _visit_all(readers: list[Session], bodies: list[bytes], seconds: float) -> int:
    end = time.perf_counter() + seconds

    async def visit(session: Session, body: bytes) -> int:
        count = 0
        while time.perf_counter() < end:
            answer = await session.connection.post(body)
            assert answer.count(b'"successful":true') == 3, answer
            assert b'"recovered":false' not in answer, answer
            count += 1
        return count

    return sum(await asyncio.gather(*(visit(*each) for each in zip(readers, bodies, strict=True))))


def _flat(what: str, lengths: dict[str, int], costs: dict[str, list[float]], rates: dict[str, float]) -> Figure:
    middle = statistics.median(b / a for a, b in zip(costs["short"], costs["long"], strict=True))
    return Figure(
        f"{what} with {lengths['long']:,} messages in its history costs at most {MOST:.2f} of one with {lengths['short']:,}",
        f"{middle:.2f}",
        middle <= MOST,
        "; ".join(f"{spread(costs[name])} µs at {rates[name]:,.0f}/s" for name in lengths),
    )


_CONNECT = b'[{"channel":"/meta/connect","connectionType":"long-polling","clientId":"%b","id":"5"}]'


async def positions(server: Both, lengths: dict[str, int], back: int) -> dict[str, bytes]:
    """`ext.subscribe` of who has missed the newest so many messages of each topic."""
    asked = {}
    async with Clients(server.port) as clients:
        session = await clients.shake_hands(ack=False)
        for name in lengths:
            request = _visit(session, NAMES[name], b'{"initialUpdate":false}')
            (told, *_) = json.loads(await session.connection.post(request))
            position = told["ext"]["subscribe"]["position"]
            read = {"channel": NAMES[name].decode(), "numEntries": back + 1, "newestFirst": True}
            message = {"channel": "/service/get", "clientId": session.id.decode(), "id": "4", "data": read}
            answers = json.loads(await session.connection.post(json.dumps([message]).encode()))
            while not (results := [answer["data"] for answer in answers if "data" in answer]):
                answers = json.loads(await session.connection.post(_CONNECT % session.id))
            position[NAMES[name].decode()]["id"] = results[0]["messages"][-1]["id"]
            asked[name] = json.dumps({"since": position}).encode()
    return asked


async def histories(rounds: int, seconds: float, length: int) -> list[Figure]:
    """A long history beside a short one."""
    lengths = {"short": SHORT, "long": length}
    with TemporaryDirectory() as empty:
        async with both(empty) as server:
            nothing, store_nothing = server.resident(), server.store_resident()
    with TemporaryDirectory() as directory:
        taken = await fill(directory, {NAMES[name].decode(): count for name, count in lengths.items()})
        async with both(directory) as server:
            begun, in_store = server.resident(), server.store_resident()
            initial = dict.fromkeys(lengths, b'{"history":{"numEntries":10}}')
            figures = [
                await publishing(server, lengths, rounds, seconds),
                await subscribing(server, lengths, rounds, seconds, "a subscribe with 10 initial messages", initial),
            ]
            missed = await positions(server, lengths, 100)
            figures.append(
                await subscribing(server, lengths, rounds, seconds, "a subscribe that recovers 100 messages", missed)
            )
            ended = server.resident()
    figures.append(
        Figure(
            f"the server's memory with {length:,} messages in a history: at most {MEMORY_MIB:.0f} MiB more than with none",
            f"plus {begun - nothing:.1f} MiB",
            begun - nothing <= MEMORY_MIB,
            f"{nothing:.1f} MiB without, {begun:.1f} with, {ended:.1f} after all this; its store has {in_store:.0f} MiB,"
            f" {(in_store - store_nothing) / (length + SHORT) * 2**20:.0f} bytes a message; filled in {taken:.0f} s",
        )
    )
    return figures


FILTERS: dict[str, Callable[[int], bytes]] = {
    "none": lambda number: b"",
    "one": lambda number: _filter("data.n == `1` && sender != 'client/nobody/1'"),
    "many": lambda number: _filter(f"data.n == `1` && sender != 'client/nobody/{number}'"),
}


def _filter(expression: str) -> bytes:
    return b',"ext":{"subscribe":{"filter":%b}}' % json.dumps(expression).encode()


async def filtering(rounds: int, seconds: float) -> list[Figure]:
    """100 receivers without a filter, 100 with the same one, 100 with one each; 50 messages a second, each wanted by all."""
    with TemporaryDirectory() as directory:
        async with serving(directory) as server, Clients(server.port) as clients:
            publisher = await clients.shake_hands(ack=False)
            groups = {name: Group(server.port, name, publisher) for name in FILTERS}
            for group in groups.values():
                await group.open()
            costs, _ = await in_turn(rounds, server, {name: _fan(groups[name], seconds) for name in FILTERS})
            for group in groups.values():
                await group.close()
    figures = []
    for name, words in (("one", "the same filter for all"), ("many", "one filter each")):
        more = statistics.median(b - a for a, b in zip(costs["none"], costs[name], strict=True))
        figures.append(
            Figure(
                f"a filter costs at most {FILTER_US:.0f} µs a delivery, {RECEIVERS} receivers, {words}",
                f"plus {more:.1f} µs",
                more <= FILTER_US,
                f"{spread(costs['none'])} µs a delivery without, {spread(costs[name])} with",
            )
        )
    return figures


class Group:
    """The receivers of one way of filtering, on a channel of their own."""

    def __init__(self, port: int, name: str, publisher: Session) -> None:
        self.clients = Clients(port)
        self.publisher = publisher
        self.channel = b"/bench/filter/%b" % name.encode()
        self._more = FILTERS[name]

    async def open(self) -> None:
        """Let them subscribe."""
        for number in range(RECEIVERS):
            await self.clients.receive(self.channel, ack=False, more=self._more(number))

    async def close(self) -> None:
        """Let them go."""
        await self.clients.__aexit__(None, None, None)


def _fan(group: Group, seconds: float) -> Callable[[], Awaitable[int]]:
    return lambda: group.clients.fan_out(group.publisher, group.channel, b"", 50, seconds)


def report(figures: list[Figure], rounds: int, seconds: float) -> Section:
    """The section of RESULTS.md."""
    return Section(
        "topics",
        "Topics and filters",
        f"in turn in one server, medians of {rounds} rounds of {seconds:g} s (in brackets the lowest and the highest);"
        " histories: processor time of the server and its store, filters: of the server.",
        TARGETS,
        [figure.row() for figure in figures],
    )


async def measure(rounds: int, seconds: float, length: int, only: str) -> list[Figure]:
    """All figures, or one part of them."""
    os.sched_setaffinity(0, {CORES[0]})
    figures = []
    if only in ("", "histories"):
        figures += await histories(rounds, seconds, length)
    if only in ("", "filters"):
        figures += await filtering(rounds, seconds)
    return figures


def main() -> None:
    """Measure and write."""
    line = parser(__doc__, "100,000 messages, three short rounds")
    line.add_argument("--only", default="", choices=["", "histories", "filters"])
    options = line.parse_args()
    rounds, seconds, length = (3, 0.7, 100_000) if options.quick else (7, 2.0, 1_000_000)
    uvloop.install()
    figures = asyncio.run(measure(rounds, seconds, length, options.only))
    report(figures, rounds, seconds).publish(is_part=options.quick or bool(options.only))


if __name__ == "__main__":
    main()
