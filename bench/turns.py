"""How long the server's loop stands still for one large piece of work, and what others wait meanwhile.

    .venv/bin/python bench/turns.py letters --receivers 2000 --messages 40    # past full queues: a dead letter each
    .venv/bin/python bench/turns.py letters --receivers 31 --messages 300 --size 60000 --anonymous
    .venv/bin/python bench/turns.py absent --receivers 100000                 # one message to receivers that are away
    .venv/bin/python bench/turns.py connected --receivers 10000
    .venv/bin/python bench/turns.py erase --receivers 2000 --messages 400     # a topic that waits for all of them
    .venv/bin/python bench/turns.py ends --receivers 1000 --messages 50       # sessions that end together, with their backlogs
    .venv/bin/python bench/turns.py start --receivers 100 --messages 3000     # a server that reads what was not committed

One broker with a store of its own runs in this process, and what stands in for its clients beside it. A turn is what the loop
does between two looks at the clock, in processor time, so that other work on the machine makes none longer. Meanwhile another
publisher publishes messages one after the other, stored, 20 ms apart: by the clock, refused or not.
"""

import argparse
import asyncio
import gc
import os
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import uvloop

from crewel.broker.broker import Broker
from crewel.broker.exchange import Peer
from crewel.errors import CrewelError
from crewel.extensions.ack import AckExtension
from crewel.settings import Settings, load
from crewel.storage.store import Store

CHANNEL = "/large"
SETS = (
    "bayeux.max_sessions_per_browser=-1",
    "bayeux.max_interval_ms=3600000",
    "limits.max_sessions_per_address=0",
    "bayeux.timeout_ms=3000000",
)
SIDE_BY_SIDE = 500  # clients that come in at the same time
PAUSE_S, QUIET_S = 0.02, 1.0
LONG_S = 0.02


class Request(Peer):
    """A long-polling request, and its answer if it has one."""

    transport = "long-polling"

    def __init__(self, browser: str | None) -> None:
        super().__init__(browser)
        self.answer: list[dict[str, Any]] = []

    def send(self, parts: list[bytes]) -> None:
        self.answer = [orjson.loads(part) for part in parts]

    def supersede(self) -> None:
        pass

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    @property
    def remote(self) -> str | None:
        return "127.0.0.1"

    @property
    def is_secure(self) -> bool:
        return False


@dataclass
class Meanwhile:
    """What was seen while the work was done."""

    turns: list[float] = field(default_factory=list)
    """The long ones, in seconds of the processor."""
    longest: float = 0.0
    longest_wall: float = 0.0
    """By the clock: with what else the machine did meanwhile."""
    waits: list[float] = field(default_factory=list)
    """Seconds that the other publisher waited for each answer."""
    refused: int = 0
    store_mib: float = 0.0
    """The store's memory at most."""

    def said(self) -> str:
        """In one line."""
        waits = sorted(self.waits)
        return (
            f"longest turn {self.longest * 1000:.0f} ms, {len(self.turns)} over {LONG_S * 1000:.0f} ms;"
            f" {self.refused} of {len(waits)} publishes of another client refused, median"
            f" {waits[len(waits) // 2] * 1000:.0f} ms, p99 {waits[int(len(waits) * 0.99)] * 1000:.0f} ms, longest"
            f" {waits[-1] * 1000:.0f} ms; server {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB at most,"
            f" store {self.store_mib:.0f} MiB"
        )


async def turns(seen: Meanwhile) -> None:
    """Watch the turns of the loop until cancelled."""
    last, last_wall = time.thread_time(), time.perf_counter()
    while True:
        await asyncio.sleep(0)
        now, wall = time.thread_time(), time.perf_counter()
        seen.longest, seen.longest_wall = max(seen.longest, now - last), max(seen.longest_wall, wall - last_wall)
        last_wall = wall
        if now - last > LONG_S:
            seen.turns.append(now - last)
        last = now


class Bench:
    """One broker, its receivers, and its observers."""

    def __init__(self, broker: Broker, store: Store) -> None:
        self.broker = broker
        self.store = store
        self.receivers: list[tuple[str, str | None]] = []

    async def _answers(self, requests: list[Request]) -> None:
        for each in requests:
            while not each.answer:
                await asyncio.sleep(0)
            assert all(reply.get("successful", True) for reply in each.answer), each.answer

    async def let_in(self, count: int, most: int, *, named: bool) -> None:
        """So many acknowledging receivers, whose queues take `most` messages each."""
        for start in range(0, count, SIDE_BY_SIDE):
            requests = []
            for number in range(start, min(start + SIDE_BY_SIDE, count)):
                session: dict[str, Any] = {"queue": {"maxEntries": most}}
                if named:
                    session["name"] = f"joe{number}/1"
                request = Request(None)
                asked = {"version": "1.0", "supportedConnectionTypes": ["long-polling"], "id": "1"}
                self.broker.inbound.receive(
                    request, [{"channel": "/meta/handshake", **asked, "ext": {"ack": True, "session": session}}]
                )
                requests.append(request)
            await self._answers(requests)
            came = [(each.answer[0]["clientId"], each.browser) for each in requests]
            self.receivers += came
            requests = []
            for client_id, browser in came:
                request = Request(browser)
                connect = {"channel": "/meta/connect", "connectionType": "long-polling", "advice": {"timeout": 0}}
                messages = [connect | {"ext": {"ack": 0}}, {"channel": "/meta/subscribe", "subscription": CHANNEL}]
                self.broker.inbound.receive(request, [{"id": "2", "clientId": client_id, **each} for each in messages])
                requests.append(request)
            await self._answers(requests)

    def hold(self) -> None:
        """Let each receiver wait in a connect."""
        for client_id, browser in self.receivers:
            connect = {"channel": "/meta/connect", "id": "3", "clientId": client_id, "connectionType": "long-polling"}
            self.broker.inbound.receive(Request(browser), [connect | {"ext": {"ack": 1}}])

    def leave(self) -> None:
        """Let all receivers be away."""
        for client_id, _ in self.receivers:
            session = self.broker.sessions.by_id[client_id]
            session.mailbox.go_away()
            session.expires_at = float("inf")

    async def end_all(self) -> None:
        """Let the time of all receivers end, and wait until the store has them no more."""
        for client_id, _ in self.receivers:
            self.broker.sessions.by_id[client_id].expires_at = 0.0
        self.broker.sweep()
        while self.broker.runtime.access.node.sessions:
            await asyncio.sleep(PAUSE_S)

    async def publish(self, count: int, size: int = 40) -> None:
        """So many stored messages side by side, as requests have them: a turn takes in what one request can hold."""
        publish, most = self.broker.publish_stored, self.broker.settings.bayeux.max_message_bytes // size
        async with asyncio.TaskGroup() as publishing:
            for number in range(count):
                publishing.create_task(publish(CHANNEL, {"n": number, "pad": "x" * size}))
                if number % most == most - 1:
                    await asyncio.sleep(0)

    async def told(self) -> None:
        """Wait until all is handed out, and the store has it and each dead letter."""
        node = self.broker.runtime.access.node
        while self.broker.mailboxes.outbound.fan_outs.pending or node.fan_out.dead_letters.size:
            await asyncio.sleep(0.1)
        await self.broker.durability.committed()

    async def watch(self, work: Callable[[], Awaitable[object]]) -> tuple[Meanwhile, float, float]:
        """What was seen meanwhile; seconds until the work was answered, and until all was done."""
        seen = Meanwhile()
        watching = [asyncio.create_task(each(seen)) for each in (turns, self._publish, self._memory)]
        await asyncio.sleep(QUIET_S)
        seen.longest = 0.0
        seen.turns.clear()
        began = time.perf_counter()
        await work()
        answered = time.perf_counter() - began
        await self.told()
        done = time.perf_counter() - began
        await asyncio.sleep(QUIET_S)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        return seen, answered, done

    async def _publish(self, seen: Meanwhile) -> None:
        while True:
            began = time.perf_counter()
            try:
                await self.broker.publish_stored("/other", 1)
            except CrewelError:
                seen.refused += 1
            seen.waits.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_S)

    async def _memory(self, seen: Meanwhile) -> None:
        while True:
            with suppress(CrewelError):
                info: Any = await self.store.reader.info("memory")
                seen.store_mib = max(seen.store_mib, info["used_memory"] / 2**20)
            await asyncio.sleep(0.5)


async def started(first: Store, settings: Settings) -> str:
    """Let a second server begin with what the first has left; what was seen."""
    first.cut()
    store = Store(settings)
    await store.open()
    broker = Broker(settings, (AckExtension(),), asyncio.get_running_loop())
    seen = Meanwhile()
    watching = asyncio.create_task(turns(seen))
    await asyncio.sleep(QUIET_S)
    seen.longest = 0.0
    seen.turns.clear()
    began = time.perf_counter()
    await broker.make_durable(store)
    took = time.perf_counter() - began
    watching.cancel()
    await asyncio.wait([watching])
    await broker.close()
    await store.close()
    return f"has read all in {took:.1f} s; longest turn {seen.longest * 1000:.0f} ms, {len(seen.turns)} over 20 ms"


async def measure(asked: argparse.Namespace) -> str:
    """Do one piece of work; what was seen."""
    kind, receivers, messages, sets = asked.kind, asked.receivers, asked.messages, asked.sets
    if kind == "start":  # nothing is committed before, and the lease of a server that is there is taken
        sets = ["delivery.commit_ms=60000", "storage.take_over=true", *sets]
    with TemporaryDirectory() as directory:
        settings: Settings = load(overrides=[f"storage.data_dir={directory}", *SETS, *sets], environ={})
        store = Store(settings)
        await store.open()
        broker = Broker(settings, (AckExtension(),), asyncio.get_running_loop())
        await broker.make_durable(store)
        bench = Bench(broker, store)
        await bench.let_in(receivers, 1 if kind == "letters" else 1000, named=not asked.anonymous)
        if kind == "connected":
            bench.hold()
        else:
            bench.leave()
        await asyncio.sleep(QUIET_S)
        if kind in ("letters", "erase", "ends", "start"):
            await bench.publish(1 if kind == "letters" else messages)
            await (asyncio.sleep(QUIET_S) if kind == "start" else bench.told())
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 2, 320)  # as the server does
        if kind == "start":
            gc.disable()  # as the server does until it listens
            said = await started(store, settings)
            await broker.close()
            await store.close()
            return said
        if kind == "erase":
            seen, answered, done = await bench.watch(lambda: broker.topics.endings.erase(CHANNEL, force=True))
        elif kind == "ends":
            seen, answered, done = await bench.watch(bench.end_all)
        else:
            seen, answered, done = await bench.watch(lambda: bench.publish(messages, asked.size))
        letters = await store.reader.xlen(store.keys.dead)
        await broker.close()
        await store.close()
    return f"answered in {answered:.1f} s, all done in {done:.1f} s, {letters} dead letters kept; {seen.said()}"


def main() -> None:
    """Measure what was asked for, and print it."""
    arguments = argparse.ArgumentParser(description="How long the server's loop stands still for large work.")
    arguments.add_argument("kind", choices=["letters", "absent", "connected", "erase", "ends", "start"])
    arguments.add_argument("--receivers", type=int, default=2000)
    arguments.add_argument("--messages", type=int, default=1)
    arguments.add_argument("--size", type=int, default=40, help="bytes of a message")
    arguments.add_argument("--anonymous", action="store_true", help="receivers without a name")
    arguments.add_argument(
        "--set", action="append", default=[], dest="sets", help="a setting, as crewel serve takes it"
    )
    asked = arguments.parse_args()
    before = os.getloadavg()[0]
    said = uvloop.run(measure(asked))
    print(f"{asked.kind}, {asked.messages} to {asked.receivers}: {said}")
    print(f"load average before {before:.1f}, after {os.getloadavg()[0]:.1f}; {Path(__file__).name}")


if __name__ == "__main__":
    main()
