"""The server is killed between any two steps, with topics and their histories, messages by name and the queues they wait in,
groups, positions and holdbacks: all of it is back with the next server, and the sums are exact at any moment."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.admin.desk import TOKEN, Desk
from tests.conftest import StartServer
from tests.faults.audit import Audit, store_of
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.load import wait_for
from tests.faults.random_publisher import Published, RandomPublisher
from tests.faults.random_readers import RandomReader
from tests.faults.random_receivers import HOLDBACK, LATER, OK, WORKING, Habits, RandomReceiver
from tests.faults.test_ledger import everybody
from tests.faults.test_server_killed import store_of as sets_of
from tests.functional.bayeux import Message
from tests.functional.people import Person
from tests.functional.post import Keeper
from tests.functional.wire import until
from tests.server_process import Server

SEEDS = range(1, 21) if IS_FULL else range(1, 2)
KILLS = 5 if IS_FULL else 2
PUBLISHERS = 2
MESSAGES = 100_000  # they are stopped when the last server has been killed
SETS = (
    f"admin.token={TOKEN}",
    "bayeux.timeout_ms=1000",
    "bayeux.max_interval_ms=60000",
    "bayeux.sweep_ms=50",
    "delivery.commit_ms=50",
    "delivery.queue_max_entries=10000",
    "ptp.subject_queue_max_entries=100000",
)
ONE_BY_ONE = {"update": True, "settle": "message"}
FAILS = "user.update.error"
MOSTLY = {OK: 10, WORKING: 1, LATER: 2, FAILS: 1}
TEAM, NAMED, NOBODY, HELD = "client/team", "client/named/1", "client/nobody", "client/held/1"
JOBS, LONG, SHORT, PLAIN, BOX = "/x/job/a", "/x/long", "/x/short", "/x/plain", "/service/box"
KEPT = {LONG: 1_000_000, SHORT: 20}
"""How many messages a topic keeps."""

WORKERS = {"/x/job/*": {"group": "workers"}}
KINDS = (
    Habits(("/x/**",), "named/1", ONE_BY_ONE, MOSTLY, cuts=0.05),
    Habits((PLAIN,), "team/1", ONE_BY_ONE, MOSTLY, leaves=0.03, cuts=0.03),
    Habits((), "team/2", ONE_BY_ONE, MOSTLY, leaves=0.03, socket=True),
    Habits(("/x/job/*",), "pair/1", ONE_BY_ONE, MOSTLY, leaves=0.01, asks=WORKERS),
    Habits(("/x/job/*",), "pair/2", ONE_BY_ONE, MOSTLY, socket=True, cuts=0.02, asks=WORKERS),
    Habits((SHORT, PLAIN), None, {"update": True, "settle": "batch"}, MOSTLY, socket=True),
    Habits((PLAIN, LONG), "held/1", ONE_BY_ONE, {HOLDBACK: 1}),
)
"""A subscriber of everything who is also addressed, two sessions of a subject, two members of a group, an anonymous one, and
one who is held back by its first message and stays so."""
STEPS = (
    "published",
    "addressed",
    "leased",
    "returned",
    "ended",
    "subscribed",
    "opened-session",
    "closed-session",
    "held",
)
"""Facts: a kill follows a step that has just written one."""


def choose(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Where a message goes, and how."""
    how = rng.random()
    qos: dict[str, Any] = {"priority": rng.choice((1, 5, 5, 5, 9))}
    if how < 0.2:
        return LONG, {"history": {"maxEntries": KEPT[LONG]}}  # of one priority: a position is a place in one order
    if how < 0.6:
        channel = rng.choice((JOBS, JOBS, SHORT, PLAIN))
        kept = {"history": {"maxEntries": KEPT[channel]}} if channel in KEPT else {}
        lives = {"lifeTime": rng.choice((50, 60_000))} if channel == PLAIN and rng.random() < 0.3 else {}
        return channel, qos | kept | lives
    to = rng.choice(
        (
            [{"to": TEAM, "forceQueuing": True}],
            [{"to": TEAM, "forceQueuing": True}],
            [{"to": TEAM, "forceQueuing": True, "distribute": "one"}],
            [{"to": NAMED}],
            [{"to": NOBODY, "forceQueuing": True}],
            [{"to": NAMED}, {"to": TEAM, "forceQueuing": True}, {"to": NOBODY, "forceQueuing": True}],
        )
    )
    channel = rng.choice((BOX, PLAIN))
    return channel, qos | {"destination": to} | ({"subscribable": False} if channel == PLAIN else {})


def kill_after_a_step(server: Server, rng: random.Random) -> str:
    """Kill the server as soon as its store has done a step of some kind; which."""
    wanted = rng.choice(STEPS)
    prefix = next(text.partition("=")[2] for text in server.store_sets if text.startswith("storage.prefix="))
    deadline = monotonic() + rng.uniform(1, 3)  # some steps are rare
    with store_of(server) as store:
        place = "$"
        while monotonic() < deadline:
            found: Any = store.xread({f"{prefix}{{crewel}}:facts": place}, count=100, block=200)
            for _, entries in found:
                place = entries[-1][0]
                if any(fields["t"] == wanted for _, fields in entries):
                    server.kill()
                    return wanted
    server.kill()
    return "any"


class Village:
    """Everybody who takes part, and what must be there after each kill."""

    def __init__(self, server: Server, rng: random.Random) -> None:
        self.server = server
        self.receivers = [RandomReceiver(server, habits, random.Random(rng.random())) for habits in KINDS]
        self.readers = [RandomReader(server, LONG, random.Random(rng.random())) for _ in range(2)]
        self.publishers = [
            RandomPublisher(
                server,
                random.Random(rng.random()),
                MESSAGES,
                first=1 + number * MESSAGES,
                choose=choose,
            )
            for number in range(PUBLISHERS)
        ]
        self.holdback: dict[str, Any] | None = None

    @property
    def workers(self) -> list[Any]:
        """All of them."""
        return [*self.receivers, *self.readers, *self.publishers]

    def troubles(self) -> list[BaseException]:
        """What went wrong for any of them."""
        return [each.trouble for each in self.workers if each.trouble is not None]

    def configure(self) -> None:
        """Say which topics keep their messages, before anybody publishes to them."""
        person = Person(self.server).be()
        for channel, most in KEPT.items():
            asked = {"administrative": True, "history": {"maxEntries": most}, "destroyDelay": -1}
            person.publish(channel, ext={"publish": asked})
        person.disconnect()

    async def open(self) -> None:
        """Wait until everybody is there."""
        ready = [
            *(each.subscribed for each in self.receivers if each.habits.patterns),
            *(each.begun for each in self.readers),
        ]
        await wait_for(lambda: all(each.is_set() for each in ready) or self.troubles(), 20)
        assert not self.troubles()

    async def is_held(self) -> None:
        """Wait until the one who takes nothing is held back, and remember how."""
        await wait_for(lambda: self._holdback() or self.troubles(), 20)
        self.holdback = self._holdback()

    def _holdback(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = Desk(self.server).get("/sessions/held/1")["holdback"]
        return found

    def look(self) -> Audit:
        """What the store says, and whether the server that runs says the same."""
        audit = Audit(self.server)
        audit.check()
        desk = Desk(self.server)
        topics = {each["channel"]: each for each in desk.get("/topics?count=1000")["topics"]}
        for channel in audit.histories.keys() & KEPT.keys():
            assert topics[channel]["state"] == "ALIVE"
            assert topics[channel]["history"]["maxEntries"] == KEPT[channel]
        if self.holdback is not None:
            assert self._holdback() == self.holdback
        return audit

    # The end

    async def settle(self) -> Audit:
        """Let everybody take what comes, until nothing waits any more."""
        for receiver in self.receivers:
            receiver.weights = {OK: 1}
        with suppress(AssertionError):
            Desk(self.server).post("/sessions/held/1/activate")
        drained = await asyncio.to_thread(self._drain)
        audit = Audit(self.server)

        def is_done() -> bool:
            nonlocal audit
            audit = Audit(self.server)
            audit.check()
            return audit.is_read and not audit.queues and not any(audit.waiting.values())

        await wait_for(is_done, 40, lambda: f"{audit.queues.keys()} {audit.waiting} {self.troubles()}")
        self.drained = drained
        return audit

    def _drain(self) -> list[Message]:
        """All that waits for the one who never came. Who comes takes it."""
        person = Keeper(self.server).be("nobody/1", settle="batch", queue={"maxEntries": 10_000})
        messages: list[Message] = []

        def is_empty() -> bool:
            messages.extend(person.take_all())
            audit = Audit(self.server)
            return NOBODY not in audit.queues and not audit.waiting[f"{NOBODY}/1"]

        until(is_empty, 20)
        return messages


class Witness:
    """What the clients know, against what the store says."""

    def __init__(self, audit: Audit, village: Village) -> None:
        self._audit = audit
        self._village = village
        self._published = {
            log_id: each for publisher in village.publishers for log_id, each in publisher.answered.items()
        }
        self._settled = Counter(
            log_id for account in audit.accounts for log_id, (reason, _) in account.ends.items() if reason == "settled"
        )
        self._letters = Counter(int(letter["id"]) for letter in audit.letters.values())

    def check(self) -> None:
        """Raises AssertionError with what does not fit."""
        for log_id, each in self._published.items():
            self._check_answered(int(log_id), each)
        self._check_histories()
        self._check_readers()
        for receiver in self._village.receivers:
            for heard in receiver.memory.heard:
                published = self._published.get(heard.id)
                assert published is None or (published.channel, published.data) == (heard.channel, heard.data)
        drained = [message["ext"]["update"]["id"] for message in self._village.drained]
        wanted = {log_id for log_id, each in self._published.items() if NOBODY in _addresses(each)}
        assert wanted <= set(drained), f"{wanted - set(drained)} were never delivered to who came last"
        assert len(set(drained)) == len(drained)

    def _check_answered(self, log_id: int, each: Published) -> None:
        audit, addresses = self._audit, _addresses(each)
        if not addresses:
            assert audit.published[log_id] == each.channel
        else:
            assert audit.addressed[log_id] == each.channel
        if NAMED in addresses:
            assert any(log_id in account.ends for account in audit.of(NAMED)), f"{log_id} never ended for {NAMED}"
        if TEAM in addresses or each.channel == JOBS:
            wanted = "settled or a letter"
            assert self._settled[log_id] + self._letters[log_id] > 0, f"{log_id} is neither {wanted}: {each}"
        if each.channel == JOBS:
            ends = self._ends_of_group(log_id)
            assert len(ends) == 1, f"{log_id} of the group ended as {ends}"

    def _ends_of_group(self, log_id: int) -> list[tuple[str, str]]:
        return [
            (account.session, account.ends[log_id][0])
            for account in self._audit.accounts
            if account.session.startswith("client/pair/") and account.ends.get(log_id, ("returned",))[0] != "returned"
        ]

    def _check_histories(self) -> None:
        audit = self._audit
        for channel, most in KEPT.items():
            ids = [log_id for log_id, name in audit.published.items() if name == channel]
            assert list(audit.histories[channel]) == ids[-most:], f"the history of {channel} is not its newest {most}"

    def _check_readers(self) -> None:
        ids = [log_id for log_id, channel in self._audit.published.items() if channel == LONG]
        for reader in self._village.readers:
            wanted = [log_id for log_id in ids if log_id > reader.start_id]
            assert reader.ids == wanted[: len(reader.ids)], (
                "a reader got something else than what was published, in its order"
            )
            assert len(reader.ids) == len(wanted), f"a reader misses {len(wanted) - len(reader.ids)}"


def _addresses(published: Published) -> list[str]:
    return [each["to"] for each in published.qos.get("destination", ())]


@pytest.mark.parametrize("seed", SEEDS)
async def test_everything_is_back_after_a_kill(
    seed: int, start_server: StartServer, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(6000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, *sets_of(seed, tmp_path))
    village = Village(server, rng)
    await asyncio.to_thread(village.configure)
    steps = []
    async with everybody([*village.receivers, *village.readers]):
        await village.open()
        async with everybody(village.publishers):
            await village.is_held()
            for _ in range(KILLS):
                await asyncio.sleep(rng.uniform(0.3, 1.5))
                steps.append(await asyncio.to_thread(kill_after_a_step, server, rng))
                if seed % 2 == 0:  # the store is still there
                    Audit(server).check()
                server = await asyncio.to_thread(start_server, *SETS, *server.store_sets, port=server.port)
                village.server = server
                await asyncio.to_thread(village.look)
                assert not village.troubles()
            await asyncio.sleep(1)
        audit = await village.settle()
        ids = [log_id for log_id, channel in audit.published.items() if channel == LONG]
        await wait_for(lambda: all(reader.ids[-1:] == ids[-1:] for reader in village.readers) or village.troubles(), 20)
    assert not village.troubles()
    Witness(audit, village).check()
    published = sum(len(each.answered) for each in village.publishers)
    tell(
        f"seed {seed}: killed after {', '.join(steps)}, store {'its own' if seed % 2 else 'separate'}; {published} published,"
        f" owed {audit.owed}, ends {dict(sorted(audit.ends.items()))}, letters {len(audit.letters)};"
        f" {len(village.drained)} waited for who came last; readers came back"
        f" {sum(each.visits for each in village.readers)} times"
    )
