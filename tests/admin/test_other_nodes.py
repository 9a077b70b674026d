"""What an operator gets of several nodes if one of them does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.admin.rest import ROUTES
from crewel.admin.route import Ask, NotThere
from crewel.errors import StoreUnavailable
from crewel.security.grants import Role, Scope
from crewel.transports.forwarded import Client as Address
from tests.admin.test_subject_action import Node, nodes  # noqa: F401 - a fixture

[TIMELINE] = [route for route in ROUTES if route.path.endswith("{number}/timeline")]


def timeline(node: Node, number: int) -> Any:
    path = {"subject": "joe", "number": str(number)}
    ask = Ask(node.admin, "ann", None, path, {}, Address(None, "", ""), Scope(Role.VIEW), None)
    return asyncio.run(node.others_of.answer(TIMELINE, ask))


def test_what_a_node_lacks_that_all_have_answered_for_is_not_there(nodes: list[Node]) -> None:  # noqa: F811
    with pytest.raises(NotThere):
        timeline(nodes[0], 1)


def test_what_a_silent_node_may_have_is_not_said_to_be_missing(nodes: list[Node]) -> None:  # noqa: F811
    nodes[1].is_reached = False
    with pytest.raises(StoreUnavailable, match="there is no record of a session client/joe/1 here, and 1 other node"):
        timeline(nodes[0], 1)


def test_what_is_here_is_told_without_a_silent_node(nodes: list[Node]) -> None:  # noqa: F811
    nodes[0].joe(1, "/a")
    nodes[1].is_reached = False
    told = timeline(nodes[0], 1)
    assert (told["name"], told["unreached"]) == ("client/joe/1", 1)
