"""Each alert rule is fired by a real fault, with its words, alone, and clears when the fault is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewel.admin import receiver_facts
from crewel.admin.administration import Administration
from crewel.pages import figures
from crewel.qos.names import group_queue
from crewel.storage.backup_record import note_backup
from tests.admin.alert_rules import HERON, LATER, SOON, Alert, Story
from tests.broker.stored_world import Receiver, StoredWorld, failed, ok, store
from tests.store_process import StoreProcess, until

pytestmark = pytest.mark.server

HOUR = 65


class Watched:
    """A broker with a store, whose figures are read."""

    def __init__(self, *sets: str) -> None:
        self.world = StoredWorld(*sets)
        self.admin = Administration(self.world.broker)
        self.story = Story()

    def read(self) -> str:
        self.world.wait(self.admin.session_counter.take_anew())
        return self.world.wait(figures(self.world.broker)).decode()

    def calm(self, minutes: int = LATER) -> None:
        self.world.commit()
        self.story.step(minutes, self.read())

    def fault(self, *fires: Alert) -> None:
        self.world.commit()
        self.story.step(SOON, self.read(), fires=fires)

    def grow(self, channel: str, number: int) -> None:
        """Publish so many messages every ten seconds, as the trends of queues see it."""
        now = 1000.0
        self.admin.backlog_trends._clock = lambda: now
        for _ in range(5):
            store(self.world, channel, *range(number))
            self.world.settle()
            self.read()
            now += 10

    def receiver(self, name: str, *channels: str, **session: object) -> Receiver:
        return Receiver(self.world).started(*channels, name=name, **session)


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.world.close()


def letters(number: int) -> Alert:
    return Alert("CrewelDeadLetters", f"{number} new dead letter{'' if number == 1 else 's'} on {HERON}")


def test_receivers_in_trouble_raise_alerts(watched: Watched, tmp_path: Path) -> None:
    world = watched.world
    joe, ann = (watched.receiver(name, "/a", settle="message") for name in ("joe/1", "ann/1"))
    watched.calm()
    # One message that no receiver takes: dead letters, and no receiver is to blame.
    store(world, "/a", *range(21))
    for each in (joe, ann):
        first, *others = each.take()
        each.take(failed(first, "user.update.deadMessage"), *map(ok, others))
    watched.fault(letters(2))
    watched.calm()
    # A receiver that rejects.
    store(world, "/a", *range(4))
    joe.take(*(failed(each, "user.update.error") for each in joe.take()))
    ann.take(*map(ok, ann.take()))
    watched.fault(Alert("CrewelReceiverRejects", f"1 receiver on {HERON} rejects messages"), letters(4))
    store(world, "/a", *range(20))
    for each in (joe, ann):
        each.take(*map(ok, each.take()))
    watched.calm()
    # A receiver on hold.
    world.wait(world.broker.mailboxes.dispatchers.hold(joe.session, "ann", reason="lunch"))
    watched.fault(Alert("CrewelSessionsOnHold", f"1 session on {HERON} is on hold"))
    world.wait(world.broker.mailboxes.dispatchers.activate(joe.session))
    watched.calm()
    watched.story.check(tmp_path)


def test_a_receiver_that_falls_behind_raises_an_alert_until_it_catches_up(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joe, now = watched.receiver("joe/1", "/a", settle="message", maxOpen=2), 1000.0
    watched.admin.backlog_trends._clock = lambda: now
    watched.calm()
    store(watched.world, "/a", *range(60))
    real = time.time
    monkeypatch.setattr(receiver_facts, "time", lambda: real() + 61)
    watched.fault(Alert("CrewelReceiverFallsBehind", f"1 receiver on {HERON} falls behind"))
    taken = joe.take()
    for _ in range(4):
        taken = joe.take(*map(ok, taken))
        now += 10
        watched.read()
    watched.calm()
    watched.story.check(tmp_path)


def test_full_queues_raise_alerts_and_only_those_that_drop_are_said_to_drop(watched: Watched, tmp_path: Path) -> None:
    world = watched.world
    full = Alert("CrewelQueueIsFull", f"1 queue on {HERON} is full")
    kept = watched.receiver("kept/1", "/kept", queue={"maxEntries": 5})
    dropping = watched.receiver("drop/1", "/drop", queue={"maxEntries": 5, "onOverflow": "dropOldest"})
    grows = watched.receiver("grows/1", "/grows", queue={"maxEntries": 100})
    watched.calm()
    store(world, "/kept", *range(8))
    watched.fault(full, letters(3))
    kept.take()
    kept.take()
    watched.calm()
    store(world, "/drop", *range(8))
    watched.fault(full, Alert("CrewelDropsMessages", f"{HERON} dropped 3 messages"))
    dropping.take()
    dropping.take()
    watched.calm()
    watched.grow("/grows", 15)
    watched.fault(Alert("CrewelQueueFillsUp", f"1 queue on {HERON} is full within half an hour"))
    grows.take()
    grows.take()
    watched.calm()
    watched.story.check(tmp_path)


def test_the_queues_of_groups_raise_the_same_alerts(tmp_path: Path) -> None:
    watched = Watched("ptp.group_queue_max_entries=40")
    world = watched.world
    member = watched.receiver("joe/1", settle="message", maxOpen=1)
    subscribed = member.say("/meta/subscribe", subscription="/jobs", ext={"subscribe": {"group": "workers"}})
    assert subscribed["successful"], subscribed
    watched.calm()
    watched.grow("/jobs", 7)
    watched.fault(Alert("CrewelQueueFillsUp", f"1 queue on {HERON} is full within half an hour"))
    store(world, "/jobs", *range(7))
    watched.fault(Alert("CrewelQueueIsFull", f"1 queue on {HERON} is full"), letters(1))
    world.wait(world.broker.addressing.shared_queues.drop(group_queue("/jobs", "workers")))
    watched.calm()
    watched.story.check(tmp_path)
    world.close()


def test_a_backlog_that_grows_raises_an_alert(watched: Watched, tmp_path: Path) -> None:
    world = watched.world
    receivers = [watched.receiver(f"slow/{number}", "/many") for number in range(1, 4)]
    watched.calm()

    def publish(count: int) -> str:
        values = (world.broker.publish_stored("/many", number) for number in range(count))
        world.wait(_all(*values))
        world.commit()
        return watched.read()

    grown = [publish(350), *(publish(50) for _ in range(4))]
    summary = f"More than 1,000 messages wait on {HERON}, and 25 more each minute"
    watched.story.step(25, *grown, fires=[Alert("CrewelBacklogGrows", summary)])
    for each in receivers:
        world.wait(world.broker.mailboxes.dispatchers.clear(each.session))
    watched.calm(40)
    watched.story.check(tmp_path)


async def _all(*awaitables: object) -> None:
    await asyncio.gather(*awaitables)  # type: ignore[call-overload]


def test_a_task_that_fails_raises_an_alert(watched: Watched, tmp_path: Path) -> None:
    world, may_fail = watched.world, asyncio.Event()

    async def pump() -> None:
        await may_fail.wait()
        may_fail.clear()
        raise ValueError("a leak")

    world.broker.supervisor.start("pump", pump)
    watched.calm()
    may_fail.set()
    world.advance(6)
    watched.fault(
        Alert("CrewelTaskRestarts", f"The task pump of {HERON} failed and was started again", {"task": "pump"})
    )
    watched.calm(HOUR)
    watched.story.check(tmp_path)


def test_a_store_in_trouble_raises_alerts(tmp_path: Path) -> None:
    own = StoreProcess(tmp_path)
    watched = Watched(f"storage.url={own.url}")
    world = watched.world
    joe = watched.receiver("joe/1", "/a")
    watched.calm()
    with own.client() as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] / 0.875))
        text = watched.read()
        watched.story.step(
            SOON, text, fires=[Alert("CrewelStoreFillsUp", f"The store of {HERON} uses {used(text)} % of its memory")]
        )
        client.config_set("maxmemory", 0)
    watched.calm()
    world.wait(note_backup(world.store.reader, world.store.keys, time.time() - 3 * 86400))
    watched.fault(Alert("CrewelBackupIsOld", f"The last backup of the store of {HERON} is 3 days old"))
    world.wait(note_backup(world.store.reader, world.store.keys, time.time()))
    watched.calm()
    store(world, "/a", 1)
    joe.take()
    joe.take()
    own.kill()
    until(lambda: world.loop.advance(0.01) or world.access.trouble)
    before = committed(watched.read())
    world.loop.advance(1)
    text = watched.read()
    assert committed(text) == before
    watched.story.step(
        SOON,
        text,
        stands_still=True,
        fires=[
            Alert("CrewelStoreIsDown", f"{HERON} cannot use its store"),
            Alert("CrewelNotReady", f"{HERON} does not accept all traffic"),
            Alert("CrewelCommitsFail", f"{HERON} could not write to its store what has ended for 600 s"),
        ],
    )
    own.start()
    until(lambda: world.loop.advance(0.01) or world.access.trouble is None)
    watched.calm()
    world.close()
    own.close()
    watched.story.check(tmp_path)


def figure(text: str, name: str) -> float:
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"crewel_{name} "))


def used(text: str) -> str:
    return f"{100 * figure(text, 'store_memory_bytes') / figure(text, 'store_max_memory_bytes'):.0f}"


def committed(text: str) -> float:
    return figure(text, "last_commit_timestamp_seconds")
