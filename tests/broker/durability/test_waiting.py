"""Whatever happens, and in whatever order: what waits for a session by the server's memory is what the store has open for it.

Clients of all kinds come, settle and go; an operator works on sessions, topics and dead letters; the server dies. Much of it
reaches the store at once, so that one answer comes right after another. When nothing is under way any more, memory and store
are compared.
"""

from __future__ import annotations

import os
import random
from asyncio import Task
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from crewel.broker.dead_letters.redrive import Chosen, Limits
from crewel.errors import Refused
from tests.broker.stored_world import Receiver, StoredWorld, failed, ok
from tests.broker.together import Together
from tests.broker.world import Request, World, reply_to

pytestmark = pytest.mark.store

RUNS = int(os.environ.get("CREWEL_RUNS") or (200 if os.environ.get("FAULTS") == "full" else 4))
STEPS = 100
SETS = ("delivery.delay_ms=500", "delivery.retries=2", "bayeux.max_interval_ms=4000")
CHANNELS = ("/x/a", "/x/b", "/x/c")
CODES = ("user.update.error", "user.update.deadMessage", "communication.timeout", "user.update.holdback")
FATAL = "user.security.authentication.accessDenied"
MOST_COMMITS = 30
"""Commits after which sessions that end have left the store, and all dead letters are there."""


class Kind(NamedTuple):
    """What a client asks for."""

    name: str
    wants: dict[str, dict[str, Any]]
    session: dict[str, Any]


KINDS = (
    Kind("quick/1", {"/x/a": {}, "/x/*": {"newestOnly": True}}, {"settle": "batch"}),
    Kind("newest/1", {"/x/*": {"newestOnly": True}}, {"settle": "message", "burst": {"maxEntries": 2}}),
    Kind("small/1", {"/x/*": {}}, {"settle": "message", "queue": {"maxEntries": 4}}),
    Kind("small/2", {"/x/*": {}}, {"settle": "batch", "queue": {"maxEntries": 4, "onOverflow": "dropOldest"}}),
    Kind("small/3", {"/x/a": {}}, {"settle": "batch", "queue": {"maxEntries": 6, "onOverflow": "disconnect"}}),
    Kind("wise/1", {"/x/*": {"filter": "data > `40`"}, "/x/c": {}}, {"settle": "message"}),
    Kind("pair/1", {"/x/b": {"group": "workers"}}, {"settle": "message"}),
    Kind("pair/2", {"/x/b": {"group": "workers"}}, {"settle": "batch"}),
    Kind("", {"/x/a": {"newestOnly": True}, "/x/b": {}}, {"settle": "batch"}),
)


class Person:
    """A client, and what it has asked for and not been answered."""

    def __init__(self, kind: Kind, world: StoredWorld, rng: random.Random) -> None:
        self.kind = kind
        self.client = Receiver(world)
        self.random = rng
        self.asked: tuple[Request, str, Callable[[dict[str, Any]], None]] | None = None
        self._missing: list[str] = []
        self._statuses: list[dict[str, Any]] = []

    def use(self, world: StoredWorld) -> None:
        """Another server has taken the place of the one before."""
        self.client.world, self.asked = world, None

    def act(self) -> None:
        """Take the answer, if it has come, and ask for the next thing."""
        if self.asked is not None:
            peer, message_id, then = self.asked
            if peer.is_held:
                return
            self.asked = None
            if peer.payloads:
                self._answered(peer, reply_to(peer, message_id), then)
        if self.client.id is None:
            self._shake_hands()
        elif self._missing:
            pattern = self._missing[0]
            self._ask("/meta/subscribe", self._subscribed, subscription=pattern, ext={"subscribe": self._wish(pattern)})
        elif self.random.random() < 0.06:
            self._ask("/meta/disconnect", self._left)
        elif self.random.random() < 0.06:
            self._missing = [self.random.choice([*self.kind.wants])]
            self._ask("/meta/unsubscribe", lambda _: None, subscription=self._missing[0])
        else:
            self._connect()

    def _ask(self, channel: str, then: Callable[[dict[str, Any]], None], **fields: Any) -> None:
        message, peer = self.client.message(channel, **fields), Request(self.client.browser)
        self.asked = peer, message["id"], then
        World.receive(self.client.world, peer, message)

    def _answered(self, peer: Request, reply: dict[str, Any], then: Callable[[dict[str, Any]], None]) -> None:
        if peer.mints_cookie:
            self.client.browser = peer.browser
        if reply["successful"]:
            then(reply)
        elif reply.get("advice", {}).get("reconnect") in ("handshake", "none"):
            self.client.id = None

    def _wish(self, pattern: str) -> dict[str, Any]:
        return self.kind.wants[pattern]

    def _shake_hands(self) -> None:
        name = {"name": self.kind.name} if self.kind.name else {}
        resume = {"resume": self.client.login["resume"]} if self.client.login and self.random.random() < 0.7 else {}
        asked = {"update": True, **name, **resume, **self.kind.session}
        self._ask("/meta/handshake", self._came, version="1.0", ext={"ack": True, "session": asked})

    def _came(self, reply: dict[str, Any]) -> None:
        self.client.id, self.client.login, self.client.ack = reply["clientId"], reply["ext"]["session"], 0
        self._missing, self._statuses = [*self.kind.wants], []

    def _subscribed(self, _: dict[str, Any]) -> None:
        del self._missing[0]

    def _left(self, _: dict[str, Any]) -> None:
        self.client.id, self.client.login = None, {}

    def _connect(self) -> None:
        statuses, self._statuses = self._statuses, []
        ext = {"ack": self.client.ack} | ({"update": statuses} if statuses else {})
        fields = {"connectionType": "long-polling", "advice": {"timeout": 0}}
        self._ask("/meta/connect", self._connected, ext=ext, **fields)

    def _connected(self, reply: dict[str, Any]) -> None:
        assert self.asked is None
        self.client.ack = reply["ext"]["ack"]

    def heard(self) -> None:
        """Think about what has come, if something has."""
        if self.asked is not None and self.asked[0].payloads:
            for message in self.asked[0].answer:
                if "data" in message and not message["channel"].startswith("/meta/"):
                    self._decide(message)

    def _decide(self, message: dict[str, Any]) -> None:
        chance = self.random.random()
        if chance < 0.5:
            self._statuses.append(ok(message))
        elif chance < 0.7:
            self._statuses.append(failed(message, self.random.choice(CODES)))
        elif chance < 0.71:
            self._statuses.append(failed(message, FATAL))


class Life:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = self._served("")
        self.people = [Person(kind, self.world, self.random) for kind in KINDS]
        self.together: Together | None = None
        self.tasks: list[Task[Any]] = []
        self.published = self.compared = self.most = 0

    def _served(self, prefix: str) -> StoredWorld:
        world = StoredWorld(*SETS, prefix=prefix)
        node = world.access.node
        node.max_changes, node.max_opened, node.max_dead_letters, node.max_applied = 2, 6, 2, 4
        return world

    def run(self) -> None:
        """Do so many steps, and compare."""
        steps = {
            self.act: 30,
            self.publish: 10,
            self.send: 3,
            self.operate: 4,
            self.redrive: 3,
            self.erase: 1,
            self.gather: 5,
            self.settle: 5,
            self.wait: 3,
            self.crash: 0.5,
            self.compare: 1,
        }
        for _ in range(STEPS):
            (step,) = self.random.choices([*steps], [*steps.values()])
            step()
        self.compare()

    # What happens

    def act(self) -> None:
        person = self.random.choice(self.people)
        person.heard()
        person.act()

    def publish(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.published += 1
            qos: dict[str, Any] = {"priority": self.random.choice((1, 5, 5, 9))}
            if self.random.random() < 0.2:
                qos |= {"lifeTime": self.random.choice((0, 100, 2000)), "forceDestroy": self.random.random() < 0.8}
            channel = self.random.choice(CHANNELS)
            if channel == "/x/c":
                qos["history"] = {"maxEntries": 3}
            self._begin(self.world.broker.publish_stored(channel, self.published, qos=qos))

    def send(self) -> None:
        self.published += 1
        to = self.random.choice(("client/small", "client/pair", "client/nobody"))
        distribute = self.random.choice(("all", "one"))
        wanted = {"to": to, "forceQueuing": True, "distribute": distribute}
        self._begin(self._send({"persistent": True, "destination": [wanted]}))

    async def _send(self, qos: dict[str, Any]) -> None:
        with suppress(Refused):  # the subject without a session does not take it, and the other one does
            await self.world.broker.send("client/absent", "/service/box", self.published, qos=qos)

    def operate(self) -> None:
        sessions = [*self.world.broker.sessions.by_id.values()]
        if not sessions:
            return
        session, dispatchers = self.random.choice(sessions), self.world.broker.mailboxes.dispatchers
        what: Callable[[], Any] = self.random.choice(
            (
                lambda: dispatchers.hold(session, "operator"),
                lambda: dispatchers.activate(session),
                lambda: dispatchers.skip(session),
                lambda: dispatchers.drain(session),
                lambda: dispatchers.clear(session),
                lambda: dispatchers.remove(session, 2),
                lambda: self._kill(session),
                lambda: self._kill(session),
            )
        )
        self._begin(what())

    async def _kill(self, session: Any) -> None:
        self.world.broker.disconnect(session)

    def redrive(self) -> None:
        to_channel = self.random.random() < 0.2
        self._begin(self.world.broker.dead_letters.redrive.redrive(Chosen(), Limits(count=50), to_channel=to_channel))

    def erase(self) -> None:
        work = self.world.broker.topics.endings.erase(self.random.choice(CHANNELS), force=self.random.random() < 0.5)
        self._begin(work)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        if self.together is None:
            self.tasks.append(self.world.loop.create_task(work))
        else:
            self.tasks.append(self.together.ask(work))

    def gather(self) -> None:
        """What is asked of the store from now on reaches it at once."""
        if self.together is None:
            self.settle()
            self.together = Together(self.world)

    def settle(self) -> None:
        together, self.together = self.together, None
        if together is not None:
            together.close()
        self.world.settle()

    def wait(self) -> None:
        self.settle()
        self.world.sweep_after(self.random.choice((0.05, 0.3, 1.0, 5.0)))

    def crash(self) -> None:
        if self.random.random() < 0.5:
            self.settle()
        elif self.together is not None:
            self.together.close()
            self.together = None
        self.world.crash()
        self.tasks.clear()
        self.world = self._served(self.world.prefix)
        for person in self.people:
            person.use(self.world)

    # What must hold

    def compare(self) -> None:
        """When nothing is under way, memory and store have the same."""
        self.settle()
        for _ in range(MOST_COMMITS):
            self.world.commit()
            if (memory := self._in_memory()) == (stored := self._in_store()):
                break
        else:
            raise AssertionError(f"memory has {memory}, and the store {stored}")
        self.compared += 1
        self.most = max(self.most, sum(map(len, memory.values())))
        for task in self.tasks:
            assert task.done(), task
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        self.tasks.clear()

    def _in_memory(self) -> dict[str, set[int]]:
        access, queues = self.world.access, self.world.broker.addressing.shared_queues
        waiting: dict[str, set[int]] = {
            name: {*durable.pending, *durable.inbox} for name, durable in access.node.sessions.items()
        }
        return waiting | {name: set(range(queues.waiting(name))) for name in queues.names()}

    def _in_store(self) -> dict[str, set[int]]:
        return self.world.wait(self._read())

    async def _read(self) -> dict[str, set[int]]:
        keys, found = self.world.store.keys, dict[str, set[int]]()
        reader: Any = self.world.store.reader
        for name in await reader.smembers(keys.own(self.world.access.token)):
            record = await reader.hkeys(keys.session(name.decode()))
            found[name.decode()] = {int(field[2:]) for field in record if field[:2] in (b"o:", b"i:")}
        for name in await reader.zrange(keys.queues, 0, -1):
            found[name.decode()] = set(range(await reader.zcard(keys.queue(name.decode()))))
        return found

    def close(self) -> None:
        self.settle()
        if not self.world.is_closed:
            self.world.close()


@pytest.mark.parametrize("seed", range(RUNS))
def test_memory_has_what_the_store_has(seed: int) -> None:
    life = Life(seed)
    try:
        life.run()
    finally:
        life.close()
