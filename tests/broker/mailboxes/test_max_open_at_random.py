"""`maxOpen` with random time-outs, failures, lost replies, absences, take-overs and servers that are killed: never are more
messages open than asked, with 1 they come strictly in order, and none is lost. `FAULTS=full` makes 200 runs."""

from __future__ import annotations

import os
import random
from typing import Any, Final

import pytest

from crewel.bayeux.message import Fields
from tests.broker.shooting import true_news
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, failed, ok, origin, store

SEEDS: Final = range(200) if os.environ.get("FAULTS") == "full" else range(8)
STEPS: Final = 60
ACK_WAIT_S: Final = 1.0


class Run:
    """One session, whose client notes what it has got and given no status."""

    def __init__(self, seed: int, make_stored: MakeStored) -> None:
        self.rng = random.Random(seed)
        self._make = make_stored
        self.world: StoredWorld = make_stored()
        self.most = self.rng.choice((1, 1, 2, 4))
        delay = self.rng.choice((0, 300))
        self._asked: dict[str, Any] = {
            "settle": "message",
            "maxOpen": self.most,
            "ackWait": int(ACK_WAIT_S * 1000),
            "dispatcher": {"retries": -1, "delay": delay},
        }
        self.client = Receiver(self.world).started("/a", name="joe/1", **self._asked)
        self.published = 0
        self.open: dict[str, Fields] = {}
        self.first: list[int] = []
        self.settled: set[int] = set()

    def publish(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.published += 1
            store(self.world, "/a", self.published)

    def get(self) -> None:
        request = self.client.reconnect(advice={"timeout": 0})
        while request.is_held:  # for the pause after replies that were lost
            self.world.advance(0.1)
        for message in self.client.heard(request):
            if message["data"] not in self.first:
                self.first.append(message["data"])
            self.open[origin(message)["id"]] = message
        assert len(self.open) <= self.most, sorted(each["data"] for each in self.open.values())

    def lose(self) -> None:
        """A reply does not arrive, and so is not acknowledged."""
        self.client.reconnect(advice={"timeout": 0})

    def _one(self) -> Fields | None:
        return self.open.pop(self.rng.choice(sorted(self.open))) if self.open else None

    def settle(self) -> None:
        if (message := self._one()) is not None:
            self.client.tell(ok(message))
            self.settled.add(message["data"])

    def fail(self) -> None:
        if (message := self._one()) is not None:
            self.client.tell(failed(message, "communication.noConnection"))

    def work(self) -> None:
        """The client processes for so long that a message without a status may be sent again: it is still the same one."""
        self.world.advance(self.rng.random() * ACK_WAIT_S * 1.5)

    def be_away(self) -> None:
        self.world.sweep_after(60.0)

    def take_over(self) -> None:
        self.client = Receiver(self.world).taking_over(self.client, **self._asked)
        self.open.clear()

    def crash(self) -> None:
        """Another server takes the session; it sends again what was at the client."""
        (self.world.crash if self.rng.random() < 0.5 else self.world.close)()
        self.client.world = self.world = self._make(prefix=self.world.prefix)
        self.open.clear()

    def finish(self) -> None:
        """All that is left is processed."""
        for _ in range(4 * self.published):
            if len(self.settled) == self.published:
                return
            self.get()
            self.settle()
            self.world.advance(0.3)
        raise AssertionError(f"{set(range(1, self.published + 1)) - self.settled} did not come")


CHANCES: Final = {
    "publish": 4,
    "get": 12,
    "lose": 2,
    "settle": 8,
    "fail": 2,
    "work": 3,
    "be_away": 1,
    "take_over": 1,
    "crash": 1,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_never_more_open_than_asked(seed: int, make_stored: MakeStored) -> None:
    run = Run(seed, make_stored)
    for name in run.rng.choices(list(CHANCES), list(CHANCES.values()), k=STEPS):
        getattr(run, name)()
        mailbox = run.client.session.mailbox
        assert mailbox.news == true_news(mailbox), name
    run.finish()
    if run.most == 1:
        assert run.first == list(range(1, run.published + 1))
