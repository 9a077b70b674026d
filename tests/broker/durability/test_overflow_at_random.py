"""Full queues of one address at random, beside receivers of another one that keep up: publishers of the other address
never wait, and each message is at each receiver, or is its dead letter."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import pytest

from tests.broker.durability.test_back_pressure import ask
from tests.broker.durability.test_overflow_accounts import Elsewhere, Other
from tests.broker.stored_world import MakeStored, Receiver, data
from tests.broker.world import Client

SEEDS: Final = range(6)
STEPS: Final = 60
CHANNELS: Final = ("/a", "/b", "/c")


class OtherReceiver(Receiver):
    """A receiver at the other address."""

    def send(self, *messages: dict[str, object]) -> Elsewhere:
        return Other.send(self, *messages)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
def test_full_queues_of_one_address_keep_no_other_waiting(make_stored: MakeStored, seed: int) -> None:
    rng, world = random.Random(seed), make_stored()
    world.broker.mailboxes.pressure.max_dead_letters, world.access.node.max_dead_letters = 4, 2
    full = [
        Receiver(world).started(
            rng.choice(("/**", "/a")), name=f"joe{number}/1", queue={"maxEntries": rng.randint(1, 3)}
        )
        for number in range(4)
    ]
    heard: dict[str, list[str]] = {}
    others = [OtherReceiver(world).started("/**", name=f"ann{number}/1") for number in range(2)]
    stranger, honest = Client(world).joined(), Other(world).joined()
    published: list[str] = []
    were_delayed = 0
    for _ in range(STEPS):
        what = rng.choice(["stranger", "stranger", "honest", "honest", "take", "commit"])
        channels = [rng.choice(CHANNELS) for _ in range(rng.randint(1, 3))]
        if what == "honest":
            before = world.broker.metrics.publishes_delayed
            request = ask(honest, *channels, persistent=True)
            assert all(each["successful"] for each in request.answer), "it is answered at once"
            assert world.broker.metrics.publishes_delayed == before
            published += channels
        elif what == "stranger":
            request = ask(stranger, *channels, persistent=True)
            were_delayed += request.is_held
            while request.is_held:
                world.commit()
            published += [each["channel"] for each in request.answer if each["successful"]]
        elif what == "take":
            receiver = rng.choice(full + others)
            heard.setdefault(receiver.session.name, []).extend(data(receiver.take()))
        else:
            world.commit()
    world.commit()
    letters = Counter((each.receiver, each.channel) for each in world.letters())
    for receiver in full + others:
        name, pattern = receiver.session.name, next(iter(receiver.session.subscriptions))
        while messages := receiver.take():
            heard.setdefault(name, []).extend(data(messages))
        wanted = Counter(each for each in published if pattern in ("/**", each))
        assert (
            Counter(heard.get(name, ())) + Counter({at: n for (who, at), n in letters.items() if who == name}) == wanted
        )
    assert not any(who.startswith("client/ann") for who, _ in letters)
    assert letters
    assert were_delayed
