"""What a receiver rejects is counted by channel, from its first rejection until it takes messages again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from crewel.admin.rejections import CURED, MOST_CHANNELS, MOST_RECEIVERS, NEWEST, QUIET_MS, Rejections

JOE = "client/joe/1"


class Kitchen:
    """Rejections with a clock that stands still, and how often something was followed."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.followed: list[bool] = []
        self.rejections = Rejections(self.followed.append, lambda: self.now)

    def reject(self, count: int = 1, channel: str = "/a", name: str = JOE, code: str = "user.update.error") -> None:
        for number in range(count):
            self.rejections.add(name, channel, str(number), code, f"no {number}")

    def take(self, count: int = 1, channel: str = "/a", name: str = JOE, code: str = "", redrive_of: str = "") -> None:
        session: Any = SimpleNamespace(name=name)
        entries: Any = [SimpleNamespace(channel=channel, origin=SimpleNamespace(redrive_of=redrive_of))] * count
        self.rejections.settled(session, entries, code)


@pytest.fixture
def kitchen() -> Kitchen:
    return Kitchen()


def test_rejections_are_counted_with_what_is_taken_meanwhile(kitchen: Kitchen) -> None:
    kitchen.take(9)
    assert (kitchen.rejections.of(JOE), kitchen.followed) == (None, [])
    kitchen.reject(3)
    kitchen.now += 60
    kitchen.reject(1, "/b", code="user.update.noMenu")
    kitchen.take(2, "/b")
    kitchen.take(4, "/c")
    kitchen.take(5, name="client/ann/1")
    kitchen.take(6, code="communication.timeout")
    found = kitchen.rejections.of(JOE)
    assert found is not None
    assert (found.since, found.at, found.rejected, found.taken) == (1_000_000, 1_060_000, 4, 6)
    assert (found.code, found.reason, found.codes) == ("user.update.error", "no 2", 2)
    assert (found.channels, found.whole, found.whole_rejected, found.is_part) == (("/a", "/b"), ("/a",), 3, False)
    assert found.ids == ("0", "1", "2", "0")
    assert kitchen.followed == [True]


def test_of_some_channels_nothing_of_others_is_told(kitchen: Kitchen) -> None:
    kitchen.reject(2, "/secret", code="user.update.secret")
    kitchen.take(7, "/seen")
    kitchen.now += 1
    kitchen.reject(1, "/seen")
    kitchen.take(3, "/elsewhere")
    found = kitchen.rejections.of(JOE, lambda channel: channel == "/seen")
    alone = Kitchen()
    alone.now += 1
    alone.reject(1, "/seen")
    assert found == alone.rejections.of(JOE, lambda _: True)
    assert kitchen.rejections.of(JOE, lambda _: False) is None


@pytest.mark.parametrize(
    ("taken", "later_ms", "has_ended"),
    [(CURED - 1, 0, False), (CURED, 0, True), (0, 10 * QUIET_MS, False), (1, QUIET_MS, False), (1, QUIET_MS + 1, True)],
)
def test_a_rejection_has_ended_when_messages_are_taken_again(
    kitchen: Kitchen, taken: int, later_ms: int, has_ended: bool
) -> None:
    kitchen.reject(5)
    kitchen.take(taken)
    kitchen.now += later_ms / 1000
    assert (kitchen.rejections.of(JOE) is None) is has_ended
    kitchen.rejections.tidy()
    assert (JOE in kitchen.rejections) is not has_ended
    assert kitchen.followed == ([True, False] if has_ended else [True])
    kitchen.reject()
    found = kitchen.rejections.of(JOE)
    assert found is not None
    assert found.rejected == (1 if has_ended else 6)


@pytest.mark.parametrize(("rejected", "enough"), [(1, 1), (2, 2), (6, 3)])
def test_a_receiver_that_takes_what_is_redriven_is_cured(kitchen: Kitchen, rejected: int, enough: int) -> None:
    kitchen.reject(rejected)
    kitchen.take(enough - 1, redrive_of="7-0")
    kitchen.take(5)  # those are others
    assert kitchen.rejections.of(JOE) is not None
    kitchen.reject(1)
    kitchen.take(enough - 1, redrive_of="7-0")
    assert kitchen.rejections.of(JOE) is not None
    kitchen.take(2, redrive_of="7-0")
    assert kitchen.rejections.of(JOE) is None


def test_a_session_that_ends_is_forgotten(kitchen: Kitchen) -> None:
    kitchen.reject()
    kitchen.reject(name="client/ann/1")
    kitchen.rejections.forget(JOE)
    kitchen.rejections.forget(JOE)
    assert kitchen.followed == [True]
    kitchen.rejections.forget("client/ann/1")
    assert (kitchen.followed, kitchen.rejections.names) == ([True, False], [])


def test_what_is_remembered_is_bounded(kitchen: Kitchen) -> None:
    for number in range(MOST_CHANNELS + 1):
        kitchen.reject(1, f"/{number}", code=f"user.{number}")
    kitchen.reject(NEWEST + 1, "/last")
    found = kitchen.rejections.of(JOE)
    assert found is not None
    assert (len(found.channels), len(found.ids)) == (MOST_CHANNELS, NEWEST)
    assert "/0" not in found.channels
    for number in range(MOST_RECEIVERS):
        kitchen.reject(name=f"client/many/{number}")
    assert len(kitchen.rejections.names) == MOST_RECEIVERS
    assert JOE not in kitchen.rejections
