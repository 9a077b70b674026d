"""Whatever happens, a message of a shared queue is where the model has it: in the queue, in inboxes, or it has ended once for
each who had it."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from crewel.delivery.records import Disposition, EndReason, LogId, PendingDeadLetter, SessionName, Submission
from crewel.storage import shared_queue_store
from crewel.storage.shared_queue_store import Addressed, Delivery, Member
from crewel.storage.store import Store
from tests.storage.owner import FACTS_MAX, Owner, change, started
from tests.storage.reading import last_id, read_facts, read_queue
from tests.storage.shared_model import Message, SharedModel

SUBJECT, ONE, PATTERN = "client/joe", "one:client/joe", "/a/*"
GROUPS = {f"group:{PATTERN} {each}": each for each in ("x", "y")}
NAMES = [SessionName(f"client/joe/{number}") for number in (1, 2, 3)]
STEPS = 60
RUNS = 100 if os.environ.get("FAULTS") == "full" else 8


class Play:
    """Random steps on the store and on the model beside it."""

    def __init__(self, store: Store, owner: Owner, draw: random.Random) -> None:
        self.store = store
        self.keys = store.keys
        self.owner = owner
        self.draw = draw
        self.model = SharedModel(members={queue: set() for queue in GROUPS})
        self.read_up_to = "0-0"
        self.tokens = 1

    async def do(self, step: Any) -> Any:
        """Do a step twice: it answers the same again."""
        first, again = await self.store.run([step, step])
        assert first == again or getattr(again, "is_repeated", False), (first, again)
        return first

    def some(self, name: str) -> list[LogId]:
        known = sorted(self.model.inboxes[name])
        return self.draw.sample(known, self.draw.randrange(len(known) + 1))

    async def run(self) -> None:
        kinds = (self.send, self.share, self.lease, self.lease, self.lease, self.settle, self.die, self.requeue)
        kinds += (self.join, self.join, self.leave, self.end, self.adopt)
        for _ in range(STEPS):
            if len(self.model.inboxes) < 2 or self.draw.random() < 0.1:
                await self.login(self.draw.choice(NAMES))
            else:
                await self.draw.choice(kinds)(self.draw.choice(sorted(self.model.inboxes)))
            await self.check()
        for name in sorted(self.model.inboxes):
            await self.end(name)
            await self.check()
        assert not self.model.receivers

    # The steps

    async def login(self, name: str) -> None:
        await self.owner.login(name)
        self.model.inboxes.setdefault(name, {})

    async def send(self, name: str) -> None:
        priority = self.draw.choice((5, 5, 9, 0))
        there = sorted(self.model.inboxes)
        chosen = self.draw.sample(there, self.draw.randrange(1, len(there) + 1))
        deliveries = self.draw.choice(
            (
                [Delivery(SUBJECT, each, source=SUBJECT) for each in chosen],
                [Delivery(SUBJECT, queue=SUBJECT)],
                [Delivery(SUBJECT, queue=ONE)],
                [Delivery(SUBJECT, name, source=ONE)],
                [Delivery(name, name)],
            )
        )
        message = Addressed("/a/b", b"{}", priority=priority)
        sent = await self.do(shared_queue_store.send(self.keys, self.owner.token, message, deliveries, FACTS_MAX))
        for each in deliveries:
            if each.queue:
                self.model.enqueue(each.queue, sent.id, Message(priority, each.queue))
            else:
                self.model.box(each.receiver, sent.id, Message(priority, each.source))

    async def share(self, name: str) -> None:
        queues = tuple(queue for queue in GROUPS if self.model.members[queue])
        submissions = [Submission("/a/b", b"{}", groups=queues) for _ in range(3)]
        for log_id in (await self.owner.append(submissions)).ids:
            for queue in queues:
                self.model.enqueue(queue, log_id, Message(5, queue))

    async def lease(self, name: str) -> None:
        queue = self.draw.choice((SUBJECT, ONE, *GROUPS))
        able = self.model.members[queue] if queue in GROUPS else self.model.inboxes
        room = {each: self.draw.randrange(4) for each in sorted(able)}
        members = [Member(SessionName(each), count) for each, count in room.items()]
        found = await self.do(shared_queue_store.lease(self.keys, self.owner.token, queue, members, FACTS_MAX))
        expected = self.model.lease(queue, room) if room else []
        # who has the same room may be chosen either way
        assert [(each.receiver, each.id) for each in found.leased] == expected
        assert found.left == len(self.model.order(queue))

    async def settle(self, name: str) -> None:
        await self.commit(name, self.some(name), EndReason.SETTLED)

    async def die(self, name: str) -> None:
        await self.commit(name, self.some(name), EndReason.DEAD)

    async def commit(self, name: str, ids: list[LogId], how: EndReason) -> None:
        session = SessionName(name)
        letters = [PendingDeadLetter(session, each, "user.x", "why") for each in ids] if how is EndReason.DEAD else []
        ended = [Disposition(session, how, tuple(ids))] if ids else []
        cursor = await last_id(self.store)
        await self.owner.commit(cursor, change(name, removed=ids), ended=ended, letters=letters)
        self.model.finish(name, ids, how)

    async def requeue(self, name: str) -> None:
        ids, failed = self.some(name), self.draw.random() < 0.5
        attempts = dict.fromkeys(ids, 2)
        step = shared_queue_store.requeue(self.keys, self.owner.token, name, attempts, FACTS_MAX, failed=failed)
        await self.do(step)
        self.model.requeue(name, ids, 2, has_failed=failed)

    async def join(self, name: str) -> None:
        wanted = [group for group in GROUPS.values() if self.draw.random() < 0.7]
        text = "[" + ",".join(f'{{"group":"{group}"}}' for group in wanted) + "]"
        await self.owner.subscribe(name=name, options={PATTERN: text.encode()})
        for queue, group in GROUPS.items():
            if group in wanted:
                self.model.members[queue].add(name)
            elif name in self.model.members[queue]:
                self.model.leave(queue, name)

    async def leave(self, name: str) -> None:
        await self.owner.unsubscribe(PATTERN, name=name)
        for queue in GROUPS:
            if name in self.model.members[queue]:
                self.model.leave(queue, name)

    async def end(self, name: str) -> None:
        session = SessionName(name)
        settled = self.some(name)
        returning = {each: 1 for each in self.model.inboxes[name] if each not in settled and self.draw.random() < 0.7}
        makes_letters = self.draw.random() < 0.5
        letters = [PendingDeadLetter(session, each, "user.x", "why") for each in returning] if makes_letters else []
        ended = [Disposition(session, EndReason.SETTLED, tuple(settled))] if settled else []
        await self.owner.close(name)
        await self.owner.end(ended, letters, session, returning)
        self.model.end(name, returning, settled, makes_letters=makes_letters)

    async def adopt(self, name: str) -> None:
        """Another server takes over, and finds in the inboxes what the model has."""
        self.tokens += 1
        self.owner = await started(self.store, f"token-{self.tokens}")
        for found, record in (await self.owner.adopt_all()).items():
            sources = {log_id: (waiting.source, waiting.priority) for log_id, waiting in record.inbox.items()}
            inbox = self.model.inboxes[found]
            assert sources == {log_id: (each.source, each.priority) for log_id, each in inbox.items()}

    # What must be

    async def check(self) -> None:
        await self.check_queues()
        for name, inbox in self.model.inboxes.items():
            texts = {field[2:] for field in await self.owner.record(name) if field.startswith("i:")}
            bodies: Any = await self.store.reader.hkeys(self.keys.inbox(name))
            assert texts == {each.decode() for each in bodies} == {str(each) for each in inbox}, name
        expected = {self.keys.receivers(*key): names for key, names in self.model.receivers.items()}
        assert await self.sets(f"{self.keys.base}ptp:*") == expected
        groups = {self.keys.members(queue): names for queue, names in self.model.members.items() if names}
        assert await self.sets(f"{self.keys.base}members:*") == groups
        assert await self.new_ends() == sorted(self.model.ends)
        self.model.ends.clear()

    async def check_queues(self) -> None:
        sizes = {each.name: each.size for each in await shared_queue_store.queues(self.store)}
        assert sizes == {queue: len(waiting) for queue, waiting in self.model.queues.items() if waiting}
        for queue in (SUBJECT, ONE, *GROUPS):
            found = await read_queue(self.store, queue, 1000)
            waiting = self.model.queues.get(queue, {})
            assert [each.logged.id for each in found] == self.model.order(queue)
            for each in found:
                message = waiting[each.logged.id]
                assert (each.attempts, each.failed, each.priority) == (
                    message.attempts,
                    message.failed,
                    message.priority,
                )

    async def sets(self, pattern: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        async for key in self.store.reader.scan_iter(match=pattern, count=1000):
            found[key.decode()] = {each.decode() for each in await self.store.reader.smembers(key)}
        return found

    async def new_ends(self) -> list[tuple[str, str, LogId]]:
        ends = []
        for fact in await read_facts(self.store, self.read_up_to, 100_000):
            self.read_up_to = fact.place
            for each in fact.fields.get("ended", ()):
                ends += [(each["session"], each["reason"], log_id) for log_id in each["ids"]]
        return sorted(ends)


@pytest.mark.parametrize("seed", range(RUNS))
async def test_messages_of_shared_queues_are_where_they_should_be(store: Store, seed: int) -> None:
    await Play(store, await started(store, "token-1"), random.Random(seed)).run()
