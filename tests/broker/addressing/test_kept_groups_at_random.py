"""A group that a rule keeps, at random: members come, leave, end and fail, and servers end and are killed. Nothing that was
published is lost, however long the group has no member."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.broker.stored_world import MakeStored, Receiver, failed, ok, store

KEPT: Final = 'topics={"/kept/*":{"groups":{"keep":["g"]}}}'
SEEDS: Final = range(6)
STEPS: Final = 60


class Run:
    """A group, and what its members have accepted."""

    def __init__(self, seed: int, make_stored: MakeStored) -> None:
        self.rng = random.Random(seed)
        self._make = make_stored
        self.world = make_stored(KEPT)
        self.members: list[Receiver] = []
        self.published = self.joined = 0
        self.ids: dict[str, int] = {}
        self.accepted: set[int] = set()
        self.failed: set[int] = set()
        self.was_empty = 0
        """How many messages came while the group had no member."""

    def publish(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.published += 1
            self.was_empty += not self.members
            (message_id,) = store(self.world, f"/kept/{self.published % 3}", self.published)
            self.ids[message_id] = self.published

    def join(self) -> None:
        if len(self.members) < 3:
            self.joined += 1
            login = {"settle": "message", "dispatcher": {"retries": -1, "delay": 0}}
            member = Receiver(self.world).started(name=f"cook{self.joined}/1", **login)
            reply = member.say("/meta/subscribe", subscription="/kept/*", ext={"subscribe": {"group": "g"}})
            assert reply["successful"], reply
            self.members.append(member)

    def _one(self) -> Receiver | None:
        return self.rng.choice(self.members) if self.members else None

    def take(self) -> None:
        if (member := self._one()) is not None:
            for message in member.take():
                what = self.rng.random()
                if what < 0.6:
                    member.tell(ok(message))
                    self.accepted.add(message["data"])
                elif what < 0.8:
                    member.tell(failed(message, "communication.noConnection"))
                    self.failed.add(message["data"])

    def leave(self) -> None:
        if (member := self._one()) is not None:
            self.members.remove(member)
            if self.rng.random() < 0.5:
                member.say("/meta/unsubscribe", subscription="/kept/*")
            member.say("/meta/disconnect")

    def restart(self) -> None:
        (self.world.crash if self.rng.random() < 0.5 else self.world.close)()
        self.world = self._make(KEPT, prefix=self.world.prefix)
        for member in self.members:
            member.world = self.world

    def finish(self) -> None:
        """All members leave, and another one takes what is left. What all members of a time have failed is a dead letter."""
        while self.members:
            self.leave()
        self.publish()
        self.join()
        while messages := self.members[0].take():
            for message in messages:
                self.members[0].tell(ok(message))
                self.accepted.add(message["data"])
            self.world.advance(0.3)
        letters = {self.ids[each.id] for each in self.world.letters()}
        assert letters <= self.failed
        assert self.accepted | letters == set(range(1, self.published + 1))


CHANCES: Final = {"publish": 6, "join": 3, "take": 10, "leave": 4, "restart": 1}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_while_a_kept_group_has_no_member(make_stored: MakeStored, seed: int) -> None:
    run = Run(seed, make_stored)
    for name in run.rng.choices(list(CHANCES), list(CHANCES.values()), k=STEPS):
        getattr(run, name)()
    run.finish()
    assert run.was_empty
