"""Filters of many sessions at random, in turns as short as can be and with little budget: no session loses a message, hears one
twice or out of order, and one whose subscription ends gets the notice behind the message that could not be judged.

`FAULTS=full` makes 100 runs."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from crewel.bayeux.message import Fields
from crewel.limits import Rate
from tests.broker.stored_world import Receiver, StoredWorld, store
from tests.broker.world import Client

SEEDS: Final = range(100) if os.environ.get("FAULTS") == "full" else range(6)
MESSAGES: Final = 40
CHANNELS: Final = ("/a", "/b", "/c")
SIZES: Final = (4, 4, 30, 120)
"""Items of a message: what a costly filter has to look at."""
DIVISORS: Final = (2, 3, 7)
"""A filter leaves out the messages whose numbers can be divided by one of these; the message says by which."""


@dataclass
class Reader:
    """One session, and what it should hear of which channel."""

    client: Client
    is_thrifty: bool
    """Whether its filters are conditions, which take no budget."""
    without: dict[str, int] = field(default_factory=dict)
    """By channel: of so many messages its filter leaves out one; 0: it has none."""
    heard: dict[str, list[int]] = field(default_factory=lambda: {each: [] for each in CHANNELS})
    lost: Counter[str] = field(default_factory=Counter)

    def subscribe(self, channel: str, rng: random.Random) -> None:
        self.without[channel] = rng.choice((0, *DIVISORS))
        ext: dict[str, Any] = {}
        if divisor := self.without[channel]:
            cheap = f"data.by{divisor} == `false`"
            costly = f"length(data.items[?@ == `{divisor}`]) == `0`" + " " * rng.randrange(3)
            ext = {"ext": {"subscribe": {"filter": cheap if self.is_thrifty else costly}}}
        assert self.client.say("/meta/subscribe", subscription=channel, **ext)["successful"]

    def wants(self, channel: str, number: int) -> bool:
        return channel in self.without and not (self.without[channel] and number % self.without[channel] == 0)

    def take(self) -> None:
        for each in self._come():
            if "data" in each:
                assert not self.lost[each["channel"]], "a notice is the last of its channel"
                self.heard[each["channel"]].append(each["data"]["n"])
            elif each["channel"] == "/meta/subscribe" and "id" not in each:
                assert each["successful"] is False
                self.lost[each["subscription"]] += 1

    def _come(self) -> list[Fields]:
        if isinstance(self.client, Receiver):
            request = self.client.reconnect(advice={"timeout": 0})
            self.client.heard(request)
            return request.answer
        return self.client.connect(advice={"timeout": 0}).answer

    def check(self, channel: str, published: list[int]) -> None:
        heard, wanted = self.heard[channel], [each for each in published if self.wants(channel, each)]
        if not self.lost[channel]:
            assert Counter(heard) == Counter(wanted)
            return
        assert self.lost[channel] == 1
        assert not self.is_thrifty
        # What could not be judged came all the same, as does what follows until the subscription has its turn to end.
        assert {each for each in wanted if each <= heard[-1]} <= set(heard)
        assert len(set(heard)) == len(heard)


def message(number: int, size: int) -> Fields:
    """The data of a message."""
    divisors = [each for each in DIVISORS if number % each == 0]
    made: Fields = {"n": number, "items": [*divisors, *[1] * (size - len(divisors))]}
    return made | {f"by{each}": each in divisors for each in DIVISORS}


def readers(world: StoredWorld) -> list[Reader]:
    made = []
    for number in range(24):
        client = Receiver(world).started(name=f"joe{number}/1") if number % 2 else Client(world).joined()
        made.append(Reader(client, is_thrifty=number % 3 == 0))
    return made


@pytest.fixture
def _little(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A portion of a turn is a few filters, and a portion is a turn. An address may spend what a few of its sessions need."""
    portion = float(seed % 4)
    for module in ("broker.subscriptions.options", "broker.durability.log_appender", "broker.durability.deliverer"):
        monkeypatch.setattr(f"crewel.{module}.PORTION_S", portion)
    for module in ("broker.subscriptions.options", "broker.durability.deliverer", "event_loop"):
        monkeypatch.setattr(f"crewel.{module}.perf_counter", itertools.count(1.0).__next__)
    monkeypatch.setattr("crewel.fair_turns.PORTION_S", 0.0)
    monkeypatch.setattr("crewel.fair_turns.SLICE_S", 0.0)
    context = "crewel.broker.subscriptions.filter_context"
    monkeypatch.setattr(f"{context}.FILTER_RATE", Rate(1000, 8000))
    monkeypatch.setattr(f"{context}.ACCOUNT_STEPS", 900)
    monkeypatch.setattr(f"{context}.ACCOUNT_MINIMUM", 60)


@pytest.mark.usefixtures("_little")
@pytest.mark.parametrize("seed", SEEDS)
def test_each_session_hears_what_its_filters_leave_in_order(world: StoredWorld, seed: int) -> None:
    rng = random.Random(seed)
    world.broker.mailboxes.outbound.fan_outs.slice_s = 0.0
    made = readers(world)
    for each in made:
        for channel in CHANNELS[: rng.randint(1, 3)]:
            each.subscribe(channel, rng)
    published: dict[str, list[int]] = {each: [] for each in CHANNELS}
    are_stored = rng.random() < 0.5
    for number in range(1, MESSAGES + 1):
        channel = rng.choice(CHANNELS)
        data = message(number, rng.choice(SIZES))
        published[channel].append(number)
        if are_stored:
            store(world, channel, data)  # returns when it is stored, and most have not got it
        else:
            world.broker.publish(channel, data)
        if rng.random() < 0.3:
            rng.choice(made).take()
        if rng.random() < 0.1:
            world.advance(rng.random())
    for _ in range(3):
        world.advance(1.0)
        for each in made:
            each.take()
    assert not world.broker.mailboxes.outbound.fan_outs.pending
    for each in made:
        for channel in CHANNELS:
            assert each.heard[channel] == sorted(each.heard[channel])
            each.check(channel, published[channel])
    assert world.broker.metrics.filters_over_budget >= sum(each.lost.total() for each in made)
