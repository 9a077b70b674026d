"""The seam between a history and what follows it, with everything under way at once, in an order that is drawn: each message
comes exactly once, in the order of the log."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld
from tests.broker.world import Client, Request, World, data_of

CHANNEL = "/h/a"
RULES = 'topics={"/h/**":{"history":{"max_entries":1000}}}'
SEEDS = range(40)


class Reader:
    """One session, and what it has heard of the numbers that are published."""

    def __init__(self, world: StoredWorld, kind: str) -> None:
        self.world = world
        self.client: Client = Receiver(world).started() if kind == "stored" else Client(world).joined()
        self.heard: list[int] = []
        self.begins: int | None = None
        """The first number that it has to hear; None: it is not subscribed."""
        self._asked: list[Request] = []

    def subscribe(self, since: tuple[Fields, int] | None = None) -> None:
        """Ask for the whole history, or for what came after a position and that number."""
        whole: dict[str, Any] = {"history": {"numEntries": -1, "newestFirst": False}}
        asked = whole if since is None else {"since": since[0]}
        self.begins = 0 if since is None else since[1] + 1
        request = Request(self.client.browser)
        message = self.client.message("/meta/subscribe", subscription=CHANNEL, ext={"subscribe": asked})
        self.world.broker.inbound.receive(request, [message])
        self._asked.append(request)

    def take(self) -> None:
        """Hear what is there."""
        for request in self._asked:
            for reply in (each for each in request.received if each["channel"] == "/meta/subscribe"):
                assert reply["successful"], reply
                assert reply["ext"]["subscribe"].get("recovered", True)
            self.heard += data_of(request.received)
        self._asked.clear()
        if isinstance(self.client, Receiver):
            self.heard += data_of(self.client.take())
        else:
            self.heard += data_of(self.client.connect(advice={"timeout": 0}).answer)

    def position(self, world: StoredWorld) -> Fields:
        """Where the history is now."""
        asking = Client(world).joined()
        reply = asking.say("/meta/subscribe", subscription=CHANNEL, ext={"subscribe": {"initialUpdate": False}})
        asking.say("/meta/disconnect")
        position: Fields = reply["ext"]["subscribe"]["position"]
        return position


@pytest.fixture
def world(make_stored: MakeStored) -> StoredWorld:
    return make_stored(RULES)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_comes_once_and_in_its_place(world: StoredWorld, seed: int) -> None:
    random = Random(seed)
    published = 0
    readers = [Reader(world, random.choice(["plain", "stored"])) for _ in range(6)]
    late = list(readers)
    positions: list[tuple[Fields, int]] = []
    for _ in range(random.randrange(10, 40)):
        action = random.choice(["publish", "publish", "publish", "subscribe", "turn", "settle", "position"])
        if action == "publish":
            world.broker.publish(CHANNEL, published)
            published += 1
        elif action == "subscribe" and late:
            since = random.choice(positions) if positions and random.random() < 0.5 else None
            late.pop().subscribe(since)
        elif action == "turn":
            World.settle(world)  # the store's answers stay on their way
        elif action == "position" and published:
            world.settle()
            positions.append((readers[0].position(world), published - 1))
        elif action == "settle":
            world.settle()
            random.choice(readers).take()
    world.settle()
    for reader in readers:
        reader.take()
        assert reader.heard == ([] if reader.begins is None else list(range(reader.begins, published)))
