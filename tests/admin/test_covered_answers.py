"""What an operator of some channels gets is the same, byte for byte, whatever there is that the role does not cover.

Two servers have the same orders and menus. One also has a payroll, which the operator may not see; the other has harmless
things in its place where a session or a queue is hidden on both. Each route of the OpenAPI document is asked at both, also for
ids and names of the payroll: there these are ids and names of nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from crewel.admin.rest import ROUTES
from crewel.admin.route import document
from tests.admin.company import CASES, IN_ORDER, Ask, Stage, company, first_difference, neutral
from tests.functional.wire import close_connections
from tests.store_process import looks

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Stage]]:
    """The server without the payroll, and the one with it."""
    without, with_ = (
        company(tmp_path_factory.mktemp(name), has_payroll=name == "with") for name in ("without", "with")
    )
    yield without, with_
    close_connections()
    for stage in (without, with_):
        stage.server.end_well()


def test_every_route_of_the_description_has_its_requests() -> None:
    """A new route comes with the requests that an operator of some channels may try."""
    described = document(ROUTES, "")["paths"]
    assert CASES.keys() == {
        f"{method.upper()} {path.removeprefix('/admin/api')}"
        for path, methods in described.items()
        for method in methods
    }


@pytest.mark.parametrize("route", IN_ORDER)
def test_an_operator_of_some_channels_gets_the_same(stages: tuple[Stage, Stage], route: str) -> None:
    without, with_ = stages
    method = route.partition(" ")[0]
    found = 0
    for here, there in zip(
        CASES[route](without.names, with_.hidden), CASES[route](with_.names, with_.hidden), strict=True
    ):
        after: list[Any] = ["", ""]
        while after[0] is not None:
            answers, following = answered(method, ((without, here), (with_, there)), after)
            if answers[0] != answers[1] and method == "GET":
                # One server is some seconds older. What changes with age is the same again when the other is as old.
                for _ in looks(CATCHING_UP_S):
                    answers, following = answered(method, ((without, here), (with_, there)), after)
                    if answers[0] == answers[1]:
                        break
            assert answers[0] == answers[1], (there, first_difference(*map(str, answers)))
            after = following
            found += answers[0][0] == 200
    assert found or route.split()[1] in CLOSED, route


CATCHING_UP_S = 20.0
"""Seconds, more than it takes to make the second server."""


def answered(
    method: str, asks: tuple[tuple[Stage, Ask], ...], after: list[Any]
) -> tuple[list[tuple[int, str]], list[Any]]:
    """The answer of each server to its request for the page that comes after this place, and the places after these pages."""
    answers, following = [], []
    for (stage, ask), place in zip(asks, after, strict=True):
        path = f"{ask.path}{'&' if '?' in ask.path else '?'}after={place}" if place else ask.path
        status, body = stage.ask(method, path, ask.body)
        assert status in (200, 400, 401, 403, 404), (ask, body)
        assert b"salary" not in body or "salary" in f"{ask.path}{ask.body}", (ask, body)
        answers.append((status, neutral(body.decode(), stage.names)))
        is_page = method == "GET" and status == 200 and b'"next":"' in body  # or a text that has an example of one
        following.append((json.loads(body).get("next") if is_page else None) or None)
    return answers, following


CLOSED = {
    "/sign-in", "/feed", "/overview", "/timeline", "/nodes", "/alerts", "/settings", "/audit", "/audit/export",
    "/dead-letters/accounts",
    "/sessions/{subject}/{number}/trace", *(f"/subjects/{{subject}}/{verb}" for verb in ("kill", "block", "unblock")),
    *(f"/sessions/{{subject}}/{{number}}/{verb}" for verb in ("skip", "drain", "clear", "kill", "ping")),
    "/topics/{channel}", "/history/{channel}", "/subjects/{subject}/messages", "/dead-letters/{id}/edit",
    *(f"/jobs/{{job}}/{verb}" for verb in ("pause", "resume", "stop")),
}  # fmt: skip
"""Routes of which a method has no request here that succeeds."""
