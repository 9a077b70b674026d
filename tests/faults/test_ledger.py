"""Random receivers, publishers and operators on the real server: what was owed is what became of it, exactly and at any
moment, and nothing reaches a session to which it is not owed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.admin.desk import TOKEN
from tests.conftest import StartServer
from tests.faults.audit import Account, Audit, patterns_of
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.load import wait_for
from tests.faults.random_operator import RandomOperator
from tests.faults.random_publisher import Published, RandomPublisher
from tests.faults.random_receivers import (
    COMMUNICATION,
    FATAL,
    HOLDBACK,
    LATER,
    LETTER_CODES,
    OK,
    SILENT,
    WORKING,
    Habits,
    RandomReceiver,
)
from tests.functional.receivers import ByNode, ByPython
from tests.functional.wire import figures
from tests.server_process import Server

SEEDS = range(1, 51) if IS_FULL else range(2, 4)  # one of each `on_user_error`
PUBLISHERS = 2
MESSAGES = 400 if IS_FULL else 150
SETS = (
    f"admin.token={TOKEN}",
    "bayeux.timeout_ms=1000",
    "bayeux.max_interval_ms=1500",
    "bayeux.sweep_ms=50",
    "delivery.commit_ms=50",
    "delivery.queue_max_entries=100000",  # a full queue is asked for, and does not come from a machine that is busy
)
BY_OPERATORS = "resource.maintenance.drained", "resource.maintenance.skipped"
NO_STATUS = "communication.responseTimeout"
DEAD_SESSION = "communication.noConnection.dead"
OVERFLOW = {"resource.overflow.queue.entries", "resource.overflow.queue.bytes"}

SOME = {OK: 10, WORKING: 1, LATER: 2, SILENT: 0.3, HOLDBACK: 0.2} | dict.fromkeys(LETTER_CODES, 1)
ONE_BY_ONE = {"update": True, "settle": "message"}
BY_BATCH = {"update": True, "settle": "batch"}
FOR_EVER = {"retries": -1, "delay": 50}


def queue(policy: str, entries: int = 8) -> dict[str, Any]:
    return {"queue": {"maxEntries": entries, "onOverflow": policy}}


KINDS = (
    Habits(("/x/**",), "all/1", ONE_BY_ONE | {"dispatcher": FOR_EVER}, SOME | {COMMUNICATION: 1}, cuts=0.05),
    Habits(("/x/*", "/x/a"), "batch/1", BY_BATCH, SOME, cuts=0.05, slow=0.1, changes=0.05),
    Habits(("/x/a", "/x/b"), "hasty/1", ONE_BY_ONE | {"ackWait": 300}, SOME | {SILENT: 3}, socket=True, cuts=0.02),
    Habits(("/x/*",), None, ONE_BY_ONE, SOME, leaves=0.02, cuts=0.05),
    Habits(("/x/d/*", "/x/c"), None, {}, slow=0.1, leaves=0.03, cuts=0.05),
    Habits(("/x/**",), None, BY_BATCH, SOME, socket=True, changes=0.05),
    Habits(("/x/**",), "full/1", ONE_BY_ONE | queue("deadMessage"), SOME | {LATER: 9}, slow=0.3),
    Habits(("/x/**",), "full/2", ONE_BY_ONE | queue("dropOldest"), SOME | {LATER: 9}, slow=0.3),
    Habits(("/x/**",), "full/3", BY_BATCH | queue("disconnect", 25), SOME, slow=0.4),
    Habits(("/x/a", "/x/**"), "weak/1", ONE_BY_ONE | {"dispatcher": {"retries": 1, "delay": 30}},
           {OK: 20, COMMUNICATION: 4, FATAL: 0.2}),
    Habits(("/x/c", "/x/a"), "brief/1", BY_BATCH | {"timeout": 700}, SOME, leaves=0.05),
    Habits(("/x/b", "/x/d/**"), "brief/2", {"dispatcher": {"retries": 3, "delay": 100}}, leaves=0.05, socket=True),
    Habits(("/x/b",), "silent/1", ONE_BY_ONE, {SILENT: 1}, slow=0.5),
)  # fmt: skip
"""One of each: what it hears, who it is, what it asked for, and how it behaves."""


def failing(rng: random.Random) -> dict[str, Any]:
    """What the stock clients are to do with some messages."""
    if rng.random() < 0.8:
        return {}
    return {"code": rng.choice((*LETTER_CODES, COMMUNICATION)), "why": "no", "times": 1}


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_owed_is_what_became_of_it(seed: int, start_server: StartServer, tell: Tell) -> None:
    on_user_error = "dead" if seed % 3 == 0 else "continue"
    server = await asyncio.to_thread(start_server, *SETS, f"delivery.on_user_error={on_user_error}")
    rng = random.Random(seed)
    receivers = [RandomReceiver(server, habits, random.Random(rng.random())) for habits in KINDS]
    publishers = [
        RandomPublisher(
            server, random.Random(rng.random()), MESSAGES, first=1 + number * MESSAGES, transient=0.2, more=failing
        )
        for number in range(PUBLISHERS)
    ]
    operator = RandomOperator(server, random.Random(rng.random()))
    audits = 0
    async with stock_clients(server) as stock, everybody(receivers):
        await wait_for(lambda: all(each.subscribed.is_set() or each.trouble for each in receivers), 20)
        async with everybody([*publishers, operator]):
            while not all(each.is_done for each in publishers):
                (await asyncio.to_thread(Audit, server)).check(operator.discarded)
                audits += 1
                await asyncio.sleep(0.2)
    troubles = [each.trouble for each in (*receivers, *publishers, operator) if each.trouble is not None]
    assert not troubles, troubles
    audit = await settled(server, operator)
    published = {log_id: each for publisher in publishers for log_id, each in publisher.answered.items()}
    assert len(published) == PUBLISHERS * MESSAGES
    Witness(audit, published, operator, is_sink=on_user_error == "dead").check(receivers, stock)
    tell(
        f"seed {seed}, on_user_error {on_user_error}: {len(published)} published to {len(receivers) + len(stock)} receivers"
        f" in {len(audit.accounts)} sessions, {audits} audits; owed {audit.owed}, of that sent again"
        f" {sum('session' in each for each in audit.redriven)}; ends {dict(sorted(audit.ends.items()))},"
        f" waiting {sum(map(len, audit.waiting.values()))}, letters {len(audit.letters)};"
        f" the operator: {dict(sorted(operator.done.items()))}"
    )


@asynccontextmanager
async def everybody(workers: Any) -> AsyncIterator[None]:
    """Let them work as long as this lasts."""
    for each in workers:
        each.start()
    try:
        yield
    finally:
        await asyncio.gather(*(asyncio.to_thread(each.stop) for each in workers))


@asynccontextmanager
async def stock_clients(server: Server) -> AsyncIterator[dict[str, ByNode | ByPython]]:
    """The official client with update.js, and ours, which do what the messages say."""
    clients: dict[str, ByNode | ByPython] = {"client/node/1": ByNode(), "client/python/1": ByPython()}
    async with AsyncExitStack() as stack:
        for (name, client), transport in zip(clients.items(), ("websocket", "long-polling"), strict=True):
            await client.start(server.url, transport, name, "/x/**", {"dispatcher": FOR_EVER})
            stack.push_async_callback(client.leave)
        yield clients


async def settled(server: Server, operator: RandomOperator) -> Audit:
    """The ledger when the server has told the store everything, and says of itself what the store says."""
    audit = Audit(server)

    def agrees() -> bool:
        nonlocal audit
        audit = Audit(server)
        audit.check(operator.discarded)
        told = figures(server)
        stored = audit.ends + audit.ends_in_queues
        ends = {reason: told.get(f'crewel_ended_total{{reason="{reason}"}}', 0) for reason in stored}
        for reason in ("lapsed", "expired", "erased"):  # so do copies of a history, which the server alone counts
            ends[reason] = min(ends.get(reason, 0), stored[reason])
        waiting = sum(map(len, audit.waiting.values()))
        return audit.is_read and told["crewel_waiting"] == waiting and Counter(ends) == stored

    def disagreement() -> str:
        waiting = {name: len(ids) for name, ids in audit.waiting.items() if ids}
        return f"{audit.is_read}, {audit.ends}, {audit.ends_in_queues}, {waiting}, {figures(server)}"

    await wait_for(agrees, 10, disagreement)
    return audit


class Witness:
    """What the clients know, against what the store says."""

    def __init__(
        self, audit: Audit, published: Mapping[str, Published], operator: RandomOperator, *, is_sink: bool
    ) -> None:
        self._audit = audit
        self._published = published
        self._operator = operator
        self._is_sink = is_sink
        self._origins = audit.origins()
        self._owed = {
            name: set[int]().union(*(account.owed(audit.published) for account in audit.of(name)))
            for name in {account.session for account in audit.accounts}
        }

    def check(self, receivers: list[RandomReceiver], stock: Mapping[str, ByNode | ByPython]) -> None:
        """Raises AssertionError with what does not fit."""
        for log_id, each in self._published.items():
            if each.is_persistent:
                assert self._audit.published[int(log_id)] == each.channel
        for letter in self._audit.letters.values():
            self._check_content(letter["id"], letter["channel"], orjson.loads(letter["body"])["data"])
        assert sum(not receiver.memory.heard for receiver in receivers) < 4  # some may be held back all the time
        for receiver in receivers:
            self._check_heard(receiver)
            for name in receiver.memory.sessions:
                for account in self._audit.of(name):
                    self._check_ends(account, receiver)
            self._check_letters(receiver)
        for name, client in stock.items():
            for heard in client.notes.heard:
                self._check_owed(name, heard.id)
                assert self._published[self._origins.get(heard.id, heard.id)].data["n"] == heard.n

    def _check_heard(self, receiver: RandomReceiver) -> None:
        assert not receiver.memory.again, (
            f"{receiver.habits.name} got again what it had settled: {receiver.memory.again}"
        )
        for heard in receiver.memory.heard:
            assert any(pattern in patterns_of(heard.channel) for pattern in receiver.habits.patterns), heard
            if heard.id:  # a session that did not ask for updates is not told the id of what is not stored
                self._check_owed(heard.session, heard.id)
                self._check_content(heard.id, heard.channel, heard.data)

    def _check_owed(self, session: str, log_id: str) -> None:
        if log_id.isdecimal():
            assert int(log_id) in self._owed[session], f"{session} got {log_id}, which it is not owed"

    def _check_content(self, log_id: str, channel: str, data: Any) -> None:
        published = self._published[self._origins.get(log_id, log_id)]
        assert (published.channel, published.data) == (channel, data), f"{log_id} is not what was published"

    def _check_ends(self, account: Account, receiver: RandomReceiver) -> None:
        for log_id, (reason, code) in account.ends.items():
            said = receiver.memory.said.get((account.session, str(log_id)), set())
            match reason:
                case "settled":
                    is_right = OK in said
                case "dead":
                    is_right = code in said or self._may_die(account, receiver, log_id, code)
                case "lapsed":
                    is_right = account.session.startswith("client/anonymous/")
                case "dropped":
                    drops = receiver.habits.session.get("queue", {}).get("onOverflow") == "dropOldest"
                    is_right = drops or self._operator.done.keys() >= {"clear"} or "remove" in self._operator.done
                case _:
                    is_right = False
            assert is_right, f"{log_id} ended for {account.session} as {reason} {code}, which had said {said}"
        for (name, log_id), what in receiver.memory.confirmed.items():
            if name == account.session and int_of(log_id) in account.ends:
                end = account.ends[int(log_id)]
                wanted = ("settled", "") if what == OK else ("dead", what)
                assert end == wanted, f"{log_id} ended for {name} as {end}, and its {what} was accepted"

    def _may_die(self, account: Account, receiver: RandomReceiver, log_id: int, code: str) -> bool:
        """Whether a message may die of this code that was not said of it."""
        asked, codes = receiver.habits.session, receiver.memory.codes
        if code in OVERFLOW:
            return asked.get("queue", {}).get("onOverflow") == "deadMessage"
        if code == DEAD_SESSION:  # also of an anonymous one, if it is a letter that was just sent again
            return not account.session.startswith("client/anonymous/") or log_id in account.redriven
        if code == NO_STATUS:
            return "ackWait" in asked
        is_final = code in (FATAL, COMMUNICATION) or (self._is_sink and code.startswith("user."))
        return code in BY_OPERATORS or (is_final and code in codes)  # or all that waited goes with one

    def _check_letters(self, receiver: RandomReceiver) -> None:
        """Letters of stored messages the audit knows. Of others there is one for each that was reported, and none else."""
        memory = receiver.memory
        for letter in self._audit.letters.values():
            key = (letter["receiver"], letter["id"])
            if memory.confirmed.get(key, OK) != OK and not self._is_sink:
                assert letter["reason"] == f"no to {letter['id']}", letter
        there = {(letter["receiver"], letter["id"]) for letter in self._audit.letters.values()}
        there |= {(each["session"], each["message"]) for each in self._audit.redriven if "session" in each}
        there |= {(each["receiver"], each["id"]) for each in self._operator.discarded.values()}
        moved = Counter(each["message"] for each in self._audit.redriven)
        for (name, log_id), what in memory.confirmed.items():
            if not log_id.isdecimal() and what == OK:
                assert (name, log_id) not in there, f"{log_id} was settled by {name}, and is a letter"
            elif not log_id.isdecimal():
                assert (name, log_id) in there or moved[log_id], f"{log_id} was rejected by {name}, and is no letter"


def int_of(log_id: str) -> int:
    return int(log_id) if log_id.isdecimal() else 0
