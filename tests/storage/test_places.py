"""A message that is pending is in exactly one place: waiting for its receiver, or among the dead letters, whatever happens."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import Any

import pytest

from crewel.delivery.records import Disposition, EndReason, LogId, PendingDeadLetter, Submission
from crewel.errors import StoreError
from crewel.storage import dead_letter_store, log
from crewel.storage.dead_letter_store import RedriveOutcome
from crewel.storage.script_step import Step
from crewel.storage.store import Store
from tests.storage.conftest import OpenStore, StartStore
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter
from tests.storage.owner import ANN, FACTS_MAX, JOE, Owner, change, started
from tests.storage.reading import last_id

IS_FULL = os.environ.get("FAULTS") == "full"

NAMES = (JOE, ANN)


class Play:
    """Random steps of servers, one after the other adopting the sessions, and what must be there after each."""

    def __init__(self, store: Store, owner: Owner, draw: random.Random) -> None:
        self.store = store
        self.owner = owner
        self.draw = draw
        self.pending: set[bytes] = set()
        """Bodies of what has neither been settled nor thrown away."""
        self.tokens = 1
        self.published = 0

    async def waiting(self, name: str) -> dict[LogId, bytes]:
        """What is open for a session, with its body."""
        fields = await self.owner.record(name)
        open_ids = [LogId(int(field[2:])) for field in fields if field.startswith("o:")]
        boxed_ids = [LogId(int(field[2:])) for field in fields if field.startswith("i:")]
        found = await log.fetch(self.store, open_ids) | await log.fetch_inbox(self.store, name, boxed_ids)
        assert set(found) == {*open_ids, *boxed_ids}, "a body is missing"
        inbox: Any = await self.store.reader.hkeys(self.store.keys.inbox(name))
        assert {int(each) for each in inbox} == set(boxed_ids)
        return {log_id: found[log_id].body for log_id in found}

    async def check(self) -> None:
        places = Counter(each.body for each in await all_letters(self.owner))
        for name in NAMES:
            places.update((await self.waiting(name)).values())
        assert places == Counter(self.pending)
        await assert_indexes_agree(self.owner)

    async def some(self, name: str) -> dict[LogId, bytes]:
        waiting = await self.waiting(name)
        return dict(self.draw.sample(sorted(waiting.items()), self.draw.randrange(len(waiting) + 1)))

    # The steps

    async def publish(self, name: str) -> None:
        bodies = [b'{"data":%d}' % number for number in range(self.published, self.published + 3)]
        self.published += 3
        ids = (await self.owner.append([Submission("/a", body) for body in bodies])).ids
        await self.owner.commit(ids[-1], change(name, opened=ids), low=0)
        self.pending.update(bodies)

    async def settle(self, name: str) -> None:
        done = await self.some(name)
        await self.owner.commit(await last_id(self.store), self.gone(name, done), low=0)
        self.pending.difference_update(done.values())

    async def die(self, name: str) -> None:
        dead = await self.some(name)
        made = [PendingDeadLetter(name, log_id, "user.x", "why") for log_id in dead]
        await self.owner.commit(await last_id(self.store), self.gone(name, dead), low=0, letters=made)

    def gone(self, name: str, messages: dict[LogId, bytes]) -> Any:
        # the server does not know which of them a spill has just moved
        return change(name, settled=sorted(messages), removed=sorted(messages))

    async def spill(self, name: str) -> None:
        await self.owner.spill(*await self.some(name), name=name)

    async def redrive(self, name: str) -> None:
        found = [each for each in await all_letters(self.owner) if each.receiver == name]
        for each in self.draw.sample(found, len(found) // 2):
            keys, token = self.store.keys, self.owner.token
            steps = [dead_letter_store.redrive(keys, token, each, FACTS_MAX) for _ in range(2)]
            first, repeated, other = [await self.owner.do(step) for step in (steps[0], steps[0], steps[1])]
            assert first == repeated
            assert first.outcome is RedriveOutcome.MOVED
            assert other.outcome is RedriveOutcome.GONE

    async def discard(self, name: str) -> None:
        found = [each for each in await all_letters(self.owner) if each.receiver == name]
        chosen = self.draw.sample(found, len(found) // 4)
        ids = [each.dead_id for each in chosen]
        assert await self.owner.do(dead_letter_store.discard(self.store.keys, self.owner.token, ids, FACTS_MAX)) == len(
            ids
        )
        self.pending.difference_update(each.body for each in chosen)

    async def end(self, name: str) -> None:
        """The server knows all that it has opened, and not always of what was sent again."""
        spilled = {int(field[2:]) for field in await self.owner.record(name) if field.startswith("i:")}
        known = [each for each in await self.waiting(name) if each not in spilled or self.draw.random() < 0.5]
        await self.owner.close(name)
        ended = [Disposition(name, EndReason.DEAD, tuple(known))] if known else []
        made = [PendingDeadLetter(name, log_id, "user.x", "why") for log_id in known]
        found = (await self.owner.end(ended, made, name)).letters
        assert (await self.owner.end(ended, made, name)).letters == []
        assert len(found) >= len(known)
        await self.owner.login(name)

    async def take_over(self, name: str) -> None:
        self.tokens += 1
        self.owner = await started(self.store, f"t{self.tokens}")
        assert set(await self.owner.adopt_all()) == set(NAMES)


@pytest.mark.parametrize("seed", range(6 if IS_FULL else 2))
async def test_a_message_is_in_exactly_one_place(store: Store, seed: int) -> None:
    draw = random.Random(seed)
    play = Play(store, await started(store), draw)
    for name in NAMES:
        await play.owner.login(name)
    steps = [play.publish, play.publish, play.settle, play.die, play.die, play.spill, play.redrive, play.redrive]
    rare = [play.discard, play.end, play.take_over]
    for _ in range(80):
        await draw.choice([*steps, *steps, *rare])(draw.choice(NAMES))
        await play.check()
    assert await store.reader.get(store.keys.dropped) is None


@pytest.mark.parametrize("killed_after", [1, 40, 150] if IS_FULL else [40])
async def test_a_store_that_is_killed_leaves_each_letter_in_one_place(
    open_store: OpenStore, start_store: StartStore, killed_after: int
) -> None:
    process = start_store(appendfsync="always")
    store = await open_store(f"storage.url={process.url}")
    owner = await started(store)
    await owner.login(JOE)
    await owner.dead_letter(*(letter(message_id=str(number), body=b"%d" % number) for number in range(300)))
    steps = [dead_letter_store.redrive(store.keys, owner.token, each, FACTS_MAX) for each in await all_letters(owner)]
    answered = 0

    async def ask(step: Step[dead_letter_store.Redriven]) -> dead_letter_store.Redriven | StoreError:
        nonlocal answered
        (answer,) = await store.run([step])
        answered += isinstance(answer, dead_letter_store.Redriven)
        if answered == killed_after:
            process.kill()
        return answer

    async with asyncio.timeout(30):
        first: list[dead_letter_store.Redriven | StoreError] = []
        for start in range(0, len(steps), 10):
            first += await asyncio.gather(*map(ask, steps[start : start + 10]))
        process.start()
        while not store.is_up:
            await asyncio.sleep(0.01)
        again = await store.run(steps)
    moved = [answer for answer in first if isinstance(answer, dead_letter_store.Redriven)]
    assert killed_after <= len(moved) < len(steps)
    assert again[: len(moved)] == moved
    assert {answer.outcome for answer in again} == {RedriveOutcome.MOVED}
    spilled: Any = await store.reader.hkeys(store.keys.inbox(JOE))
    assert sorted(int(each) for each in spilled) == sorted(answer.id for answer in again)
    bodies = await log.fetch_inbox(store, JOE, [answer.id for answer in again])
    assert sorted(int(each.body) for each in bodies.values()) == list(range(300))
    assert await all_letters(owner) == []
    await assert_indexes_agree(owner)
