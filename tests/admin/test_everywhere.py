"""What jobs learn of sessions of other nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from crewel.admin.everywhere import Everywhere, drain_elsewhere, sessions_of, waiting_elsewhere
from crewel.admin.operation import About
from crewel.admin.role_scopes import NotCovered
from crewel.errors import IllegalArgument, StoreUnavailable
from crewel.security.grants import Role, Scope

pytestmark = pytest.mark.unit

ANN, JOE = "client/ann/1", "client/joe/1"
drained = partial(drain_elsewhere, scope=Scope(Role.OPERATE))
Asks = Callable[[Everywhere | None, str, str], Awaitable[int | None]]


class Nodes(Everywhere):
    """Two nodes: one is dead, and has these sessions."""

    def __init__(self, *left: str) -> None:
        self._left = left

    async def command(self, text: object, who: str, scope: Scope) -> dict[str, Any]:
        if JOE in str(text):
            raise IllegalArgument("command", "is about a session that is not here")
        return {"command": text, "result": [ANN] if "sessionList" in str(text) else 3}

    async def overview(self, after_ms: float) -> dict[str, Any]:
        return {}

    async def stored_of(self, subject: str) -> set[str]:
        return {*self._left}

    async def is_somewhere(self, name: str) -> bool:
        return name in self._left


@pytest.mark.parametrize("ask", [drained, waiting_elsewhere])
async def test_a_session_that_is_being_taken_over_is_asked_for_again(ask: Asks) -> None:
    with pytest.raises(StoreUnavailable):
        await ask(Nodes(JOE), JOE, "admin")


@pytest.mark.parametrize(("ask", "told"), [(drained, None), (waiting_elsewhere, 0)])
async def test_a_session_of_no_node_is_not_there(ask: Asks, told: int | None) -> None:
    for everywhere in (Nodes(), None):
        assert await ask(everywhere, JOE, "admin") == told


@pytest.mark.parametrize("ask", [drained, waiting_elsewhere])
async def test_a_session_of_a_living_node_answers(ask: Asks) -> None:
    assert await ask(Nodes(ANN), ANN, "admin") == 3


async def test_the_sessions_of_a_subject_are_all_there_or_none_is_told() -> None:
    assert await sessions_of(Nodes(ANN), "ann", "admin") == [ANN]
    with pytest.raises(StoreUnavailable):
        await sessions_of(Nodes(ANN, "client/ann/2"), "ann", "admin")


async def test_a_session_that_the_roles_do_not_cover_at_its_node_is_as_if_it_were_not_there() -> None:
    orders = Scope(parts=((Role.OPERATE, frozenset(("/orders/**",))),))

    class Covered(Nodes):
        async def command(self, text: object, who: str, scope: Scope) -> dict[str, Any]:
            assert scope == orders
            raise NotCovered(Role.OPERATE, About.SESSION)

    assert await drain_elsewhere(Covered(ANN), ANN, "admin", orders) is None
