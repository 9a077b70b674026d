"""The limits on subscriptions hold for requests that come together: each counts from the question to the store on."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.errors import StoreUnavailable
from crewel.security.policy import GRANTED
from tests.broker.addressing.post import login
from tests.broker.durability.test_reading_again import LatePolicy
from tests.broker.stored_world import MakeStored, StoredWorld
from tests.broker.subscriptions.asking import RULES
from tests.broker.world import Client, Request, World

SESSION = "429:limits.max_subscriptions_per_session:resource.exhaust"
ADDRESS = "429:limits.max_subscriptions_per_address:resource.exhaust"
OPTIONS = pytest.mark.parametrize("ext", [{}, {"subscribe": {}}], ids=["plain", "with options"])


def ask(client: Client, *channels: str, ext: dict[str, Any]) -> Request:
    """The request, which the store has not answered yet."""
    request = Request(client.browser)
    World.receive(client.world, request, client.message("/meta/subscribe", subscription=[*channels], ext=ext))
    return request


def errors(world: StoredWorld, *requests: Request) -> list[str | None]:
    world.settle()
    return [request.answer[0].get("error") for request in requests]


@OPTIONS
def test_requests_that_come_together_count(
    make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch, ext: dict[str, Any]
) -> None:
    world = make_stored("limits.max_subscriptions_per_session=3", "limits.max_subscriptions_per_address=4")
    joe, ann = login(world, "joe/1"), login(world, "ann/1")
    account, channels = joe.session.account, world.broker.addressing.channels
    assert account is not None
    requests = [ask(joe, f"/a/{number}", f"/b/{number}", ext=ext) for number in range(2)]
    requests += [ask(joe, "/c", ext=ext), ask(ann, "/a/0", ext=ext), ask(ann, "/d", ext=ext)]
    assert errors(world, *requests) == [None, SESSION, None, None, ADDRESS]
    assert joe.session.subscriptions == {"/a/0", "/b/0", "/c"}
    assert (account.subscriptions, channels.subscriptions, channels.asked) == (4, 4, {})
    assert ann.say("/meta/unsubscribe", subscription="/a/0")["successful"]
    with monkeypatch.context() as patch:
        patch.setattr(world.access.writing, "submit", lambda _, done, **__: done(StoreUnavailable("it is away")))
        assert errors(world, ask(ann, "/e", ext=ext)) == ["503::resource.unavailable"]
    assert (account.subscriptions, channels.subscriptions, channels.asked) == (3, 3, {})
    ask(ann, "/f", ext=ext)
    joe.say("/meta/disconnect")
    ann.say("/meta/disconnect")
    assert (account.subscriptions, channels.subscriptions, channels.asked) == (0, 0, {})


def test_requests_that_wait_for_a_history_count(make_stored: MakeStored) -> None:
    world = make_stored("limits.max_subscriptions_per_session=1", RULES)
    for name in ("/h/a", "/h/b"):
        world.wait(world.broker.publish_stored(name, 1))
    client = Client(world).joined()
    requests = [ask(client, name, ext={"subscribe": {}}) for name in ("/h/a", "/h/b")]
    assert errors(world, *requests) == [None, SESSION]
    assert client.session.subscriptions == {"/h/a"}


@OPTIONS
def test_requests_that_wait_for_the_policy_count(make_stored: MakeStored, ext: dict[str, Any]) -> None:
    world = make_stored("limits.max_subscriptions_per_session=1")
    client = Client(world).joined()
    answer = world.loop.create_future()
    world.broker.admission.guard.policy = LatePolicy("/b", answer)
    late, early = ask(client, "/b", ext=ext), ask(client, "/a", ext=ext)
    assert errors(world, early) == [None]
    answer.set_result(GRANTED)
    assert errors(world, late) == [SESSION]
    assert client.session.subscriptions == {"/a"}
