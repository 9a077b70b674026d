"""Full queues: what a message that has no room costs and leaves, by policy and by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.broker.stored_world import Receiver, StoredWorld, data, store
from tests.broker.work import instructions

MakeStored = Callable[..., StoredWorld]
AWAY_S = 15.0


def full(world: StoredWorld, most: int, policy: str, *, is_stored: bool, is_away: bool) -> Receiver:
    """A client whose queue has all that it may have."""
    joe = Receiver(world).started("/a", name="joe/1", queue={"maxEntries": most, "onOverflow": policy})
    if is_away:
        world.sweep_after(AWAY_S)
        assert joe.session.is_absent
    if is_stored:
        store(world, "/a", *range(most))
    else:
        for number in range(most):
            world.broker.publish("/a", number)
    return joe


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("policy", ["deadMessage", "dropOldest"])
def test_a_message_for_a_full_queue_costs_the_same_however_long_the_queue_is(
    make_stored: MakeStored, policy: str, is_stored: bool, is_away: bool
) -> None:
    short, long = 20, 420
    costs = {}
    for most in (short, long):
        world = make_stored("bayeux.max_queue_messages=1000")
        joe = full(world, most, policy, is_stored=is_stored, is_away=is_away)
        publish = partial(store, world, "/a") if is_stored else partial(world.broker.publish, "/a")
        publish("the first one too many")
        costs[most] = instructions(partial(publish, "one more"))
        assert world.broker.dispatchers.waiting(joe.session) == most
    assert costs[long] - costs[short] < 2 * (long - short), costs


def test_a_full_queue_takes_messages_again_when_one_was_acknowledged(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1", queue={"maxEntries": 2})
    for number in range(4):
        stored.broker.publish("/a", number)
    assert data(joe.take()) == [0, 1]
    joe.take()
    for number in range(4, 7):
        stored.broker.publish("/a", number)
    assert data(joe.take()) == [4, 5]
    assert [letter.code for letter in stored.letters()] == ["resource.overflow.queue.entries"] * 3


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_session_without_a_name_makes_no_letters_of_overflow(stored: StoredWorld, is_stored: bool) -> None:
    ann = Receiver(stored).started("/a", queue={"maxEntries": 1})
    before = stored.broker.metrics.dropped["noLetter"]
    for number in range(3):
        if is_stored:
            store(stored, "/a", number)
        else:
            stored.broker.publish("/a", number)
    assert data(ann.take()) == [0]
    assert stored.letters() == []
    assert stored.broker.metrics.dropped["noLetter"] == before + 2
    assert [reason for _, reason, _ in stored.ended()] == ["dropped"] * (2 if is_stored else 0)


def test_a_session_without_a_name_makes_letters_of_overflow_if_asked(make_stored: MakeStored) -> None:
    world = make_stored("delivery.letters_for_anonymous=true")
    Receiver(world).started("/a", queue={"maxEntries": 1})
    store(world, "/a", 1, 2)
    assert [letter.code for letter in world.letters()] == ["resource.overflow.queue.entries"]
