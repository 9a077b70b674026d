"""Operators and the other nodes: what is about a session of another node is done there, and lists are joined.

The request is handed over as it came, with the operator and the role; the other node checks it and notes it in the audit as one
of its own. What it has been handed it hands to no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.command import demand, read_order
from crewel.admin.commands import failure_json
from crewel.admin.operation import PAGE, Level
from crewel.admin.paging import cursor
from crewel.admin.route import Ask, NotThere, Route, read
from crewel.errors import CrewelError, Refused, StoreError
from crewel.nodes.calls import OPERATOR
from crewel.nodes.membership import Membership
from crewel.qos.names import parse_name
from crewel.security.grants import Role
from crewel.storage import nodes
from crewel.transports.origins import Client

Sent = tuple[Mapping[str, str], bytes]
"""The query and the body of a request."""


class RefusedElsewhere(Refused):
    """Another node has refused what was handed to it, with this status."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status}::{code}", code, message)
        self.status = status


class Reach:
    """What one node asks of the others for its operators, and does for theirs."""

    def __init__(
        self,
        admin: Administration,
        membership: Membership,
        routes: Iterable[Route],
        status: Callable[[CrewelError, str], int],
    ) -> None:
        """`status` gives the HTTP status of a failure with this code."""
        self._admin = admin
        self._membership = membership
        self._routes = {(route.method, route.path): route for route in routes if _may_be_handed(route)}
        self._status = status
        membership.calls.answers[OPERATOR] = self._handed

    async def answer(self, route: Route, ask: Ask, sent: Sent) -> Any:
        """What the handler of the route answers, here or where the session is; or all nodes together."""
        others = self._membership.registry.others()
        tokens = [each.token for each in others]
        if route.path in _LISTS:
            return await self._join(route, ask, sent, tokens)
        if not tokens:
            return await route.handler(ask)
        if route.path.startswith(Level.SUBJECT.resource):
            return await self._everywhere(route, ask, sent, tokens)
        owner = await self._owner(self._session(route, ask))
        if owner not in tokens:
            return await route.handler(ask)
        return await self._hand_over(owner, route, ask, sent)

    # Of one session

    def _session(self, route: Route, ask: Ask) -> str:
        """The name of the session that the request is about; empty if it is about none."""
        if route.path.startswith(Level.SESSION.resource):
            name = parse_name(f"client/{ask.path['subject']}/{ask.path['number']}")
            return name.relative if name is not None and name.number else ""
        if (route.method, route.path) == ("POST", "/commands"):
            order = read_order(ask.fields.get("command"), self._admin.node)
            return order.name if order.level is Level.SESSION else ""
        return ""

    async def _owner(self, name: str) -> str:
        """The token of the node that has the session; empty if it is here, or nowhere. Raises StoreError."""
        if not name or self._admin.find(name) is not None:
            return ""
        store = self._admin.store
        return await nodes.owner(store, name, await nodes.tokens(store))

    async def _hand_over(self, token: str, route: Route, ask: Ask, sent: Sent) -> Any:
        """Let another node do it, and return its answer. Raises RefusedElsewhere, and StoreUnavailable."""
        query, body = sent
        question = {
            "who": ask.who,
            "role": int(ask.role),
            "expires": ask.expires,
            "method": route.method,
            "route": route.path,
            "path": dict(ask.path),
            "query": dict(query),
            "body": body.decode(),
        }
        told = await self._membership.calls.ask(token, OPERATOR, question)
        if "error" in told:
            error = told["error"]
            raise RefusedElsewhere(told["status"], error["errorCode"], error["message"])
        return told["answer"]

    async def _handed(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what an operator has asked another node for."""
        try:
            route = self._routes.get((asked["method"], asked["route"]))
            if route is None:
                raise NotThere(f"this node has no {asked['route']}: it is of another version")
            role = Role(asked["role"])
            demand(role, route.needs)
            fields = read(route, asked["query"], asked["body"].encode())
            ask = Ask(self._admin, asked["who"], None, asked["path"], fields, _NODE, role, asked["expires"])
            return {"answer": await route.handler(ask)}
        except CrewelError as error:
            told = failure_json(error)
            return {"error": told, "status": self._status(error, told["errorCode"])}
        except ValueError as error:
            return {"error": {"errorCode": "user.illegalArgument", "message": str(error)}, "status": 400}

    # Of a subject

    async def _everywhere(self, route: Route, ask: Ask, sent: Sent, tokens: list[str]) -> Any:
        """Do it at all nodes where the subject is known; what they answer, as one. An error of one node that has it is the
        answer, for the operator has to know."""
        answers: list[dict[str, Any]] = []
        missing: NotThere | RefusedElsewhere | None = None
        for each in (route.handler(ask), *(self._hand_over(token, route, ask, sent) for token in tokens)):
            try:
                answers.append(await each)
            except (NotThere, RefusedElsewhere) as error:
                if isinstance(error, RefusedElsewhere) and error.status != _NOT_THERE:
                    raise
                missing = missing or error
        if not answers:
            assert missing is not None
            raise missing
        return _as_one(answers)

    # Lists

    async def _join(self, route: Route, ask: Ask, sent: Sent, tokens: list[str]) -> Any:
        key, place, merge = _LISTS[route.path]
        asked = (self._hand_over(token, route, ask, sent) for token in tokens)
        own, *others = await asyncio.gather(route.handler(ask), *asked, return_exceptions=True)
        if isinstance(own, BaseException):
            raise own
        found = [own, *(each for each in others if not isinstance(each, BaseException))]
        rows = merge(chain.from_iterable(each[key] for each in found))
        sort = ask.fields.get("sort", "name")
        count = ask.fields.get("count", PAGE)
        page = nsmallest(count + 1, rows, key=lambda row: place(row, sort))
        has_more = len(page) > count or any(each["next"] for each in found)
        page = page[:count]
        joined = {**own, key: page, "next": cursor(place(page[-1], sort), sort) if has_more and page else ""}
        if "unnamed" in own:
            joined["unnamed"] = sum(each["unnamed"] for each in found)
        unreached = sum(isinstance(each, StoreError | Refused) for each in others)
        return {**joined, "unreached": unreached}


_NOT_THERE: Final = 404
_NODE: Final = Client(None, "", "")
"""The client of a request that another node has handed over."""


def _may_be_handed(route: Route) -> bool:
    """Whether a node does this for another one: what is about sessions and subjects."""
    levels = (Level.SESSION.resource, Level.SUBJECT.resource)
    return route.path.startswith(levels) or route.path == "/commands" or route.path in _LISTS


Row = dict[str, Any]


def _place_of_session(row: Row, sort: str) -> tuple[int, str]:
    return (0 if sort == "name" else -row[sort]), row["name"]


def _as_one(views: list[Row]) -> Row:
    """The answers of several nodes about one subject. What they have counted each for itself is added up."""
    one = dict(views[0])
    for view in views[1:]:
        for name, value in view.items():
            if name in ("queued", "maxEntries"):  # of the store, as far as each node knows
                one[name] = max(one[name], value)
            elif type(value) is bool:
                one[name] = one[name] or value
            elif type(value) is int:
                one[name] = one[name] + value
            elif name == "sessions":
                one[name] = sorted({*one[name], *value})
            elif name == "messages" and len(value) > len(one[name]):
                one[name] = value
    return one


def _subjects_as_one(rows: Iterable[Row]) -> list[Row]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["subject"], []).append(row)
    return [_as_one(views) for views in found.values()]


_LISTS: Final[
    Mapping[str, tuple[str, Callable[[Row, str], tuple[int, str]], Callable[[Iterable[Row]], Iterable[Row]]]]
] = {
    "/sessions": ("sessions", _place_of_session, lambda rows: rows),
    "/subjects": ("subjects", lambda row, _: (0, row["subject"]), _subjects_as_one),
}
"""The lists that are joined: the field that has the rows, the place of a row in the list, and what makes one row of several."""
