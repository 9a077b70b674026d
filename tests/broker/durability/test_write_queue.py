"""The queue of what is written, before a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from crewel.broker.writing.write_queue import MOST_BYTES, MOST_PUBLISHES, WriteQueue
from crewel.delivery.records import Submission
from crewel.errors import StoreError, StoreUnavailable
from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage import log, node_leases
from crewel.storage.log import Appended
from crewel.storage.script_step import Step
from crewel.storage.store import Store
from tests.storage.owner import PROCESS
from tests.store_process import own_prefix, shared_store

pytestmark = pytest.mark.store

LIMIT_S = 30
TOKEN = "token"  # of a server, not a secret


class Queue:
    """A queue, the groups that it asked for, and what it told of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.groups: list[int] = []
        self.told: list[str] = []
        self.hinders: asyncio.Event | None = None
        """Set when the answers to a group may be used; None if at once."""
        self.fails = False
        self.writing: WriteQueue[str] = WriteQueue(store, asyncio.get_running_loop(), self)
        self.writing.open(store, lambda _: None)

    def append_step(self, submissions: list[Submission]) -> Step[Appended]:
        if self.fails:
            raise ValueError("no step")
        self.groups.append(len(submissions))
        return log.append(self.store.keys, TOKEN, submissions, 1000)

    def appended(self, waiting: list[str], answer: Appended | StoreError) -> Awaitable[None] | None:
        if self.hinders is None:
            self._tell(waiting, answer)
            return None
        return self._tell_later(self.hinders, waiting, answer)

    async def _tell_later(self, event: asyncio.Event, waiting: list[str], answer: Appended | StoreError) -> None:
        await event.wait()
        self._tell(waiting, answer)

    def _tell(self, waiting: list[str], answer: Appended | StoreError) -> None:
        words = [type(answer).__name__] if isinstance(answer, StoreError) else []
        self.told += [" ".join([each, *words]) for each in waiting]

    def publish(self, *names: str) -> None:
        for name in names:
            self.writing.publish(Submission("/a", b"{}"), name)

    def submit(self, name: str, *, unordered: bool = False) -> None:
        step = log.trim(self.store.keys, TOKEN)
        self.writing.submit(step, lambda answer: self.told.append(name), unordered=unordered)

    async def until_told(self, count: int) -> list[str]:
        async with asyncio.timeout(LIMIT_S):
            while len(self.told) < count:
                await asyncio.sleep(0.002)
        return self.told


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    storage = Storage(url=shared_store().url, prefix=own_prefix())
    store = Store(Settings(storage=storage))
    await store.open()
    await store.run([node_leases.claim(store.keys, TOKEN, "heron", PROCESS, 0)])
    queue = Queue(store)
    yield queue
    async with asyncio.timeout(LIMIT_S):
        await queue.writing.close()
    await store.close()


async def test_what_is_published_in_one_turn_is_one_group(queue: Queue) -> None:
    queue.publish("one", "two")
    queue.submit("three")
    queue.publish("four")
    assert await queue.until_told(4) == ["one", "two", "three", "four"]
    assert queue.groups == [2, 1]


async def test_a_group_has_a_bound(queue: Queue) -> None:
    queue.publish(*["x"] * (MOST_PUBLISHES + 1))
    await queue.until_told(MOST_PUBLISHES + 1)
    assert queue.groups == [MOST_PUBLISHES, 1]


async def test_others_have_their_turn_between_answers_that_take_long(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crewel.broker.writing.write_queue.TURN_S", 0.0)
    step = log.trim(queue.store.keys, TOKEN)
    for name in ("one", "two", "three"):

        def told(_: object, name: str = name) -> None:
            asyncio.get_running_loop().call_soon(queue.told.append, "others")
            queue.told.append(name)

        queue.writing.submit(step, told)
    assert await queue.until_told(6) == ["one", "others", "two", "others", "three", "others"]


async def test_large_publishes_go_in_several_groups_with_turns_between(queue: Queue) -> None:
    body = b"{%b}" % (b" " * (MOST_BYTES // 2))
    for name in ("one", "two", "three"):
        queue.writing.publish(Submission("/a", body), name)
    queue.publish("four")
    await asyncio.sleep(0)
    assert queue.groups == [1]
    assert await queue.until_told(4) == ["one", "two", "three", "four"]
    assert queue.groups == [1, 1, 2]


async def test_steps_that_take_the_store_long_are_asked_one_after_another(queue: Queue) -> None:
    asked: list[int] = []
    submit = queue.store.submit

    def count(steps: list[Step[Any]], answered: Callable[[list[Any]], None]) -> None:
        asked.append(len(steps))
        submit(steps, answered)

    queue.store.submit = count  # type: ignore[method-assign, assignment]
    for size in (MOST_BYTES, MOST_BYTES // 2, MOST_BYTES // 2, 2 * MOST_BYTES):
        queue.writing.submit(log.trim(queue.store.keys, TOKEN), lambda _: queue.told.append("step"), size=size)
    queue.publish("last")
    assert await queue.until_told(5) == [*["step"] * 4, "last"]
    assert asked == [1, 2, 1, 1]


async def test_what_is_published_while_a_group_is_under_way_is_the_next_one(queue: Queue) -> None:
    queue.publish("one")
    await asyncio.sleep(0)
    queue.publish("two")
    queue.publish("three")
    assert await queue.until_told(3) == ["one", "two", "three"]
    assert queue.groups == [1, 2]


async def test_answers_that_follow_wait_for_one_that_takes_time(queue: Queue) -> None:
    event = queue.hinders = asyncio.Event()
    queue.publish("one")
    queue.submit("two")
    while not queue.groups:
        await asyncio.sleep(0)
    await queue.store.run([log.trim(queue.store.keys, TOKEN)])  # the answers to both have come before this one
    queue.publish("three")
    assert queue.told == []
    queue.hinders = None
    event.set()
    assert await queue.until_told(3) == ["one", "two", "three"]


async def test_a_step_that_cannot_be_sent_is_answered_and_the_queue_goes_on(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = []
    wrong: Step[Any] = Step("trim", (queue.store.keys.log,), (object(),), int)  # type: ignore[arg-type]
    queue.writing.submit(wrong, answers.append)
    queue.publish("one")
    assert await queue.until_told(1) == ["one StoreError"]
    assert [type(answer) for answer in answers] == [StoreError]
    queue.publish("two")
    assert (await queue.until_told(2))[1] == "two"
    caplog.clear()


async def test_an_answer_that_cannot_be_used_hinders_nobody(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(answer: object) -> None:
        raise ValueError

    queue.writing.submit(log.trim(queue.store.keys, TOKEN), refuse)
    queue.publish("one")
    assert await queue.until_told(1) == ["one"]
    assert "could not be processed" in caplog.text
    caplog.clear()


async def test_without_a_store_everybody_is_told_at_once_but_who_insists_waits(queue: Queue) -> None:
    insisting = queue.writing.ask(log.trim(queue.store.keys, TOKEN), retries=True)
    queue.store._writer.give_up("lost")
    queue.publish("one")
    assert await queue.until_told(1) == ["one StoreUnavailable"]
    async with asyncio.timeout(LIMIT_S):
        assert await insisting == 0  # the store is back by then


async def test_the_queue_closes_when_all_is_answered(queue: Queue) -> None:
    queue.publish("one")
    queue.submit("two")
    async with asyncio.timeout(LIMIT_S):
        await queue.writing.close()
    assert queue.told == ["one", "two"]


async def test_what_insists_and_finds_no_store_is_given_up_at_the_end(queue: Queue) -> None:
    queue.store._writer.give_up("lost")
    insisting = queue.writing.ask(log.trim(queue.store.keys, TOKEN), retries=True)
    async with asyncio.timeout(LIMIT_S):
        await queue.writing.close()
        with pytest.raises(StoreUnavailable):
            await insisting


async def test_work_without_a_step_has_its_place_and_what_was_there_before_what_follows(queue: Queue) -> None:
    """What follows is asked for together with it: what it works on must not know that already."""
    seen: list[str] = []

    def work(found: list[str]) -> None:
        queue.told.append(f"work on {found}, {len(seen)} by now")

    queue.publish("one")
    queue.writing.in_turn(lambda: list(seen), work)
    queue.publish("two")
    await asyncio.sleep(0)  # the turn in which the store is asked
    seen.append("later")
    assert await queue.until_told(3) == ["one", "work on [], 1 by now", "two"]


async def test_work_without_a_step_needs_no_store(queue: Queue) -> None:
    queue.store.cut()
    queue.writing.in_turn(lambda: "it", queue.told.append)
    assert await queue.until_told(1) == ["it"]


async def test_work_is_done_behind_a_step_that_cannot_be_made(queue: Queue) -> None:
    queue.fails = True
    queue.publish("one")
    queue.writing.in_turn(lambda: "work", queue.told.append)
    assert await queue.until_told(2) == ["one StoreError", "work"]


async def test_work_does_not_wait_for_what_is_asked_for_behind_it(queue: Queue) -> None:
    """Messages of other nodes are there, whether the store is fast or slow."""
    queue.publish("one")
    await queue.until_told(1)
    queue.writing.in_turn(
        lambda: "work", lambda found: queue.told.append(f"{found}, {len(queue.groups)} groups asked for")
    )
    queue.publish("two")
    assert await queue.until_told(3) == ["one", "work, 1 groups asked for", "two"]


async def test_work_does_not_wait_for_what_unordered(queue: Queue) -> None:
    """A commit, say. On a slow line, messages of other nodes would be late."""
    queue.submit("trimmed", unordered=True)
    await asyncio.sleep(0)  # the turn in which the store is asked
    queue.writing.in_turn(lambda: "work", queue.told.append)
    queue.submit("ordered")
    queue.writing.in_turn(lambda: "more", queue.told.append)
    assert await queue.until_told(4) == ["work", "trimmed", "ordered", "more"]


async def test_work_does_not_wait_for_what_unordered_follows_the_last_ordered_step(queue: Queue) -> None:
    queue.publish("one")
    await asyncio.sleep(0)  # the turn in which the store is asked
    queue.submit("trimmed", unordered=True)
    queue.writing.in_turn(lambda: "work", queue.told.append)
    assert await queue.until_told(3) == ["one", "work", "trimmed"]


async def test_answers_to_what_unordered_wait_for_work_that_was_begun(queue: Queue) -> None:
    queue.hinders = asyncio.Event()
    queue.submit("trimmed", unordered=True)
    queue.writing.in_turn(lambda: ["work"], lambda found: queue.appended(found, StoreUnavailable("")))
    await asyncio.sleep(0.02)
    queue.writing.in_turn(lambda: "more", queue.told.append)
    queue.publish("two")
    await asyncio.sleep(0.02)
    assert queue.told == []
    queue.hinders.set()
    assert await queue.until_told(4) == ["work StoreUnavailable", "trimmed", "more", "two"]


async def test_what_follows_waits_for_work_that_takes_long(queue: Queue) -> None:
    queue.hinders = asyncio.Event()
    queue.writing.in_turn(lambda: ["work"], lambda found: queue.appended(found, StoreUnavailable("")))
    queue.submit("after")
    await asyncio.sleep(0.02)
    assert queue.told == []
    queue.hinders.set()
    assert await queue.until_told(2) == ["work StoreUnavailable", "after"]
