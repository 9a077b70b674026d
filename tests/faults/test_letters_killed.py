"""The server or its store is killed while dead letters are made, and while they are sent again: every letter is in exactly one
place, nothing is lost or doubled, and asking again finishes what was left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import pytest

from tests.admin.desk import TOKEN, Desk
from tests.conftest import StartServer
from tests.faults.audit import Audit
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.health import Health, store_pid
from tests.faults.history import History
from tests.faults.load import wait_for
from tests.faults.random_publisher import RandomPublisher
from tests.faults.random_receivers import LETTER_CODES, OK, Habits, RandomReceiver
from tests.faults.test_ledger import everybody
from tests.faults.test_server_killed import store_of
from tests.patience import patience
from tests.server_process import Server

SEEDS = range(1, 51) if IS_FULL else range(1, 3)  # one of each kind of store
STORE_SEEDS = range(1, 51) if IS_FULL else range(1, 2)
MESSAGES = 150 if IS_FULL else 60
READY_S = 5.0
SETS = (f"admin.token={TOKEN}", "bayeux.timeout_ms=1000", "delivery.commit_ms=100", "bayeux.max_interval_ms=60000")
REJECTS = dict.fromkeys(LETTER_CODES, 1.0)
ONE_BY_ONE = {"update": True, "settle": "message"}
KINDS = (
    Habits(("/x/**",), "joe/1", ONE_BY_ONE, REJECTS),
    Habits(("/x/**",), "ann/1", {"update": True, "settle": "batch"}, REJECTS, cuts=0.05),
    Habits(("/x/**", "/x/a"), None, ONE_BY_ONE, REJECTS, socket=True),
)
COUNT = len(KINDS) * MESSAGES


class Office:
    """The receivers, who want nothing at first, and the publisher of what they do not want."""

    def __init__(self, server: Server, rng: random.Random) -> None:
        self.history = History()
        self.receivers = [RandomReceiver(server, habits, random.Random(rng.random()), self.history) for habits in KINDS]
        self.publisher = RandomPublisher(server, random.Random(rng.random()), MESSAGES, history=self.history)

    async def open(self) -> None:
        """Wait until everybody is subscribed."""
        await wait_for(lambda: all(each.subscribed.is_set() or each.trouble for each in self.receivers), 20)

    def change_their_minds(self) -> None:
        """From now on they take what comes, which is sent again."""
        self._changed = monotonic()
        for receiver in self.receivers:
            receiver.weights = {OK: 1}

    def check(self) -> None:
        """Nobody had to begin anew, and nothing went wrong."""
        workers: list[Any] = [*self.receivers, self.publisher]
        assert not [each.trouble for each in workers if each.trouble is not None]
        assert [each.memory.losses for each in self.receivers] == [0] * len(KINDS)
        assert [len(each.memory.sessions) for each in self.receivers] == [1] * len(KINDS)

    def count_letters(self, audit: Audit) -> None:
        """All dead letters that there are."""
        now = monotonic()
        for letter in audit.letters.values():
            self.history.add("letter", now, now, receiver=letter["receiver"], id=letter["id"])

    def judge(self, audit: Audit, directory: Path) -> str:
        """What the checker says of the history, at its end."""
        for fact in audit.redriven:
            fields = {"receiver": fact["session"], "id": fact["message"], "new": str(fact["id"])}
            self.history.add("redrive", self._changed, monotonic(), **fields)
        return self.history.judge(directory / "history.jsonl")

    def numbers(self) -> dict[str, int]:
        """The number of each message, by its id."""
        return {log_id: published.data["n"] for log_id, published in self.publisher.answered.items()}


def letters(audit: Audit) -> list[tuple[str, int]]:
    """Receiver and number of each letter."""
    return sorted((each["receiver"], orjson.loads(each["body"])["data"]["n"]) for each in audit.letters.values())


async def all_letters(server: Server, office: Office, limit_s: float = 20) -> None:
    """Wait until everything is a letter, once for each receiver."""
    names = {name for receiver in office.receivers for name in receiver.memory.sessions}
    wanted = sorted((name, number) for name in names for number in range(1, MESSAGES + 1))
    found: list[tuple[str, int]] = []

    def are_there() -> bool:
        audit = Audit(server)
        audit.check()
        found[:] = letters(audit)
        return found == wanted

    await wait_for(are_there, limit_s, lambda: f"{len(found)} letters, wanted {len(wanted)}")
    office.count_letters(Audit(server))


async def redrive(server: Server, rate: int | None) -> dict[str, Any]:
    """Ask for all letters; an answer that did not come is an empty one."""
    body: dict[str, Any] = {"all": True} | ({} if rate is None else {"rate": rate})
    with suppress(OSError, EOFError):
        response = await asyncio.to_thread(Desk(server).ask, "POST", "/dead-letters/redrive", body)
        assert response.status in (200, 503), response
        return response.json() if response.status == 200 else {}
    return {}


async def finish(server: Server, office: Office) -> Audit:
    """Send again what is left, until each message has come to its receiver, under one id more."""
    audit = Audit(server)

    async def is_done() -> bool:
        nonlocal audit
        await redrive(server, None)
        audit = await asyncio.to_thread(Audit, server)
        audit.check()
        return not audit.letters and not any(audit.waiting.values())

    deadline = monotonic() + 20 * patience()
    while not await is_done():
        assert monotonic() < deadline, f"{letters(audit)}, {audit.waiting}"
        await asyncio.sleep(0.1)
    return audit


def check_once(audit: Audit, office: Office) -> None:
    """Each message died once for each receiver, was sent again once, and was then settled; and that is what the clients got."""
    origins, numbers = audit.origins(), office.numbers()
    assert audit.ends == {"dead": COUNT, "settled": COUNT}
    for receiver in office.receivers:
        (name,) = receiver.memory.sessions
        (account,) = audit.of(name)
        settled = [log_id for log_id, (reason, _) in account.ends.items() if reason == "settled"]
        assert sorted(numbers[origins[str(log_id)]] for log_id in settled) == list(range(1, MESSAGES + 1))
        heard = {each.id for each in receiver.memory.heard}
        assert heard == {str(log_id) for log_id in account.ends}
        for each in receiver.memory.heard:
            assert numbers[origins.get(each.id, each.id)] == each.data["n"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_letter_is_in_one_place_after_a_kill_of_the_server(
    seed: int, start_server: StartServer, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(3000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, *store_of(seed, tmp_path))
    office = Office(server, rng)

    async def kill() -> Audit:
        nonlocal server
        with office.history.fault():
            server.kill()
            if seed % 2 == 0:  # the store is still there
                Audit(server).check()
            server = await asyncio.to_thread(start_server, *SETS, *server.store_sets, port=server.port)
        audit = await asyncio.to_thread(Audit, server)
        audit.check()
        return audit

    async with everybody(office.receivers):
        await office.open()
        async with everybody([office.publisher]):
            await asyncio.sleep(rng.uniform(0, MESSAGES / 60))
            made = len((await kill()).letters)
            await wait_for(lambda: office.publisher.is_done, 20)
            await all_letters(server, office)
        office.change_their_minds()
        rate = rng.choice((COUNT // 2, COUNT, None))
        sending = asyncio.create_task(redrive(server, rate))
        await asyncio.sleep(rng.uniform(0, 0.1 if rate is None else COUNT / rate))
        after = await kill()
        await sending
        audit = await finish(server, office)
    office.check()
    check_once(audit, office)
    verdict = await asyncio.to_thread(office.judge, audit, tmp_path)
    tell(
        f"seed {seed}: the server, whose store is {'its own' if seed % 2 else 'separate'}, killed when {made} letters of"
        f" {COUNT} were made, and when {len(after.redriven)} were sent again; {len(audit.redriven)} in the end,"
        f" {sum(len(each.memory.heard) for each in office.receivers) - 2 * COUNT} copies came twice{verdict}"
    )


@pytest.mark.parametrize("seed", STORE_SEEDS)
async def test_no_letter_is_lost_by_a_kill_of_the_store(
    seed: int, start_server: StartServer, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(4000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, *store_of(1, tmp_path))
    office = Office(server, rng)
    slowest = 0.0
    async with Health(server) as health, everybody(office.receivers):

        async def kill() -> None:
            nonlocal slowest
            killed = monotonic()
            with office.history.fault():
                os.kill(store_pid(server), signal.SIGKILL)
                await health.becomes(503, killed, READY_S)
                await health.is_well(READY_S)
            slowest = max(slowest, monotonic() - killed)
            (await asyncio.to_thread(Audit, server)).check()

        await office.open()
        async with everybody([office.publisher]):
            await asyncio.sleep(rng.uniform(0, MESSAGES / 60))
            await kill()
            await wait_for(lambda: office.publisher.is_done, 20)
            await all_letters(server, office)
        office.change_their_minds()
        sending = asyncio.create_task(redrive(server, COUNT))
        await asyncio.sleep(rng.uniform(0, 1))
        await kill()
        await sending
        audit = await finish(server, office)
    office.check()
    check_once(audit, office)
    verdict = await asyncio.to_thread(office.judge, audit, tmp_path)
    assert slowest < READY_S * patience()
    tell(
        f"seed {seed}: the store killed while {COUNT} letters were made and while they were sent again; ready after"
        f" {slowest:.1f} s at most; all {len(audit.redriven)} came once more and were settled{verdict}"
    )
