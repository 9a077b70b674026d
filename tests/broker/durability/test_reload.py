"""All sessions are read again because the store has changed, and it fails in the middle of that."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.errors import Behind, StoreUncertain
from crewel.storage.steps import Step
from tests.broker.stored_world import MakeStored, StoredWorld, store
from tests.broker.world import Client


class Uncertain:
    """The store does each step of one script, but its answer is lost, so often. Then it does as it is asked."""

    def __init__(self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch, script: str, times: int) -> None:
        self.left = times
        self._script = script
        self._ask = world.access.writing.ask
        monkeypatch.setattr(world.access.writing, "ask", self.ask)

    async def ask(self, step: Step[Any], **how: Any) -> Any:
        answer = await self._ask(step, **how)
        if step.script == self._script and self.left:
            self.left -= 1
            raise StoreUncertain("1 of 2 replicas have it in time")
        return answer


@pytest.mark.parametrize("script", ["meet", "adopt"])
def test_what_is_stored_between_two_attempts_to_read_all_again_does_not_count_as_lost(
    make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    world = make_stored()
    store(world, "/a", 1)
    store_loses_answers = Uncertain(world, monkeypatch, script, times=2)
    assert world.access.on_lost is not None
    world.access.on_lost(Behind("the store has lost something"))
    while store_loses_answers.left == 2:
        world.advance(0.01)
    store(world, "/a", 2, 3)
    world.advance(5)
    assert store_loses_answers.left == 0
    assert not world.access.is_reloading
    assert world.broker.metrics.lost_messages == 0
    assert world.broker.metrics.store_losses == 0


def test_sessions_that_a_changed_store_lacks_are_counted_when_the_first_attempt_to_read_it_fails(
    make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_stored()
    client = Client(world)
    client.handshake(ext={"ack": True})
    world.commit()
    assert client.session.durable is not None
    world.wait(world.store.reader.delete(world.store.keys.session(client.session.durable.name)))
    Uncertain(world, monkeypatch, "adopt", times=1)
    monkeypatch.setattr(type(world.store), "generation", "another")
    world.durability._store_is_back()
    world.advance(5)
    assert not world.access.is_reloading
    assert world.broker.metrics.lost_sessions == 1
