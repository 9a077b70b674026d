"""A subscribe or an unsubscribe of very many names is cut into turns of the loop; what it means is as ever."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from crewel.delivery.entry import Entry
from tests.broker.subscriptions.asking import Asking
from tests.work import calls

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


@pytest.mark.parametrize("asking", ["plain"], indirect=True)
def test_a_full_queue_is_looked_at_once_for_all_names(asking: Asking) -> None:
    client, world = asking.client, asking.world
    client.say("/meta/subscribe", subscription="/full")
    for number in range(300):
        world.broker.publish("/full", number)
    world.settle()
    assert len(client.session.mailbox._queue) == 300
    counted = calls(lambda: client.say("/meta/subscribe", subscription=NAMES, ext={"subscribe": {}}))
    assert client.session.subscriptions >= set(NAMES)
    assert counted[Entry.is_notice.fget.__qualname__] <= 4 * 300  # type: ignore[union-attr]


def test_what_a_session_wants_of_many_names_is_not_copied_for_each(asking: Asking) -> None:
    client, options = asking.client, asking.world.broker.subscriptions.options
    assert client.say("/meta/subscribe", subscription=NAMES, ext={"subscribe": {"local": False}})["successful"]
    wants = options.filtered[client.session]
    assert client.say("/meta/subscribe", subscription="/one", ext={"subscribe": {"local": False}})["successful"]
    assert client.say("/meta/unsubscribe", subscription="/one")["successful"]
    assert options.filtered[client.session] is wants
    assert set(wants) == set(NAMES)
    assert client.say("/meta/unsubscribe", subscription=NAMES)["successful"]
    assert client.session not in options.filtered
