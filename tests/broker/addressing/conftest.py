"""A world with a store, and somebody who publishes there."""

from collections.abc import Callable

import pytest

from tests.broker.addressing.post import Clerk
from tests.broker.stored_world import StoredWorld


@pytest.fixture
def world(make_stored: Callable[..., StoredWorld]) -> StoredWorld:
    return make_stored()


@pytest.fixture
def clerk(world: StoredWorld) -> Clerk:
    return Clerk(world)
