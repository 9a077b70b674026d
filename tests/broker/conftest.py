"""Worlds for the tests of the broker."""

from collections.abc import Callable, Iterator

import pytest

from tests.broker.world import World


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
