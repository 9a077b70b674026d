"""Sessions are counted at a glance where nothing can be wrong with them: as a closer look at each would count them."""

from __future__ import annotations

from collections import Counter

import pytest

from crewel.admin.administration import Administration
from crewel.admin.level import Level
from crewel.admin.receiver_condition import causes_of, conditions_of
from crewel.admin.receiver_facts import at_rest, session_facts
from tests.broker.stored_world import Receiver, StoredWorld, failed, store
from tests.broker.world import Client, let_go

pytestmark = pytest.mark.store

RETRIES = {"retries": 5, "delay": 60_000}


def many_kinds(world: StoredWorld, admin: Administration) -> None:
    """Sessions that are at rest, and others of which each has one thing only that keeps it from that."""
    absent = Receiver(world).started("/absent", name="absent/1")
    Receiver(world).started(name="away/1")
    Receiver(world).started(name="shut/1")
    let_go(world)
    refused = Client(world).handshake(ext={"ack": True, "session": {"name": "shut/1", "resume": "wrong"}})
    assert not refused["successful"]
    store(world, "/absent", 1)
    assert absent.session.mailbox.evicted
    Client(world).joined().connect()  # it has no name
    Receiver(world).started(name="rest/1").reconnect()
    held = Receiver(world).started(name="held/1")
    held.reconnect()
    world.wait(world.broker.mailboxes.dispatchers.hold(held.session, "ann"))
    Receiver(world).started("/queued", name="queued/1")
    sent = Receiver(world).started("/sent", name="sent/1", update=False)
    refusing = Receiver(world).started("/refused", name="refusing/1", dispatcher=RETRIES)
    Receiver(world).started(name="full/1")
    admin.turned_away.add("client/full/1", "deadMessage", 1)
    store(world, "/queued", 1)
    store(world, "/sent", 1)
    store(world, "/refused", 1)
    assert sent.take()
    refusing.take(*(failed(each, "communication.timeout") for each in refusing.take()))


def test_all_sessions_together_are_the_sum_of_each(stored: StoredWorld) -> None:
    admin = Administration(stored.broker)
    many_kinds(stored, admin)
    counted = stored.wait(admin.session_counter.take_anew())
    sessions = list(stored.broker.sessions.by_id.values())
    facts = [session_facts(admin, each) for each in sessions]
    causes = [causes_of(each) for each in facts]
    assert Counter(at_rest(admin, each) for each in sessions) == {None: len(sessions) - 3, "connected": 2, "away": 1}
    assert (counted.count, counted.unnamed, counted.waiting) == (len(sessions), 1, sum(each.waiting for each in facts))
    stands = Counter(word.value for each, some in zip(facts, causes, strict=True) for word in conditions_of(each, some))
    assert counted.conditions == stands
    assert stands == {"connected": 7, "away": 3, "on hold": 1, "waiting to retry": 1, "no subscriptions": 4}
    assert counted.states == Counter(admin.dispatchers.state(each).value for each in sessions)
    troubled = Counter(some[0].kind for some in causes if some and some[0].level is not Level.INFO)
    assert {kind: trouble.count for kind, trouble in counted.troubles.items()} == troubled
    assert troubled == {"held": 1, "retry": 1, "overflow": 1, "away": 1, "refused": 1}
