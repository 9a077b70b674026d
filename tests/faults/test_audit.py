"""What the ledger of the fault tests knows of a server, in a world whose commits the test makes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.addressing.post import Clerk, login
from tests.broker.stored_world import StoredWorld
from tests.faults.audit import Audit
from tests.store_process import shared_store

pytestmark = pytest.mark.store


@pytest.fixture
def world() -> Iterator[StoredWorld]:
    world = StoredWorld()
    yield world
    world.close()


def audit(world: StoredWorld) -> Audit:
    where: Any = SimpleNamespace(store_sets=(f"storage.url={shared_store().url}", f"storage.prefix={world.prefix}"))
    found = Audit(where)
    found.check()
    return found


def test_a_message_sent_by_name_is_read_when_the_cursor_has_passed_it(world: StoredWorld) -> None:
    clerk = Clerk(world)
    login(world, "joe/1")
    world.commit()
    assert audit(world).is_read
    clerk.post("hi", "joe/1", persistent=True)
    assert not audit(world).is_read
    world.commit()
    assert audit(world).is_read
