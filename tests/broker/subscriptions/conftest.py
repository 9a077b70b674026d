"""A world with a store and the rules that most of these tests are about, and who asks there."""

from collections.abc import Iterator

import pytest

from tests.broker.stored_world import StoredWorld
from tests.broker.subscriptions.asking import KINDS, RULES, Asking


@pytest.fixture
def world() -> Iterator[StoredWorld]:
    made = StoredWorld(RULES)
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def asking(request: pytest.FixtureRequest, world: StoredWorld) -> Asking:
    return Asking(world, request.param)
