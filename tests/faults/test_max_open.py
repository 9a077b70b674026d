"""`maxOpen` on two nodes: time-outs, failures, broken connections, clients that come again and nodes that are killed. Never are
more messages open at a client than its login asked for, with 1 they come strictly in order, and none is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from crewel.bayeux.message import Fields
from crewel.client import Client, Extension, Message
from tests.conftest import StartServer
from tests.cutting_proxy import random_cuts
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.nodes import Nodes
from tests.patience import patience
from tests.store_process import StoreProcess

RUNS: Final = 20 if IS_FULL else 6
"""Receivers at once, each with a channel, a limit and habits of its own."""
SEEDS: Final = range(1, 11) if IS_FULL else range(1, 3)
MESSAGES: Final = 25
KILLS: Final = 2 if IS_FULL else 1
ACK_WAIT_S: Final = 0.6
READ_S: Final = 0.4
"""Within this time, what a killed node has sent is read."""
LIMIT_S: Final = 90.0
COMMUNICATION: Final = "communication.noConnection"


class Watch(Extension):
    """What is open at one client: what came over the wire, and has not been given a status."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        """What the application has given its last status."""
        self.first: list[int] = []
        """Each message when it came for the first time."""
        self.trouble: list[str] = []
        self.is_shaken = False
        """Whether what its node has sent before it was killed may still come."""
        self.most_seen = 0

    def incoming(self, message: Fields) -> Fields | None:
        number = message.get("data")
        if message["channel"].startswith("/one/") and type(number) is int:
            message_id = message["ext"]["update"]["id"]
            if number not in self.first:
                self.first.append(number)
            if message_id not in self.ended:  # the client answers a repeat of what has ended itself
                self.open[message_id] = number
            self.most_seen = max(self.most_seen, len(self.open))
            if len(self.open) > self.most and not self.is_shaken:
                self.trouble.append(f"{sorted(self.open.values())} are open at once")
        return message

    def answered(self, message: Message, *, is_end: bool) -> None:
        """The application gives this status."""
        assert message.id is not None
        self.open.pop(message.id, None)
        if is_end:
            self.ended[message.id] = message.data

    def check(self) -> None:
        """Raise for what must not have happened."""
        assert not self.trouble, self.trouble[:3]
        assert sorted(self.ended.values()) == list(range(1, MESSAGES + 1))
        if self.most == 1:
            assert self.first == list(range(1, MESSAGES + 1))


class Receiver:
    """One application, which takes its time, fails, forgets messages and comes again."""

    def __init__(self, port: int, name: str, rng: random.Random, directory: Path) -> None:
        self._rng, self._port, self._name = rng, port, name
        self.channel = f"/one/{name.replace('/', '-')}"
        self.watch = Watch(rng.choice((1, 1, 2, 5)))
        self._resume = directory / name.replace("/", "-")
        self._transport = rng.choice(("websocket", "long-polling"))
        self.done: Counter[str] = Counter()
        self.is_subscribed = asyncio.Event()

    async def run(self) -> None:
        """Live until all messages have ended."""
        while len(self.watch.ended) < MESSAGES:
            self.watch.open.clear()  # a client that comes again has received nothing
            self.done["lives"] += 1
            await self._live(self._rng.randint(5, 40))

    async def _live(self, count: int) -> None:
        client = Client(
            f"http://127.0.0.1:{self._port}/cometd",
            transports=[self._transport],
            extensions=[self.watch],
            name=self._name,
            resume_file=self._resume,
            persistent=True,
            leave=True,
            update=True,
            max_open=self.watch.most,
            ack_wait=ACK_WAIT_S,
            retries=-1,
            delay=self._rng.choice((0, 0.05)),
            open_timeout=LIMIT_S,
            name_timeout=LIMIT_S,
        )
        async with client:
            subscription = await client.subscribe(self.channel)
            self.is_subscribed.set()
            for _ in range(count):
                if len(self.watch.ended) == MESSAGES:
                    break
                await self._process(await anext(subscription))

    async def _process(self, message: Message) -> None:
        message.defer()
        what = self._rng.choices(("OK", "slow", "late", "working", "fail", "reject", "forget"), (12, 3, 1, 1, 2, 1, 1))[
            0
        ]
        self.done[what] += 1
        if what == "slow":
            await asyncio.sleep(self._rng.random() * ACK_WAIT_S / 2)
        elif what == "late":
            await asyncio.sleep(ACK_WAIT_S * 1.3)
        elif what == "working":
            for _ in range(3):
                message.working()
                await asyncio.sleep(ACK_WAIT_S / 2)
        if what == "forget":
            return
        self.watch.answered(message, is_end=what != "fail")
        if what == "fail":
            message.reject(COMMUNICATION, "later")
        elif what == "reject":
            message.reject("user.no", "never")
        else:
            message.settle()


async def publish(port: int, channels: list[str], rng: random.Random) -> None:
    """Publish all messages, each channel's in order."""
    async with Client(f"http://127.0.0.1:{port}/cometd", open_timeout=LIMIT_S) as client:
        for number in range(1, MESSAGES + 1):
            keyed = [(channel, f"{channel}{number}") for channel in channels]
            await asyncio.gather(*(_publish(client, channel, number, key) for channel, key in keyed))
            await asyncio.sleep(rng.random() * 0.2)


async def _publish(client: Client, channel: str, number: int, key: str) -> None:
    await client.publish(channel, number, persistent=True, key=key, retry_for=60)


async def kill(nodes: Nodes, watches: list[Watch], rng: random.Random) -> None:
    """Kill nodes and start them again. Whoever takes their sessions begins with none open."""
    for _ in range(KILLS):
        await asyncio.sleep(1.0 + rng.random() * 2.0)
        node = nodes.any()
        for each in watches:
            each.is_shaken = True
        nodes.kill(node)
        await asyncio.sleep(READ_S)
        for each in watches:
            each.open.clear()
            each.is_shaken = False
        await nodes.start(node)


@pytest.mark.parametrize("seed", SEEDS)
async def test_never_more_open_than_asked(
    seed: int, start_server: StartServer, store: StoreProcess, tell: Tell, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    async with Nodes(start_server, 2, rng) as nodes:
        await nodes.begin(store.url)
        nodes.balancer.arm(random_cuts(seed, 0.01))
        receivers = [
            Receiver(nodes.port, f"one{number}/1", random.Random(rng.random()), tmp_path) for number in range(RUNS)
        ]
        watches = [each.watch for each in receivers]
        async with asyncio.timeout(LIMIT_S * patience()), asyncio.TaskGroup() as living:
            for each in receivers:
                living.create_task(each.run())
            await asyncio.gather(*(each.is_subscribed.wait() for each in receivers))
            living.create_task(publish(nodes.port, [each.channel for each in receivers], rng))
            living.create_task(kill(nodes, watches, rng))
    for watch in watches:
        watch.check()
    done = sum((each.done for each in receivers), Counter())
    seen = sorted(Counter((each.most, each.most_seen) for each in watches).items())
    tell(
        f"seed {seed}: {RUNS} receivers on two nodes, {KILLS} kills, {MESSAGES} messages each; (asked, most open): receivers"
        f" {seen}; {dict(sorted(done.items()))}"
    )
