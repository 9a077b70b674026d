"""Operators and the other nodes: what is about a session of another node is done there, and lists are joined.

The request is handed over as it came, with the operator and the role; the other node checks it and notes it in the audit as one
of its own. What it has been handed it hands to no other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.command import Access, Command, Order, demand, read_order, without_node
from crewel.admin.commands import failure_json, row_of, run
from crewel.admin.everywhere import sessions_of
from crewel.admin.group_resource import GROUP, joined_group
from crewel.admin.joined_overview import is_readable, joined
from crewel.admin.joined_receivers import is_wanted, joined_shared, shared_kinds
from crewel.admin.operation import OPERATIONS, Level
from crewel.admin.overview_resource import overview, shown
from crewel.admin.paging import Place, cursor, first, place_in_order, place_of
from crewel.admin.prefix_resource import PREFIXES, joined_prefixes, prefixes_page
from crewel.admin.receiver_facts import add_what_the_store_says
from crewel.admin.request_fields import MAX_PAGE, PAGE
from crewel.admin.route import Ask, NotThere, Route, admit, answered, read
from crewel.admin.server_timeline import together
from crewel.admin.subject_action import SubjectAction, is_missing, require_everywhere
from crewel.admin.timeline_resource import TIMELINE
from crewel.bayeux.codec import encode
from crewel.broker.topic_view import GroupState, joined_groups
from crewel.errors import CrewelError, IllegalArgument, NodeFailed, Refused, StoreError
from crewel.nodes.membership import Membership
from crewel.nodes.node_requests import OPERATOR, OperatorAnswer, OperatorQuestion
from crewel.qos.names import Name, parse_name
from crewel.security.grants import Role, Scope, role_of, scope_of
from crewel.storage import nodes, receivers
from crewel.topics import State, word_of
from crewel.topics import joined as joined_state
from crewel.transports.forwarded import Client

Sent = tuple[Mapping[str, str], bytes]
"""The query and the body of a request."""


class RefusedElsewhere(Refused):
    """Another node has refused what was handed to it, with this status."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status}::{code}", code, message)
        self.status = status


class OtherNodes:
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
        membership.calls.serve(OPERATOR, self._handed)
        admin.everywhere = self

    async def answer(self, route: Route, ask: Ask, sent: Sent) -> Any:
        """What the handler of the route answers, here or where the session is; or all nodes together."""
        others = self._membership.registry.others()
        tokens = [each.token for each in others]
        if route.path == PREFIXES and tokens:
            return await self._prefixes(route, ask, sent, tokens)
        if route.path == _RECEIVERS and tokens:
            return await self._receivers(route, ask, sent, tokens)
        if route.path in _LISTS:
            return await self._join(route, ask, sent, tokens)
        if not tokens and route.path not in _ENDS_SESSIONS:
            return await answered(route, ask)
        if route.path == _OVERVIEW:
            return await self.overview(ask.fields.get("after", 0))
        if route.path == TIMELINE:
            return await self._timeline(route, ask, sent, tokens)
        if route.path in _MERGED:
            return await self._merged(route, ask, sent, tokens)
        if (route.method, route.path) == _COMMANDS:
            return await self.command(ask.fields.get("command"), ask.who, ask.scope)
        if route.path.startswith(Level.SUBJECT.resource):
            return await self._everywhere(route, ask, sent, tokens)
        owner = await self._owner(self._session(route, ask))
        if owner not in tokens:
            return await answered(route, ask)
        if route.is_stream:
            await admit(route, ask)
            name = next(each.name for each in others if each.token == owner)
            raise IllegalArgument("session", f"is at the node {name}: ask that one")
        return await self._hand_over(owner, route, ask, sent)

    # Of one session

    def _session(self, route: Route, ask: Ask) -> str:
        """The name of the session that the request is about; empty if it is about none."""
        if route.path.startswith(Level.SESSION.resource):
            name = parse_name(ask.session_name)
            return name.relative if name is not None and name.number else ""
        return ""

    async def _owner(self, name: str) -> str:
        """The token of the node that has the session; empty if it is here, or nowhere. Raises StoreError."""
        if not name or self._admin.find(name) is not None:
            return ""
        store = self._admin.store
        return await nodes.owner(store, name, await nodes.tokens(store))

    async def is_somewhere(self, name: str) -> bool:
        """Whether the session is at a node, by what the store says. Raises StoreError."""
        return self._admin.find(name) is not None or await self._owner(name) != ""

    async def stored_of(self, subject: str) -> set[str]:
        """The names of the sessions of the subject that the store has, if there is one. Raises StoreError."""
        if not self._admin.broker.runtime.access.has_store:
            return set()
        return {each.name for each in await receivers.find(self._admin.store, Name(subject), ())}

    async def _hand_over(self, token: str, route: Route, ask: Ask, sent: Sent) -> Any:
        """Let another node do it, and return its answer. Raises RefusedElsewhere, and StoreUnavailable."""
        query, body = sent
        question = _question((route.method, route.path), ask.who, ask.scope)
        question = replace(question, expires=ask.expires, path=dict(ask.path), query=dict(query), body=body.decode())
        return await self._ask(token, question)

    async def _ask(self, token: str, question: OperatorQuestion) -> Any:
        told = await self._membership.calls.ask(token, OPERATOR, question)
        if told.error is not None:
            raise RefusedElsewhere(told.status, told.error["errorCode"], told.error["message"])
        return told.answer

    async def _handed(self, asked: OperatorQuestion) -> OperatorAnswer:
        """Do what an operator has asked another node for."""
        try:
            route = self._routes.get((asked.method, asked.route))
            if route is None:
                raise NotThere(f"this node has no {asked.route}: its version differs")
            scope = Scope(Role(asked.role)) if isinstance(asked.role, int) else scope_of(asked.role)
            demand(scope.highest, route.needs)
            fields = read(route, asked.query, asked.body.encode())
            ask = Ask(self._admin, asked.who, None, asked.path, fields, _NODE, scope, asked.expires)
            return OperatorAnswer(await answered(route, ask))
        except CrewelError as error:
            told = failure_json(error)
            return OperatorAnswer(error=told, status=self._status(error, told["errorCode"]))
        except ValueError as error:
            return OperatorAnswer(error={"errorCode": _ILLEGAL, "message": str(error)}, status=400)

    # Commands

    async def command(self, text: object, who: str, scope: Scope) -> dict[str, Any]:
        """Carry out a command wherever it has to be: at the node that it names, if it is about a node; at that of the session;
        else here, and at all others where the answer of one is not the whole. Raises what `run` raises, and
        StoreUnavailable."""
        admin, registry = self._admin, self._membership.registry
        others = {each.name: each.token for each in registry.others()}
        tokens = [each.token for each in registry.others()]  # several nodes may have one name
        named, plain = without_node(text)
        if named not in ("", admin.node, *others):
            return await run(admin, text, who, scope)
        order = read_order(plain, admin.node)
        if not others and order.property not in _ENDS_SESSIONS:
            return await run(admin, text, who, scope)
        if order.level is Level.NODE and named:
            if named == admin.node:
                return await run(admin, plain, who, scope)
            return await self._command_at(others[named], plain, who, scope)
        if order.level is Level.SESSION:
            owner = await self._owner(order.name)
            if owner in tokens:
                return await self._command_at(owner, plain, who, scope)
        row = row_of(order)
        if order.level is Level.SESSION or row.join is None:
            return await run(admin, plain, who, scope)
        return await self._command_everywhere(order, row, str(plain), tokens, who, scope)

    async def _command_at(self, token: str, text: object, who: str, scope: Scope) -> dict[str, Any]:
        body = encode({"command": text}).decode()
        answer: dict[str, Any] = await self._ask(token, replace(_question(_COMMANDS, who, scope), body=body))
        return answer

    async def _command_everywhere(
        self, order: Order, row: Command, text: str, tokens: list[str], who: str, scope: Scope
    ) -> dict[str, Any]:
        writes = row.write is not None and order.values is not None
        if order.level is Level.SUBJECT and (writes or row.access is Access.OPERATE):
            subject, command = order.name.partition("/")[2], {"command": order.absolute(self._admin.node)}
            action = SubjectAction(subject, who, scope, row.needs(writes=writes), "command", command)
            await self._require_everywhere(action, tokens)
        asked = f"{text.partition('?')[0]}?{row.asks}" if row.asks else text
        async with self._all_sessions(order.property, order.name.partition("/")[2], who):
            answers = await asyncio.gather(
                run(self._admin, asked, who, scope),
                *(self._command_at(token, asked, who, scope) for token in tokens),
                return_exceptions=True,
            )
            results = [each["result"] for each in _answers(answers)]
        assert row.join is not None
        return {"command": order.absolute(self._admin.node), "result": "OK" if writes else row.join(results)}

    # Of all nodes

    async def overview(self, after_ms: float) -> dict[str, Any]:
        """The overview of this node and the others that answer, as one."""
        return await self._with_others(after_ms, overview(self._admin, after_ms))

    async def _with_others(self, after_ms: float, own: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        question = _question(("GET", _OVERVIEW), "another node", Scope(Role.VIEW))
        question = replace(question, query={"after": str(max(int(after_ms) - _BEATS_MS, 0))})
        tokens = [each.token for each in self._membership.registry.others()]
        asked = (self._ask_briefly(token, question) for token in tokens)
        mine, *others = await asyncio.gather(own, *asked, return_exceptions=True)
        if isinstance(mine, BaseException):
            raise mine
        found, missing = _told(others)
        known = list(filter(is_readable, found))
        missing["unreached"] += len(found) - len(known)
        return shown({**joined(mine, known), **missing} if others else mine)

    async def _ask_briefly(self, token: str, question: OperatorQuestion) -> Any:
        return await self._briefly(self._ask(token, question))

    @staticmethod
    async def _briefly(asking: Awaitable[Any]) -> Any:
        async with asyncio.timeout(_PATIENCE_S):
            return await asking

    async def _timeline(self, route: Route, ask: Ask, sent: Sent, tokens: list[str]) -> Any:
        """What happened to all nodes that answer. The store has what has ended; each node knows what lasts there."""
        handed = (self._briefly(self._hand_over(token, route, ask, sent)) for token in tokens)
        others = await asyncio.gather(*handed, return_exceptions=True)
        events, is_whole = await self._admin.server_timeline.events()
        found, missing = _told(others)
        for each in found:
            events, is_whole = [*events, *each["events"]], is_whole or each["whole"]
        return {"events": together(events), "whole": is_whole, **missing}

    # Of a subject

    async def _everywhere(self, route: Route, ask: Ask, sent: Sent, tokens: list[str]) -> Any:
        """Do it at all nodes where the subject is known; what they answer, as one. An error of one node that has it is the
        answer, for the operator has to know."""
        if route.method != "GET":
            action = SubjectAction(ask.path["subject"], ask.who, ask.scope, route.needs, route.audited_as, ask.path)
            await self._require_everywhere(action, tokens)
        handed = (self._hand_over(token, route, ask, sent) for token in tokens)
        async with self._all_sessions(route.path, ask.path["subject"], ask.who):
            return _as_one(_answers(await asyncio.gather(answered(route, ask), *handed, return_exceptions=True)))

    @asynccontextmanager
    async def _all_sessions(self, action: str, subject: str, who: str) -> AsyncIterator[None]:
        """Do what the route or command of this name does. If it ends all sessions of the subject, and a node takes some of them
        over at the moment, raises StoreUnavailable after that."""
        unfinished: StoreError | None = None
        if action in _ENDS_SESSIONS:
            try:
                if await self.stored_of(subject):  # others are taken over by no node
                    await sessions_of(self, subject, who)
            except StoreError as error:
                unfinished = error
        try:
            yield
        finally:
            if unfinished is not None:
                raise unfinished

    async def _require_everywhere(self, action: SubjectAction, tokens: list[str]) -> None:
        """Raise Refused if the operator's roles do not cover the subject at all nodes."""
        question = replace(_question(_SUBJECT, action.who, action.scope), path={"subject": action.subject})
        await require_everywhere(self._admin, action, (self._ask(token, question) for token in tokens))

    # Of a message, or of a group

    async def _merged(self, route: Route, ask: Ask, sent: Sent, tokens: list[str]) -> Any:
        """What the nodes that answer know of it, as one."""
        handed = (self._hand_over(token, route, ask, sent) for token in tokens)
        own, *others = await asyncio.gather(answered(route, ask), *handed, return_exceptions=True)
        # That it is not there is an answer.
        found, missing = _told(each for each in others if not isinstance(each, Refused))
        if not isinstance(own, BaseException):
            found.insert(0, own)
        elif not found or not isinstance(own, CrewelError):
            raise own
        return {**_MERGED[route.path](found), **missing}

    # Lists

    async def _receivers(self, route: Route, ask: Ask, sent: Sent, tokens: list[str]) -> Any:
        """A page of sessions, which are at one node each, and all subjects and groups, which all nodes have a part of."""
        fields, query = ask.fields, sent[0]
        kinds, kind = shared_kinds(fields), fields.get("kind")
        told: dict[str, Any] = {"receivers": [], "next": "", "unreached": 0, "failed": 0}
        if kind in (None, "session"):
            only = replace(ask, fields={**fields, "kind": "session"})
            told = await self._join(route, only, ({**query, "kind": "session"}, sent[1]), tokens)
        shared = [await self._whole(route, ask, each, tokens) for each in kinds]
        sort, count = fields.get("sort", "name"), fields.get("count", PAGE)
        after = place_of(fields.get("after"), sort)
        rows = joined_shared(chain.from_iterable(found for found, _ in shared))
        page, has_more = await first(_placed(told["receivers"], rows, fields, after, sort), count)
        if ask.covers_all:
            await add_what_the_store_says(self._admin, [row for _, row in page if row["kind"] != "session"])
        missing = {name: max(told[name], *(each[name] for _, each in shared), 0) for name in ("unreached", "failed")}
        following = cursor(page[-1][0], sort) if (has_more or told["next"]) and page else ""
        rows_told = [row for _, row in page]
        return {"receivers": rows_told, "next": following, "unknownSince": self._admin.unknown_since, **missing}

    async def _prefixes(self, route: Route, ask: Ask, sent: Sent, tokens: list[str]) -> Any:
        """A page of prefixes with the topics of all nodes that answer, each counted once."""
        asked = (self._hand_over(token, route, ask, sent) for token in tokens)
        own = prefixes_page(ask, with_shared=True, names_topics=True)
        mine, *others = await asyncio.gather(own, *asked, return_exceptions=True)
        if isinstance(mine, BaseException):
            raise mine
        found, missing = _told(others)
        return {**joined_prefixes([mine, *found], ask.fields.get("count", PAGE)), **missing}

    async def _whole(self, route: Route, ask: Ask, kind: str, tokens: list[str]) -> tuple[list[Row], dict[str, int]]:
        """All rows of this kind at all nodes that answer, and how many do not."""
        contains = {name: ask.fields[name] for name in ("contains",) if name in ask.fields}

        async def of(token: str) -> list[Row]:
            rows: list[Row] = []
            after = ""
            while True:
                asked = {"kind": kind, **contains, **({"after": after} if after else {})}
                if token:
                    told = await self._hand_over(token, route, ask, ({**asked, "count": str(MAX_PAGE)}, b""))
                else:
                    told = await answered(route, replace(ask, fields={**asked, "count": MAX_PAGE}))
                rows += told["receivers"]
                after = told["next"]
                if not after:
                    return rows

        own, *others = await asyncio.gather(of(""), *map(of, tokens), return_exceptions=True)
        if isinstance(own, BaseException):
            raise own
        found, missing = _told(others)
        return [*own, *chain.from_iterable(found)], missing

    async def _join(self, route: Route, ask: Ask, sent: Sent, tokens: list[str]) -> Any:
        key, place, merge = _LISTS[route.path]
        chosen = {}
        if route.path in _JOINED_STATE:
            chosen = {name: ask.fields.pop(name) for name in _JOINED if name in ask.fields}
            sent = {name: value for name, value in sent[0].items() if name not in chosen}, sent[1]
        asked = (self._hand_over(token, route, ask, sent) for token in tokens)
        own, *others = await asyncio.gather(answered(route, ask), *asked, return_exceptions=True)
        if isinstance(own, BaseException):
            raise own
        found, missing = _told(others)
        found.insert(0, own)
        rows = merge(chain.from_iterable(each[key] for each in found))
        sort = ask.fields.get("sort", "name")
        count = ask.fields.get("count", PAGE)
        page = nsmallest(count + 1, rows, key=lambda row: place(row, sort))
        has_more = len(page) > count or any(each["next"] for each in found)
        page = page[:count]
        shown = [row for row in page if all(row[name] == value for name, value in chosen.items())]
        joined = {**own, key: shown, "next": cursor(place(page[-1], sort), sort) if has_more and page else ""}
        if "unnamed" in own:
            joined["unnamed"] = sum(each["unnamed"] for each in found)
        return {**joined, **missing}


_COMMANDS: Final = ("POST", "/commands")
_ENDS_SESSIONS: Final = frozenset(
    name
    for each in OPERATIONS
    if each.level is Level.SUBJECT and each.key == "killed"
    for name in (each.route, each.command)
)
"""What ends all sessions of a subject: its routes and commands."""
_SUBJECT: Final = ("GET", Level.SUBJECT.resource)
_MESSAGE: Final = "/messages/{message}"
_OVERVIEW: Final = "/overview"
_RECEIVERS: Final = "/receivers"
_PATIENCE_S: Final = 2.0
"""How long an overview waits for the other nodes: a node that hangs must not hide what is wrong at the others."""
_BEATS_MS: Final = 10_000
"""How much earlier than this node's the samples of others may be that belong to the same moment."""
_ILLEGAL: Final = "user.illegalArgument"
_NODE: Final = Client(None, "", "")
"""The client of a request that another node has handed over."""


def _question(route: tuple[str, str], who: str, scope: Scope) -> OperatorQuestion:
    """What another node is asked, without fields."""
    role = scope.as_claim() if scope.parts else int(scope.highest or 0)
    return OperatorQuestion(*route, who, role, None, {}, {}, "")


def _may_be_handed(route: Route) -> bool:
    """Whether a node does this for another one: what is about sessions and subjects, and has a bound."""
    levels = (Level.SESSION.resource, Level.SUBJECT.resource)
    one_of = ("/commands", _OVERVIEW, TIMELINE, PREFIXES, *_MERGED, *_LISTS)
    return not route.is_stream and (route.path.startswith(levels) or route.path in one_of)


Row = dict[str, Any]


def _told(answers: Iterable[Any]) -> tuple[list[Any], dict[str, int]]:
    """What the other nodes have answered, and how many have not: `unreached`, `failed` of them by a fault of the program. A
    fault of this node is raised: it is not the silence of another one."""
    found, unreached, failed = [], 0, 0
    for each in answers:
        if not isinstance(each, BaseException):
            found.append(each)
        elif isinstance(each, StoreError | Refused | TimeoutError):
            unreached += 1
            failed += isinstance(each, NodeFailed)
        else:
            raise each
    return found, {"unreached": unreached, "failed": failed}


def _answers(answers: Iterable[Any]) -> list[Any]:
    """What the nodes have answered that have what the question is about. An error of one of them is the answer of all, for the
    operator has to know; that it is nowhere is one too."""
    found, missing = [], []
    for each in answers:
        if not isinstance(each, BaseException):
            found.append(each)
        elif is_missing(each):
            missing.append(each)
        else:
            raise each
    if not found:
        raise missing[0]
    return found


def _as_one(views: list[Row]) -> Row:
    """The answers of several nodes about one subject. What they have counted each for itself is added up."""
    one = dict(views[0])
    for view in views[1:]:
        for name, value in view.items():
            if name in ("queued", "maxEntries"):  # of the store, as far as each node knows
                one[name] = max(one[name], value)
            elif name == "may":
                one[name] = min(one[name], value, key=lambda word: role_of(word) or 0)
            elif type(value) is bool:
                one[name] = one[name] or value
            elif type(value) is int:
                one[name] = one[name] + value
            elif name == "sessions":
                one[name] = sorted({*one[name], *value})
            elif name in ("messages", "causes") and len(value) > len(one[name]):
                one[name] = value
    return one


def _message_as_one(views: list[Row]) -> Row:
    """What several nodes have of one message. All read the same facts, and each has sessions of its own to ask."""
    one = dict(next((view for view in views if view["qos"] is not None), views[0]))
    one["channel"] = next((view["channel"] for view in views if view["channel"]), "")
    receivers: dict[str, Row] = {}
    for row in chain.from_iterable(view["receivers"] for view in views):
        known = receivers.get(row["receiver"])
        receivers[row["receiver"]] = row if known is None else max(known, row, key=len)  # that of its node says more
    not_for = {row["receiver"]: row for view in views for row in view["notFor"] if row["receiver"] not in receivers}
    one["receivers"] = [receivers[name] for name in sorted(receivers)]
    one["notFor"] = list(not_for.values())
    one["states"] = dict(Counter(row["state"] for row in one["receivers"]))
    for state, number in chain.from_iterable(view.get("states", {}).items() for view in views):
        one["states"][state] = max(one["states"].get(state, 0), number)  # of very many, not all are in the lists
    return one


def _by(key: str, merge: Callable[[list[Row]], Row], rows: Iterable[Row]) -> list[Row]:
    """One row for all those with the same value of this field."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return [merge(views) for views in found.values()]


def _topic_as_one(views: list[Row]) -> Row:
    """What several nodes have of one topic."""
    known = max(views, key=lambda view: int(view["newest"] or 0))  # it has seen more of the history than the others
    groups = joined_groups([GroupState(**group) for group in view["groups"]] for view in views)
    state, subscribers = (
        joined_state(State(view["state"]) for view in views),
        sum(view["subscribers"] for view in views),
    )
    return {
        **known,
        "state": state.value,
        "condition": word_of(state, is_heard=bool(subscribers or groups)),
        "queued": sum(view["queued"] for view in views),
        "subscribers": subscribers,
        "exactSubscribers": sum(view["exactSubscribers"] for view in views),
        "groups": [group._asdict() for group in groups],
    }


def _place_in_order(row: Row, sort: str) -> Place:
    return place_in_order(sort, row[sort], row["name"])


async def _placed(
    sessions: Iterable[Row], shared: AsyncIterator[Row], fields: Mapping[str, Any], after: Place | None, sort: str
) -> AsyncIterator[tuple[Place, Row]]:
    """The rows of a page of sessions, and those of the others that are wanted, with their places."""
    for row in sessions:
        yield _place_in_order(row, sort), row
    async for row in shared:
        if is_wanted(row, fields, after, sort):
            yield _place_in_order(row, sort), row


_LISTS: Final[
    Mapping[str, tuple[str, Callable[[Row, str], tuple[int, str]], Callable[[Iterable[Row]], Iterable[Row]]]]
] = {
    "/sessions": ("sessions", _place_in_order, lambda rows: rows),
    "/topics": ("topics", lambda row, _: (0, row["channel"]), partial(_by, "channel", _topic_as_one)),
    "/receivers": ("receivers", _place_in_order, lambda rows: rows),
    "/subjects": ("subjects", lambda row, _: (0, row["subject"]), partial(_by, "subject", _as_one)),
}
"""The lists that are joined: the field that has the rows, the place of a row in the list, and what makes one row of several."""
_MERGED: Final[Mapping[str, Callable[[list[Row]], Row]]] = {_MESSAGE: _message_as_one, GROUP: joined_group}
"""What each node knows a part of, and what makes one of the parts."""
_JOINED_STATE: Final = frozenset({"/topics"})
"""Those whose state follows from what all nodes have: rows are chosen by `_JOINED` when they are joined."""
_JOINED: Final = ("state", "condition")
