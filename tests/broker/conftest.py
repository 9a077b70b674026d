"""Worlds for the tests of the broker."""

from collections.abc import Callable, Iterable, Iterator

import pytest

from crewel.delivery.batches import NO_BATCHES
from crewel.delivery.dispatcher import NO_DISPATCHER, Rules
from crewel.extension import Extension
from tests.broker.stored_world import MESSAGE, Receiver, StoredWorld
from tests.broker.world import World


@pytest.fixture(autouse=True)
def shared_objects_stay_empty() -> Iterator[None]:
    """Check after each test that what all sessions without a dispatcher or without batches share is as it was."""
    yield
    shared = NO_DISPATCHER
    assert (shared.rules, shared.holdback, shared.rejection, shared.waits_until) == (Rules(), None, None, 0.0)
    assert not any((shared.messages.opened, shared.messages.waiting, shared.reported, shared.flushes))
    assert (NO_BATCHES.number, NO_BATCHES.unacknowledged, NO_BATCHES.must_resend) == (1, [], False)


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Make worlds that end with the test; a failure that the broker had to log fails the test only if it looks."""
    worlds: list[World] = []

    def make(*args: object, **options: object) -> World:
        worlds.append(World(*args, **options))  # type: ignore[arg-type]
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A world with the default settings and no extension."""
    return make_world()


@pytest.fixture
def make_stored() -> Iterator[Callable[..., StoredWorld]]:
    """Make worlds with a store; `make_stored(prefix=other.prefix)` is a server after another one, or beside it."""
    worlds: list[StoredWorld] = []

    def make(*sets: str, prefix: str = "", extensions: Iterable[Extension] | None = None) -> StoredWorld:
        worlds.append(StoredWorld(*sets, prefix=prefix, extensions=extensions))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def stored(make_stored: Callable[..., StoredWorld]) -> StoredWorld:
    """A world with a store and the default settings."""
    return make_stored()


@pytest.fixture
def joe(stored: StoredWorld) -> Receiver:
    """A client that settles each message by itself, and is subscribed to /a."""
    return Receiver(stored).started("/a", **MESSAGE)
