"""Since when a queue is full, and how many messages it has turned away."""

from __future__ import annotations

from crewel.admin.turned_away import MOST_RECEIVERS, Overflow, TurnedAway


class Queue:
    """What a clock and the queue of one receiver say."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.oldest: int | None = 900_000
        self.turned = TurnedAway(lambda name: self.oldest, lambda: self.now)


def test_messages_turned_away_one_after_the_other_are_counted_together() -> None:
    queue = Queue()
    queue.turned.add("client/joe/1", "deadMessage", 3)
    queue.now += 30
    queue.turned.add("client/joe/1", "deadMessage", 4)
    assert queue.turned.of("client/joe/1") == Overflow(1_000_000, 1_030_000, 7, "deadMessage")
    assert queue.turned.of("client/ann/1") is None


def test_a_queue_that_was_never_emptied_is_full_since_the_first_one() -> None:
    queue = Queue()
    queue.turned.add("client/joe/1", "deadMessage", 1)
    queue.now += 3600
    queue.turned.add("client/joe/1", "deadMessage", 1)
    assert queue.turned.of("client/joe/1") == Overflow(1_000_000, 4_600_000, 2, "deadMessage")


def test_an_overflow_is_over_when_all_is_gone_that_waited_then() -> None:
    queue = Queue()
    queue.turned.add("client/joe/1", "deadMessage", 1)
    queue.oldest = 1_000_001
    assert queue.turned.of("client/joe/1") is not None  # a moment ago
    queue.now += 61
    assert queue.turned.of("client/joe/1") is None
    queue.turned.add("client/joe/1", "deadMessage", 1)
    found = queue.turned.of("client/joe/1")
    assert found is not None
    assert (found.since, found.count) == (1_061_000, 1)
    queue.now, queue.oldest = queue.now + 61, None
    assert queue.turned.of("client/joe/1") is None


def test_another_policy_begins_again() -> None:
    queue = Queue()
    queue.turned.add("client/joe/1", "deadMessage", 5)
    queue.turned.add("client/joe/1", "dropOldest", 1)
    assert queue.turned.of("client/joe/1") == Overflow(1_000_000, 1_000_000, 1, "dropOldest")


def test_receivers_without_a_name_and_very_many_are_not_remembered() -> None:
    queue = Queue()
    queue.turned.add("", "deadMessage", 1)
    assert queue.turned.of("") is None
    for number in range(MOST_RECEIVERS + 1):
        queue.turned.add(f"client/joe/{number}", "deadMessage", 1)
    assert queue.turned.of("client/joe/0") is None
    assert queue.turned.of("client/joe/1") is not None
