"""`maxOpen` on two nodes, one for each kind of socket: time-outs, failures, dead letters that are redriven, broken
connections, clients that come again and nodes that are killed. Never are more messages open at a client than its login asked
for, with 1 they come strictly in order, and none is lost. `test_max_open_at_random.py` of `tests/broker/mailboxes` makes
such runs in one process."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from crewel.bayeux.message import Fields
from crewel.client import Client, Extension, Message, NotConnectedError, TransportError
from crewel.client.publish_options import PublishOptions
from crewel.client.subscription import Subscription
from tests.admin.desk import TOKEN, Desk
from tests.conftest import StartServer
from tests.cutting_proxy import random_cuts
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.nodes import Nodes
from tests.patience import patience
from tests.store_process import StoreProcess

RECEIVERS: Final = 20 if IS_FULL else 6
"""Each has a limit, a transport and habits of its own."""
SEEDS: Final = range(1, 11) if IS_FULL else (1,)
MESSAGES: Final = 25 if IS_FULL else 8
KILLS: Final = 2 if IS_FULL else 1
ACK_WAIT_S: Final = 0.6
READ_S: Final = 0.4
"""Within this time, what a killed node has sent is read."""
LIMIT_S: Final = 90.0
WAYS: Final = ("subscription", "subject")
TRANSPORTS: Final = ("websocket", "long-polling")
LANES: Final = (("http.fast_lane=true",), ("http.fast_lane=false",))
"""Of the two nodes: a receiver's sockets are those of either, whichever its balancer finds."""


class Watch(Extension):
    """What is open at one client: what came over the wire, and has not been given a status."""

    def __init__(self, channel: str, most: int) -> None:
        self.channel, self.most = channel, most
        self.open: dict[str, int] = {}
        self.ended: set[str] = set()
        """What the application has given its last status, by id: one that is redriven has another."""
        self.accepted: set[int] = set()
        self.first: list[int] = []
        """Each message when it came for the first time."""
        self.trouble: list[str] = []
        self.is_open_forgotten = False
        """Whether the node that sent what is open is being killed."""
        self.most_seen = 0

    def incoming(self, message: Fields) -> Fields | None:
        number = message.get("data")
        if message["channel"] == self.channel and type(number) is int:
            message_id = message["ext"]["update"]["id"]
            if number not in self.first:
                self.first.append(number)
            if message_id not in self.ended:  # the client answers a repeat of what has ended itself
                self.open[message_id] = number
            if not self.is_open_forgotten:
                self.most_seen = max(self.most_seen, len(self.open))
                if len(self.open) > self.most:
                    self.trouble.append(f"{sorted(self.open.values())} are open at once")
        return message

    def answered(self, message: Message, *, is_end: bool) -> None:
        """The application gives this status."""
        assert message.id is not None
        self.open.pop(message.id, None)
        if is_end:
            self.ended.add(message.id)

    @property
    def is_done(self) -> bool:
        """Whether the application has accepted all."""
        return len(self.accepted) == MESSAGES

    def check(self) -> None:
        """Raise for what must not have happened."""
        assert not self.trouble, (self.channel, self.most, self.trouble[:3])
        assert self.accepted == set(range(1, MESSAGES + 1))
        if self.most == 1:
            assert self.first == list(range(1, MESSAGES + 1)), self.channel


class Receiver:
    """One application, which takes its time, fails, rejects, forgets messages and comes again."""

    def __init__(self, port: int, subject: str, way: str, transport: str, rng: random.Random, directory: Path) -> None:
        """`way` is how its messages come: by a `subscription` or to its `subject`."""
        self._port, self._name, self._transport, self._rng = port, f"{subject}/1", transport, rng
        self.way, self.subject = way, subject
        self.watch = Watch(f"/one/{subject}", rng.choice((1, 1, 2, 5)))
        self._resume = directory / subject
        self.done: Counter[str] = Counter()
        self.is_ready = asyncio.Event()

    async def run(self) -> None:
        """Live until all messages have been accepted."""
        while not self.watch.is_done:
            self.watch.open.clear()  # a client that comes again has received nothing
            self.done["lives"] += 1
            # A subscribe was cut off, or its node killed: the application starts again.
            with suppress(TransportError, NotConnectedError):
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
            subscription = await self._received(client)
            self.is_ready.set()
            for _ in range(count):
                if self.watch.is_done:
                    break
                await self._process(await anext(subscription))

    async def _received(self, client: Client) -> Subscription:
        if self.way == "subject":
            return client.listen(self.watch.channel)
        return await client.subscribe(self.watch.channel)

    async def _process(self, message: Message) -> None:
        message.defer()
        habits = {"OK": 12, "slow": 3, "late": 1, "working": 1, "fail": 2, "reject": 2, "forget": 1}
        (what,) = self._rng.choices(list(habits), list(habits.values()))
        self.done[what] += 1
        if what == "slow":
            await asyncio.sleep(self._rng.random() * ACK_WAIT_S / 2)
        elif what == "late":
            await asyncio.sleep(ACK_WAIT_S * 1.3)
        elif what == "working":
            for _ in range(3):
                message.working()
                await asyncio.sleep(ACK_WAIT_S / 2)
        elif what == "forget":
            return
        self.watch.answered(message, is_end=what != "fail")
        if what == "fail":
            message.reject("communication.noConnection", "later")
        elif what == "reject":
            message.reject("user.no", "an operator redrives it")
        else:
            message.settle()
            self.watch.accepted.add(message.data)


async def publish(port: int, receivers: list[Receiver], rng: random.Random) -> None:
    """Publish all messages, those of each receiver in order."""
    async with Client(f"http://127.0.0.1:{port}/cometd", open_timeout=LIMIT_S) as client:
        for number in range(1, MESSAGES + 1):
            await asyncio.gather(*(_publish(client, each, number) for each in receivers))
            await asyncio.sleep(rng.random() * 0.2)


async def _publish(client: Client, receiver: Receiver, number: int) -> None:
    channel = receiver.watch.channel
    options: PublishOptions = {"persistent": True, "key": f"{channel} {number}"}
    if receiver.way == "subject":
        options |= {"to": f"client/{receiver.subject}", "force_queuing": True}
    await client.publish(channel, number, retry_for=60, **options)


async def redrive(nodes: Nodes, is_done: Callable[[], bool]) -> int:
    """Redrive all dead letters, again and again. Returns how many there were."""
    redriven = 0
    while not is_done():
        await asyncio.sleep(0.3)
        with suppress(OSError, EOFError):  # the node may be killed meanwhile
            desk = Desk(next(each.server for each in nodes.all if each.is_up))
            answer = await asyncio.to_thread(desk.ask, "POST", "/dead-letters/redrive", {"all": True})
            redriven += answer.json().get("redriven", 0)
    return redriven


async def kill(nodes: Nodes, receivers: list[Receiver], rng: random.Random) -> None:
    """Kill nodes and start them again. The node that takes their sessions does not know what their clients hold: it sends all
    that is pending in order, so what comes by a subscription still holds the limit, and other messages may come between."""
    for _ in range(KILLS):
        await asyncio.sleep(1.0 + rng.random() * 2.0)
        async with forgotten([each.watch for each in receivers if each.way != "subscription"]):
            node = nodes.any()
            nodes.kill(node)
        await nodes.start(node)


@asynccontextmanager
async def forgotten(watches: list[Watch]) -> AsyncIterator[None]:
    """What is open at these when the block ends counts no more."""
    for each in watches:
        each.is_open_forgotten = True
    yield
    await asyncio.sleep(READ_S)
    for each in watches:
        each.open.clear()
        each.is_open_forgotten = False


@pytest.mark.parametrize("seed", SEEDS)
async def test_never_more_open_than_asked(
    seed: int, start_server: StartServer, store: StoreProcess, tell: Tell, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    async with Nodes(start_server, 2, rng, f"admin.token={TOKEN}") as nodes:
        await nodes.begin(store.url, each=LANES)
        nodes.balancer.arm(random_cuts(seed, 0.01))
        kinds = [(way, transport) for way in WAYS for transport in TRANSPORTS]
        receivers = [
            Receiver(nodes.port, f"one{number}", *kinds[number % len(kinds)], random.Random(rng.random()), tmp_path)
            for number in range(RECEIVERS)
        ]
        async with asyncio.timeout(LIMIT_S * patience()), asyncio.TaskGroup() as living:
            for each in receivers:
                living.create_task(each.run())
            await asyncio.gather(*(each.is_ready.wait() for each in receivers))
            living.create_task(publish(nodes.port, receivers, rng))
            living.create_task(kill(nodes, receivers, rng))
            redriving = living.create_task(redrive(nodes, lambda: all(each.watch.is_done for each in receivers)))
    for each in receivers:
        each.watch.check()
    done = sum((each.done for each in receivers), Counter())
    seen = Counter((each.watch.most, each.watch.most_seen) for each in receivers)
    told = ", ".join(f"{count} asked {asked} and had {had}" for (asked, had), count in sorted(seen.items()))
    tell(
        f"seed {seed}: {RECEIVERS} receivers by subscription or subject, over sockets or long-polling, on two nodes, one"
        f" of each lane; {KILLS} killed, {MESSAGES} messages each, {redriving.result()} redriven; most open at once: {told};"
        f" {', '.join(f'{name} {count}' for name, count in sorted(done.items()))}"
    )
