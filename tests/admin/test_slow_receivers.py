"""A receiver that takes less than comes is never well, and one that catches up says so: in lists, in the overview, alone."""

from __future__ import annotations

import time

import pytest

from crewel.admin import receiver_facts
from crewel.admin.session_resource import SESSION_ROUTES
from crewel.errors import StoreUnavailable
from tests.admin.test_rejecting_receivers import JOE, Operator
from tests.broker.stored_world import Receiver, StoredWorld, ok, store

pytestmark = pytest.mark.store

SHOW = next(each for each in SESSION_ROUTES if each.method == "GET" and each.path.endswith("{number}"))


class Watched:
    """A receiver and its operator, ten seconds after the other: the clock of samples is the test's."""

    def __init__(self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.operator, self.now = world, Operator(world), 1000.0
        self.operator.admin.backlog_trends._clock = lambda: self.now
        real = time.time
        monkeypatch.setattr(receiver_facts, "time", lambda: real() + 61)  # so long the oldest message waits
        self.joe = Receiver(world).started("/a", name="joe/1", settle="message", maxOpen=2, queue={"maxEntries": 5000})
        self.open = self.joe.take()

    def pass_by(self, comes: int, takes: int, times: int = 5) -> None:
        for _ in range(times):
            store(self.world, "/a", *range(comes))
            for _ in range(takes // 2):
                self.open = self.joe.take(*map(ok, self.open))
            self.world.commit()
            self.world.wait(self.operator.admin.session_counter.take_anew())
            self.now += 10


def test_a_receiver_that_takes_less_than_comes_and_then_catches_up(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(stored, monkeypatch)
    operator = watched.operator
    watched.pass_by(40, 2)
    operator.admin.rates["receiver"].drop()
    view = operator.receiver()
    assert view["conditions"] == ["falling behind", "connected"]
    assert view["cause"] == (
        "it takes less than comes: 228 messages more a minute, 192 wait; 2 messages sent and not acknowledged, of at most 2"
        "; it takes 4 a minute"
    )
    (cause,) = view["causes"]
    assert (cause["kind"], cause["level"], cause["perMinute"], cause["takenPerMinute"]) == ("slow", "warn", 228, 4)
    shown = operator.get(SHOW, path={"subject": "joe", "number": "1"})
    assert shown["causes"] == view["causes"]
    finding = operator.findings()["behind"]
    assert finding["title"] == f"{JOE} falls behind"
    assert finding["cause"].startswith("it takes less than comes: ")
    assert finding["cause"].endswith("; it takes 4 a minute")
    watched.pass_by(0, 20)
    operator.admin.rates["receiver"].drop()
    view = operator.receiver()
    assert view["conditions"] == ["catching up", "connected"]
    assert view["cause"] == "it catches up: 150 messages fewer a minute, 92 wait, 1 minute to go; it takes 54 a minute"
    assert operator.findings()["catches-up"]["cause"].startswith("it catches up: ")


def test_the_slope_begins_again_when_a_hold_ends(stored: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(stored, monkeypatch)
    operator, dispatchers = watched.operator, stored.broker.mailboxes.dispatchers
    stored.wait(dispatchers.hold(watched.joe.session, "ann"))
    watched.pass_by(300, 0)
    assert "soon full" in operator.receiver()["conditions"]
    stored.wait(dispatchers.activate(watched.joe.session))
    assert "soon full" not in operator.receiver()["conditions"]
    watched.pass_by(1, 2)
    assert "soon full" not in operator.receiver()["conditions"]


def test_what_the_store_has_said_of_one_receiver_holds_if_it_fails_at_the_next(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(stored, monkeypatch)
    admin = watched.operator.admin
    watched.pass_by(40, 2)
    admin.rates["receiver"].drop()
    monkeypatch.setattr(admin.rates["group"], "_work", failing)
    taken = stored.wait(receiver_facts.taken_lately(admin, [JOE, "/jobs/* workers"]))
    assert taken == {JOE: 4}


async def failing() -> None:
    raise StoreUnavailable("it is away")
