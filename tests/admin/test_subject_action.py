"""Operators of some channels, and subjects with sessions at two nodes: a node acts only if the roles cover them at both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from crewel.admin.administration import Administration
from crewel.admin.operation import Level
from crewel.admin.other_nodes import OtherNodes
from crewel.admin.rest import ROUTES, _status
from crewel.admin.route import Ask, NotThere, Route
from crewel.errors import Refused, StoreUnavailable
from crewel.nodes.node_requests import OperatorAnswer, OperatorQuestion
from crewel.security.grants import Role, Scope, scope_of
from crewel.transports.forwarded import Client as Address
from tests.broker.world import Client, World

ORDERS = scope_of(["destroy:/orders/**", "view:/menu/*"])
ACTIONS = [route for route in ROUTES if route.path.startswith(Level.SUBJECT.resource) and route.method != "GET"]
COMMANDS = ("killClient", "blockClientAndResetConnections", "clearSubjectQueue", "blockClientLogin=true")


class Node:
    """A node that asks another one, whose answers need no network."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.admin = Administration(world.broker)
        self.others: list[Node] = []
        self.is_reached = True
        self.asked: list[OperatorQuestion] = []
        registry = SimpleNamespace(others=lambda: [SimpleNamespace(token="b", name="b") for _ in self.others])
        membership: Any = SimpleNamespace(registry=registry, calls=self)
        self.others_of = OtherNodes(self.admin, membership, ROUTES, _status)

    def serve(self, _: object, handle: Callable[[OperatorQuestion], Any]) -> None:
        self.handle = handle

    async def ask(self, _: str, __: object, question: OperatorQuestion) -> OperatorAnswer:
        (other,) = self.others
        if not other.is_reached:
            raise StoreUnavailable("the node b does not answer")
        other.asked.append(question)
        told: OperatorAnswer = await other.handle(question)
        return told

    def joe(self, number: int, *channels: str) -> Client:
        """A session of the subject joe."""
        client = Client(self.world)
        assert client.handshake(ext={"session": {"name": f"joe/{number}"}})["successful"]
        client.subscribe(*channels)
        return client

    def do(self, route: Route, scope: Scope = ORDERS) -> Any:
        ask = Ask(self.admin, "ann", None, {"subject": "joe"}, {}, Address(None, "", ""), scope, None)
        return asyncio.run(self.others_of.answer(route, ask))

    def command(self, name: str, scope: Scope = ORDERS) -> Any:
        return asyncio.run(self.others_of.command(f"__cmd:client/joe/?{name}", "ann", scope))

    @property
    def is_blocked(self) -> bool:
        return "joe" in self.world.broker.addressing.names.blocked


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    first, second = Node(World()), Node(World())
    first.others.append(second)
    yield [first, second]
    for each in (first, second):
        each.world.close()


def assert_refused(act: Callable[[], object], nodes: list[Node], *sessions: Client) -> None:
    with pytest.raises(Refused) as refused:
        act()
    assert refused.value.code == "user.security.authorization.notAuthorized"
    assert "needs the role" in refused.value.message
    assert all(each.is_known for each in sessions)
    assert not any(node.is_blocked for node in nodes)


@pytest.mark.parametrize("uncovered", [0, 1])
@pytest.mark.parametrize("route", ACTIONS, ids=lambda route: f"{route.method} {route.path}")
def test_no_node_acts_on_a_subject_that_is_not_covered_at_one(
    nodes: list[Node], route: Route, uncovered: int, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = [node.joe(number, "/orders/new") for number, node in enumerate(nodes, 1)]
    sessions.append(nodes[uncovered].joe(3, "/menu/today"))
    with caplog.at_level(logging.INFO):
        assert_refused(lambda: nodes[0].do(route), nodes, *sessions)
    assert f"refused to an operator: {route.audited_as}" in caplog.text
    assert not [each for each in nodes[1].asked if each.method != "GET"]


@pytest.mark.parametrize("uncovered", [0, 1])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_acts_on_a_subject_that_is_not_covered_at_one_node(
    nodes: list[Node], name: str, uncovered: int
) -> None:
    sessions = [node.joe(number, "/orders/new") for number, node in enumerate(nodes, 1)]
    sessions.append(nodes[uncovered].joe(3, "/menu/today"))
    assert_refused(lambda: nodes[0].command(name), nodes, *sessions)


def test_a_role_that_is_too_low_at_the_other_node_does_not_count(nodes: list[Node]) -> None:
    scope = scope_of(["destroy:/orders/**", "operate:/menu/*"])
    sessions = [nodes[0].joe(1, "/orders/new"), nodes[1].joe(2, "/menu/today")]
    assert_refused(lambda: nodes[0].command("killClient", scope), nodes, *sessions)
    assert nodes[0].command("blockClientLogin=true", scope)["result"] == "OK"
    assert all(node.is_blocked for node in nodes)


def test_all_nodes_act_if_the_role_covers_the_subject_at_all(nodes: list[Node]) -> None:
    sessions = [node.joe(number, "/orders/new") for number, node in enumerate(nodes, 1)]
    assert nodes[0].command("killClient")["result"] == 2
    assert not any(each.is_known for each in sessions)


@pytest.mark.parametrize("at", [0, 1])
def test_a_node_without_a_session_of_the_subject_keeps_no_other_from_acting(nodes: list[Node], at: int) -> None:
    session = nodes[at].joe(1, "/orders/new")
    (kill,) = [route for route in ACTIONS if route.path.endswith("/kill")]
    assert nodes[0].do(kill)["killed"] == 1
    assert not session.is_known


def test_nothing_happens_if_a_node_does_not_answer(nodes: list[Node]) -> None:
    session = nodes[0].joe(1, "/orders/new")
    nodes[1].is_reached = False
    with pytest.raises(StoreUnavailable):
        nodes[0].command("killClient")
    assert session.is_known


def test_an_operator_of_all_channels_asks_no_node_beforehand(nodes: list[Node]) -> None:
    sessions = [nodes[0].joe(1, "/orders/new"), nodes[1].joe(2, "/menu/today")]
    assert nodes[0].command("killClient", Scope(Role.DESTROY))["result"] == 2
    assert [each.method for each in nodes[1].asked] == ["POST"]
    assert not any(each.is_known for each in sessions)


BLOCK = next(route for route in ACTIONS if route.path.endswith("/block"))
BLOCK_COMMANDS = [name for name in COMMANDS if name.startswith("block")]


def test_a_subject_without_sessions_is_blocked_at_all_nodes(nodes: list[Node]) -> None:
    assert nodes[0].do(BLOCK, Scope(Role.DESTROY)) == {"name": "client/joe", "killed": 0}
    assert all(node.is_blocked for node in nodes)


@pytest.mark.parametrize("name", BLOCK_COMMANDS)
def test_a_command_blocks_a_subject_without_sessions_at_all_nodes(nodes: list[Node], name: str) -> None:
    nodes[0].command(name, Scope(Role.DESTROY))
    assert all(node.is_blocked for node in nodes)


def test_an_operator_of_some_channels_blocks_no_subject_without_sessions(nodes: list[Node]) -> None:
    with pytest.raises(NotThere):
        nodes[0].do(BLOCK)
    assert not any(node.is_blocked for node in nodes)


@pytest.mark.parametrize("name", BLOCK_COMMANDS)
def test_no_command_of_such_an_operator_blocks_one(nodes: list[Node], name: str) -> None:
    with pytest.raises(Refused) as refused:
        nodes[0].command(name)
    assert "which has no session and no messages here" in refused.value.message
    assert not any(node.is_blocked for node in nodes)
