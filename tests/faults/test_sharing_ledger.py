"""Random receivers who ask for all that a subscription can ask for, groups and people who are written to by name, topics that
are erased, messages that expire, and an operator: what was owed is what became of it, exactly and at any moment."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.admin.desk import TOKEN, Desk
from tests.conftest import StartServer
from tests.faults.at_work import AtWork
from tests.faults.audit import Audit, patterns_of
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.load import wait_for
from tests.faults.random_operator import RandomOperator
from tests.faults.random_publisher import RandomPublisher
from tests.faults.random_receivers import HOLDBACK, LATER, LETTER_CODES, OK, SILENT, WORKING, Habits, RandomReceiver
from tests.faults.test_ledger import everybody, settled
from tests.functional.wire import Address

SEEDS = range(1, 26) if IS_FULL else range(1, 2)
PUBLISHERS = 2
MESSAGES = 300 if IS_FULL else 150
SETS = (
    f"admin.token={TOKEN}",
    "bayeux.timeout_ms=1000",
    "bayeux.max_interval_ms=1500",
    "bayeux.sweep_ms=50",
    "delivery.commit_ms=50",
)
SOME = {OK: 12, WORKING: 1, LATER: 2, SILENT: 0.2, HOLDBACK: 0.1} | dict.fromkeys(LETTER_CODES, 0.7)
ONE_BY_ONE = {"update": True, "settle": "message"}
BY_BATCH = {"update": True, "settle": "batch"}


def workers(pattern: str, group: str = "workers") -> dict[str, Any]:
    """Wants to be a member."""
    return {"asks": {pattern: {"group": group}}}


KINDS = (
    Habits(("/x/**",), "wise/1", ONE_BY_ONE, SOME, cuts=0.05, asks={"/x/**": {"filter": "data.n > `50`"}}),
    Habits(("/x/a", "/x/*"), "quick/1", BY_BATCH, SOME, slow=0.3, asks={"/x/*": {"newestOnly": True}}),
    Habits(("/x/b",), "light/1", ONE_BY_ONE, SOME, socket=True, asks={"/x/b": {"updateOneway": True}}),
    Habits(("/x/a", "/x/b"), None, BY_BATCH, SOME, cuts=0.05, asks={"/x/a": {"filter": "data.n < `100`"}}),
    Habits(("/x/b",), "late/1", ONE_BY_ONE, SOME, leaves=0.03, asks={"/x/b": {"history": {"numEntries": 5}}}),
    Habits(("/x/c",), "team/1", ONE_BY_ONE, SOME, leaves=0.04, cuts=0.03),
    Habits((), "team/2", ONE_BY_ONE, SOME, leaves=0.04, socket=True),
    Habits((), "team/3", BY_BATCH, SOME, slow=0.2),
    Habits((), "closed/1", ONE_BY_ONE | {"ptp": False}, SOME),
    Habits(("/x/d/*",), "pair/1", ONE_BY_ONE, SOME, leaves=0.02, **workers("/x/d/*")),
    Habits(("/x/d/*",), "pair/2", BY_BATCH, SOME, socket=True, changes=0.03, **workers("/x/d/*")),
    Habits(("/x/d/*",), "pair/3", ONE_BY_ONE | {"burst": {"maxEntries": 1}}, SOME, cuts=0.05, **workers("/x/d/*")),
    Habits(("/x/**",), None, ONE_BY_ONE, SOME, leaves=0.02, **workers("/x/**", "others")),
    Habits(("/x/a",), "full/1", ONE_BY_ONE | {"queue": {"maxEntries": 8}}, SOME | {LATER: 9}, slow=0.3),
)  # fmt: skip
"""One of each: what it hears and how, who it is, and how it behaves."""
TEAM, ONE, CLOSED, NOBODY = "client/team", "client/team/1", "client/closed", "client/nobody"


def choose(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Where a message goes, and how."""
    qos: dict[str, Any] = {"priority": rng.choice((0, 5, 5, 5, 9))}
    if rng.random() < 0.15:
        qos |= {"lifeTime": rng.choice((0, 20, 300)), "forceDestroy": rng.random() < 0.7}
    if rng.random() < 0.7:
        channel = rng.choice(("/x/a", "/x/b", "/x/c", "/x/d/e", "/x/d/e"))
        kept = {"history": {"maxEntries": 10}} if channel == "/x/b" else {}
        return channel, qos | kept | ({"forceUpdate": False} if rng.random() < 0.1 else {})
    to = rng.choice(
        (
            [{"to": TEAM, "forceQueuing": True}],
            [{"to": TEAM, "forceQueuing": True, "distribute": "one"}],
            [{"to": CLOSED, "forceQueuing": True}, {"to": NOBODY, "forceQueuing": True}],
            [{"to": TEAM, "forceQueuing": True}, {"to": NOBODY, "forceQueuing": True, "distribute": "one"}],
        )
    )
    return rng.choice(("/service/box", "/x/a")), qos | {"destination": to}


class Eraser(AtWork):
    """Erases topics now and then, and what waits for nobody."""

    def __init__(self, server: Address, rng: random.Random) -> None:
        super().__init__()
        self.done = 0
        self._desk = Desk(server)
        self._rng = rng

    def work(self) -> None:
        while not self.pause(self._rng.uniform(0.5, 1.5)):
            path = self._rng.choice(("/topics/x/b", "/topics/x/d/e", "/history/x/b", "/subjects/nobody/messages"))
            if path.startswith("/topics") and self._rng.random() < 0.5:
                path += "?force=true"
            response = self._desk.ask("DELETE", path)
            assert response.status in (200, 404), (path, response)
            self.done += response.status == 200


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_shared_or_kept_ends_as_it_should(seed: int, start_server: StartServer, tell: Tell) -> None:
    server = await asyncio.to_thread(start_server, *SETS)
    rng = random.Random(7000 + seed)
    receivers = [RandomReceiver(server, habits, random.Random(rng.random())) for habits in KINDS]
    publishers = [
        RandomPublisher(
            server,
            random.Random(rng.random()),
            MESSAGES,
            first=1 + number * MESSAGES,
            choose=choose,
        )
        for number in range(PUBLISHERS)
    ]
    operator, eraser = RandomOperator(server, random.Random(rng.random())), Eraser(server, random.Random(rng.random()))
    audits = 0
    async with everybody(receivers):
        subscribing = [each for each in receivers if each.habits.patterns]
        await wait_for(lambda: all(each.subscribed.is_set() or each.trouble for each in subscribing), 20)
        async with everybody([*publishers, operator, eraser]):
            while not all(each.is_done for each in publishers):
                (await asyncio.to_thread(Audit, server)).check(operator.discarded)
                audits += 1
                await asyncio.sleep(0.2)
    everyone: tuple[Any, ...] = (*receivers, *publishers, operator, eraser)
    assert not (troubles := [each.trouble for each in everyone if each.trouble is not None]), troubles
    audit = await settled(server, operator)
    published = {each.data["n"]: each for publisher in publishers for each in publisher.answered.values()}
    owed = {
        name: set[int]().union(*(account.owed(audit.published) for account in audit.of(name)))
        for name in {account.session for account in audit.accounts}
    }
    for receiver in receivers:
        memory = receiver.memory
        assert not [key for key in memory.again if memory.confirmed[key] == OK], memory.repeats
        for heard in memory.heard:
            if not heard.id.isdecimal() or heard.data is None:  # not stored, or the notice of an erase
                continue
            sent = published[heard.data["n"]]
            assert (sent.channel, sent.data) == (heard.channel, heard.data)
            is_past = int(heard.id) not in owed.get(heard.session, set())
            asks = [pattern in receiver.habits.asks for pattern in patterns_of(heard.channel)]
            assert not is_past or any(asks), (
                f"{heard} is not owed"
            )  # who asks for anything gets the newest of a history
    tell(
        f"seed {seed}: {len(published)} published to {len(receivers)} receivers in {len(audit.accounts)} sessions, {audits}"
        f" audits, {eraser.done} erased; owed {audit.owed}, ends {dict(sorted(audit.ends.items()))}, waiting"
        f" {sum(map(len, audit.waiting.values()))}, in shared queues {sum(map(len, audit.queues.values()))}, letters"
        f" {len(audit.letters)}; the operator: {dict(sorted(operator.done.items()))}"
    )
