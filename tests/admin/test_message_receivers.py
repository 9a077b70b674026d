"""For whom a message waits, and why it does not wait for others, as operators see it without the facts of its end."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from crewel.admin import message_resource
from crewel.admin.administration import Administration
from crewel.admin.message_resource import MESSAGE_ROUTES
from crewel.admin.route import Ask, NotThere
from crewel.security.grants import Role, Scope
from crewel.transports.forwarded import Client
from tests.broker.stored_world import Receiver, StoredWorld, store

pytestmark = pytest.mark.store


def shown(world: StoredWorld, message: str) -> dict[str, Any]:
    """What the page of the message shows."""
    ask = Ask(
        Administration(world.broker),
        "an operator",
        None,
        {"message": message},
        {},
        Client(None, "", ""),
        Scope(Role.VIEW),
        None,
    )
    answer: dict[str, Any] = world.wait(MESSAGE_ROUTES[0].handler(ask))
    return answer


def told(world: StoredWorld, message: str) -> tuple[dict[str, str], dict[str, str]]:
    """The states of the message by receiver, and for whom it is not, with the reason."""
    answer = shown(world, message)
    states = {each["receiver"]: each["state"] for each in answer["receivers"]}
    return states, {each["receiver"]: each["why"] for each in answer["notFor"]}


def test_a_message_waits_for_a_session_that_has_unsubscribed(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    Receiver(stored).started("/b", name="ann/1")
    (message,) = store(stored, "/a", 1)
    assert told(stored, message) == ({"client/joe/1": "waiting"}, {})
    assert joe.say("/meta/unsubscribe", subscription="/a")["successful"]
    stored.commit()
    assert told(stored, message) == ({"client/joe/1": "waiting"}, {})


def test_a_message_that_waits_tells_why(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    (message,) = store(stored, "/a", 1)
    (receiver,) = shown(stored, message)["receivers"]
    assert receiver["why"] == "ALIVE"
    stored.wait(stored.broker.mailboxes.dispatchers.hold(joe.session, "admin", code="user.lunch", reason="no cook"))
    (receiver,) = shown(stored, message)["receivers"]
    assert receiver["why"] == "on hold by admin: user.lunch: no cook"


def test_a_message_in_the_inbox_waits_and_no_longer_when_it_has_been_taken(stored: StoredWorld) -> None:
    joe = Receiver(stored).started(name="joe/1")
    publish = {"destination": [{"to": "client/joe/1"}], "subscribable": False, "persistent": True}
    reply = Receiver(stored).started().say("/a", data=1, ext={"publish": publish})
    message = reply["ext"]["publish"]["id"]
    stored.commit()
    assert told(stored, message) == ({"client/joe/1": "waiting"}, {})
    joe.take()
    joe.take()
    stored.commit()
    assert told(stored, message) == ({"client/joe/1": "acknowledged"}, {})


def test_a_session_that_has_had_the_message_has_not_subscribed_later(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    Receiver(stored).started("/a", name="ann/1")
    (message,) = store(stored, "/a", 1)
    Receiver(stored).started("/a", name="eve/1")
    stored.commit()
    joe.take()
    joe.take()  # it has acknowledged the message, and no commit has told the store
    unknown = {"client/ann/1": "waiting", "client/joe/1": "ended; how is not recorded"}
    assert told(stored, message) == (unknown, {"client/eve/1": "subscribed later"})
    stored.commit()
    known = {"client/ann/1": "waiting", "client/joe/1": "acknowledged"}
    assert told(stored, message) == (known, {"client/eve/1": "subscribed later"})


def test_after_a_restart_a_session_that_had_the_message_has_not_subscribed_later(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1", persistent=True)
    Receiver(stored).started("/a", name="ann/1", persistent=True)
    (message,) = store(stored, "/a", 1)
    joe.take()
    joe.take()
    stored.commit()
    stored.wait(stored.store.reader.delete(stored.store.keys.facts))  # they have been trimmed
    stored.crash()
    later = StoredWorld(prefix=stored.prefix)
    later.settle()
    unknown = {"client/ann/1": "waiting", "client/joe/1": "ended; how is not recorded"}
    assert told(later, message) == (unknown, {})
    later.close()


def test_the_collector_never_looks_at_the_receivers_of_a_message(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    Receiver(stored).started("/a", name="joe/1")
    (message,) = store(stored, "/a", 1)
    sort, was_on = message_resource._shown, []

    async def watched(*args: Any) -> Any:
        was_on.append(gc.isenabled())
        return await sort(*args)

    monkeypatch.setattr(message_resource, "_shown", watched)
    assert gc.isenabled()
    told(stored, message)
    assert (was_on, gc.isenabled()) == ([False], True)
    with pytest.raises(NotThere):
        told(stored, "1")
    assert gc.isenabled()
