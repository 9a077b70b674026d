"""Shared queues where other nodes have sessions for them too, and messages that another node has sent to sessions here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crewel.bayeux.channel import parse
from crewel.delivery.records import PendingMessage
from crewel.qos.names import one_queue, subject_queue
from crewel.qos.update import Origin
from crewel.storage import shared_queue_store
from crewel.storage.script_step import Step
from tests.broker.addressing.post import Clerk, come, ids, letters, login, one, queue
from tests.broker.addressing.test_consumer_groups import member, publish
from tests.broker.stored_world import StoredWorld, failed
from tests.broker.world import OneOfSeveral

ANN = subject_queue("ann")
AWAY_S = 75.0
"""Longer than a client may be away, by the default settings."""


@pytest.fixture
def world(make_stored: Callable[..., StoredWorld]) -> StoredWorld:
    return make_stored("cluster.enabled=true")


@pytest.fixture
def announced(world: StoredWorld) -> list[str]:
    """The queues that the world announces to the others."""
    assert isinstance(world.cluster, OneOfSeveral)
    return world.cluster.announced_queues


class Line:
    """The way to the store: which leases were asked for, and what happens just before the next answer to one arrives."""

    def __init__(self, world: StoredWorld) -> None:
        self._submit = world.store.submit
        self.leases: list[tuple[Any, ...]] = []
        self.before_answer: list[Callable[[], None]] = []
        world.store.submit = self.submit  # type: ignore[method-assign]

    def submit(self, steps: Sequence[Step[Any]], done: Callable[[list[Any]], None]) -> None:
        leases = [step.arguments for step in steps if step.script == "lease_queued"]
        self.leases += leases

        def answered(answers: list[Any]) -> None:
            while leases and self.before_answer:
                self.before_answer.pop()()
            done(answers)

        self._submit(steps, answered)


def test_a_login_asks_for_no_lease_where_nothing_waits(world: StoredWorld) -> None:
    """To look at all sessions of a subject for each login would cost more with each of them."""
    line = Line(world)
    for number in range(10):
        come(login(world, f"ann/{number + 1}"))
    assert {arguments[4] for arguments in line.leases} >= {ANN}
    assert {arguments[7:] for arguments in line.leases} == {()}  # how much waits, and no member


def test_what_another_node_has_put_there_comes_with_a_login(world: StoredWorld) -> None:
    message_id = Clerk(world).post("hi", queue("ann"))
    world.broker.addressing.shared_queues._known.clear()  # as it is at a node that did not accept it
    assert ids(come(login(world, "ann/1"))) == [message_id]


def test_what_sessions_of_another_node_have_had_is_noticed(world: StoredWorld, announced: list[str]) -> None:
    Clerk(world).post("hi", queue("ann"))
    access, destinations = world.access, world.broker.addressing.destinations
    world.wait(world.store.run([shared_queue_store.discard(access.keys, access.token, ANN, None, access.facts_max)]))
    assert (destinations.waiting("ann"), announced) == (1, [ANN])
    world.sweep_after(2.0)
    world.settle()
    assert (destinations.waiting("ann"), set(announced)) == (0, {ANN})
    assert len(announced) > 1  # the first announcement might have been lost


def test_queues_without_a_session_here_take_turns(world: StoredWorld, announced: list[str]) -> None:
    """Each node asks about each of them: with very many subjects that are away, that would be most of what the store does."""
    come(login(world, "here/1", timeout=600_000))
    world.sweep_after(AWAY_S)
    clerk = Clerk(world)
    clerk.post("hi", one("here", waits=True))
    queues = [subject_queue(f"away{number}") for number in range(450)]
    for each in queues:
        clerk.post("hi", queue(each.removeprefix("client/")))
    line, looked_at = Line(world), list[set[str]]()
    for _ in range(3):
        line.leases.clear()
        announced.clear()
        world.sweep_after(1.1)
        looked_at.append({str(arguments[4]) for arguments in line.leases})
        assert looked_at[-1] == set(announced)
    here = one_queue("here")
    assert looked_at[:2] == [{here, *queues[:200]}, {here, *queues[200:400]}]
    assert looked_at[2] == {here, *queues[400:], *queues[:150]}


def test_what_is_announced_while_the_store_is_asked_is_asked_for_again(world: StoredWorld) -> None:
    """The step may have come before what the other node has put there."""
    come(login(world, "ann/1"))
    line, shared = Line(world), world.broker.addressing.shared_queues
    line.before_answer.append(lambda: shared.announced([ANN]))
    shared.refresh(ANN)
    world.settle()
    assert len(line.leases) == 2


def test_a_transient_message_for_a_session_that_has_ended_is_counted(world: StoredWorld) -> None:
    """The node that sent it has answered its publisher by then, and there is no session to make a dead letter for."""
    ann = login(world, "ann/1")
    channel, names = parse("/service/post"), ["client/ann/1", "client/ann/2"]
    assert channel is not None
    about = PendingMessage(channel=channel.name)
    body = b'{"channel":"/service/post","data":"hi"}'
    world.broker.addressing.destinations.from_another_node(
        channel, body, names, Origin("1", "1700000000000000000"), about, names[0]
    )
    assert [each["data"] for each in come(ann)] == ["hi"]
    assert world.broker.metrics.dropped == {"noLetter": 1}


def test_what_the_members_that_are_there_have_failed_waits_for_none_that_is_away(world: StoredWorld) -> None:
    """As on a single server: no other node lives that might have a member."""
    first = member(world, "joe/1", timeout=600_000)
    (message_id,) = publish(world, 1)
    (message,) = come(first)
    second = member(world, "joe/2", timeout=600_000)
    world.sweep_after(AWAY_S)
    assert second.session.mailbox.is_absent
    first.take(failed(message, "user.update.error"))
    assert letters(world) == [("client/joe/1", "user.update.error", message_id)]
