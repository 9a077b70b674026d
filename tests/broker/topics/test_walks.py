"""Random lives of topics: whatever happens, the state changes as the table of transitions has it."""

import random
from collections.abc import Callable

import pytest

from crewel.broker.topics import endings
from crewel.topics import TRANSITIONS, Event, State
from tests.broker.world import Client, World

NAME, FAMILY = "/a/b", "/a/*"
STEPS = 80


class Walk:
    """One topic, a reader who hears it now by its name and now by a wildcard, and one who publishes."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.choice = random.Random(seed)
        self.reader = Client(world).joined()
        self.writer = Client(world).joined()
        self.actions: list[tuple[Event, Callable[[], object]]] = [
            (Event.SUBSCRIBED, lambda: self.reader.subscribe(NAME)),
            (Event.UNSUBSCRIBED, lambda: self.reader.say("/meta/unsubscribe", subscription=NAME)),
            (Event.PUBLISHED, self.publish),
            (Event.PUBLISHED, lambda: self.publish(destroyDelay=2000)),
            (Event.CONFIGURED, lambda: self.publish(administrative=True, destroyDelay=3000)),
            (Event.RELEASED, self.take),
            (Event.ERASED, lambda: self.erase(force=False)),
            (Event.FORCED, lambda: self.erase(force=True)),
            (Event.DELAY_EXPIRED, lambda: world.sweep_after(1)),
        ]

    @property
    def state(self) -> State:
        return self.world.loop.run_until_complete(self.world.broker.topics.views.state(NAME))

    def publish(self, **qos: object) -> None:
        self.writer.publish(NAME, 1, ext={"publish": qos})

    def take(self) -> None:
        """Let the reader take what waits."""
        if self.reader.session.mailbox._queue:
            self.reader.connect(advice={"timeout": 0})

    def erase(self, *, force: bool) -> None:
        self.world.loop.run_until_complete(self.world.broker.topics.endings.erase(NAME, force=force))

    def step(self) -> tuple[State, Event, State]:
        event, act = self.choice.choice(self.actions)
        before = self.state
        if event is Event.PUBLISHED and self.choice.random() < 0.7:
            self.reader.subscribe(FAMILY)  # so that something waits; a wildcard is no event
        act()
        self.world.settle()
        self.reader.session.expires_at = self.writer.session.expires_at = float("inf")
        return before, event, self.state


@pytest.mark.parametrize("seed", range(20))
def test_every_change_is_in_the_table(
    make_world: Callable[..., World], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "perf_counter", lambda: 0.0)
    walk = Walk(make_world("bayeux.meta_connect_deliver_only=true"), seed)
    seen = set()
    for _ in range(STEPS):
        before, event, then = walk.step()
        seen.add(then)
        # The sweep finds out what was released before, and nothing at all may have happened.
        events = (event, Event.RELEASED) if event is Event.DELAY_EXPIRED else (event,)
        follows = [each for happened in events for each in TRANSITIONS[before].get(happened, ())]
        assert then is before or then in follows, (before, event, then)
    assert len(seen) >= 3
