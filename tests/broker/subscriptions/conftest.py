"""A world with a store and the rules that most of these tests are about, and who asks there."""

import pytest

from tests.broker.stored_world import MakeStored, StoredWorld
from tests.broker.subscriptions.asking import KINDS, RULES, Asking


@pytest.fixture
def world(make_stored: MakeStored) -> StoredWorld:
    return make_stored(RULES)


@pytest.fixture(params=KINDS)
def asking(request: pytest.FixtureRequest, world: StoredWorld) -> Asking:
    return Asking(world, request.param)
