"""A subscribe or an unsubscribe of very many names is cut into turns of the loop; what it means is as ever."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from tests.broker.subscriptions.asking import Asking

NAMES = [f"/many/{number}" for number in range(950)]


@pytest.mark.parametrize("ext", [{}, {"ext": {"subscribe": {}}}], ids=["plain", "with options"])
def test_many_names_are_subscribed_in_several_turns(
    asking: Asking, ext: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, world = asking.client, asking.world
    rests = []
    rest = world.broker.runtime.turns.rest

    def count(address: str | None) -> Awaitable[None]:
        rests.append(address)
        return rest(address)

    monkeypatch.setattr(world.broker.runtime.turns, "rest", count)
    reply = client.say("/meta/subscribe", subscription=NAMES, **ext)
    assert reply["successful"]
    assert len(rests) >= len(NAMES) // 100
    assert client.session.subscriptions == set(NAMES)
    world.broker.publish(NAMES[-1], 1)
    world.settle()
    assert client.say("/meta/unsubscribe", subscription=NAMES[:900])["successful"]
    assert client.session.subscriptions == set(NAMES[900:])


def test_a_bad_name_among_many_refuses_them_all(asking: Asking) -> None:
    reply = asking.client.say("/meta/subscribe", subscription=[*NAMES, "bad"])
    assert not reply["successful"]
    assert asking.client.session.subscriptions == set()
