"""An operator of some channels peeks into a queue: what has come in since their roles were checked is checked as well."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.admin.administration import Administration
from crewel.admin.call import Call
from crewel.admin.role_scopes import NotCovered
from crewel.admin.route import Ask, Route, admit
from crewel.admin.session_resource import SESSION_COMMANDS, SESSION_ROUTES
from crewel.admin.subject_resource import SUBJECT_COMMANDS, SUBJECT_ROUTES
from crewel.broker.session import Session
from crewel.security.grants import Role, Scope
from crewel.transports.forwarded import Client
from tests.broker.addressing.post import Clerk, one
from tests.broker.stored_world import Receiver, StoredWorld, store

pytestmark = pytest.mark.store

SOME = Scope(parts=((Role.VIEW, frozenset({"/orders"})),))
OF_SUBJECT, OF_SESSION = (
    next(each for each in routes if each.method == "GET" and each.path.endswith("/messages"))
    for routes in (SUBJECT_ROUTES, SESSION_ROUTES)
)
COMMANDS = {each.name: each for each in (*SUBJECT_COMMANDS, *SESSION_COMMANDS)}


class Desk:
    """An operator of `/orders`, and a publisher."""

    def __init__(self, world: StoredWorld) -> None:
        self.world, self.admin = world, Administration(world.broker)
        self.clerk = Clerk(world)

    def admitted(self, route: Route, **path: str) -> Ask:
        """A request that the operator's roles cover, as far as the queue goes now."""
        ask = Ask(self.admin, "ann", None, path, {}, Client(None, "", ""), SOME, None)
        self.world.wait(admit(route, ask))
        return ask

    def peeked(self, route: Route, ask: Ask) -> list[Any]:
        return [each["data"] for each in self.world.wait(route.handler(ask))["messages"]]

    def commanded(self, name: str, about: str, count: int, *sessions: Session) -> list[Any]:
        call = Call(self.admin, "ann", SOME, about, list(sessions), count)
        return [each["data"] for each in self.world.wait(COMMANDS[name].answer(call))]


@pytest.fixture
def desk(stored: StoredWorld) -> Desk:
    return Desk(stored)


def test_of_a_subject(desk: Desk) -> None:
    joe = Receiver(desk.world).started("/orders", name="joe/1")
    # It gets nothing: what one session of joe may have stays in the queue of the subject.
    desk.world.wait(desk.world.broker.mailboxes.dispatchers.hold(joe.session, "ann"))
    to_joe = one("client/joe", waits=True)
    desk.clerk.post("seen", to_joe, channel="/orders", subscribable=False)
    ask = desk.admitted(OF_SUBJECT, subject="joe")
    assert desk.peeked(OF_SUBJECT, ask) == ["seen"]
    desk.clerk.post("hidden", to_joe, channel="/secret", subscribable=False)
    with pytest.raises(NotCovered):
        desk.peeked(OF_SUBJECT, ask)
    assert desk.commanded("peekSubjectMessages", "client/joe", 1) == ["seen"]
    with pytest.raises(NotCovered):
        desk.commanded("peekSubjectMessages", "client/joe", 2)


def test_of_a_session(desk: Desk) -> None:
    joe = Receiver(desk.world).started("/orders", name="joe/1")
    store(desk.world, "/orders", "seen")
    ask = desk.admitted(OF_SESSION, subject="joe", number="1")
    assert desk.peeked(OF_SESSION, ask) == ["seen"]
    joe.subscribe("/secret")
    store(desk.world, "/secret", "hidden")
    with pytest.raises(NotCovered):
        desk.peeked(OF_SESSION, ask)
    assert desk.commanded("peekCallbackMessages", "client/joe/1", 1, joe.session) == ["seen"]
    with pytest.raises(NotCovered):
        desk.commanded("peekCallbackMessages", "client/joe/1", 2, joe.session)
