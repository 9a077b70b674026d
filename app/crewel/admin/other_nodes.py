"""Operators and the other nodes: what is about a session of another node is done there, and lists are joined.

The request is handed over as it came, with the operator and the role; the other node checks it and notes it in the audit as one
of its own. What it has been handed it hands to no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.command import Access, Command, Order, demand, read_order, without_node
from crewel.admin.commands import failure_json, row_of, run
from crewel.admin.everywhere import sessions_of
from crewel.admin.joined_overview import is_readable, joined
from crewel.admin.joined_receivers import is_wanted, joined_shared, shared_kinds
from crewel.admin.merges import At, AtAll, Pages, Parts, Row
from crewel.admin.operation import OPERATIONS, Level
from crewel.admin.overview_resource import overview, shown
from crewel.admin.paging import Place, cursor, place_in_order, sorted_page
from crewel.admin.receiver_condition import things
from crewel.admin.receiver_facts import add_what_the_store_says
from crewel.admin.request_fields import MAX_PAGE, PAGE
from crewel.admin.route import Ask, NotThere, Route, admit, answered, read
from crewel.admin.subject_action import SubjectAction, is_missing, require_everywhere
from crewel.bayeux.codec import encode
from crewel.errors import CrewelError, IllegalArgument, NodeFailed, Refused, StoreError, StoreUnavailable
from crewel.nodes.membership import Membership
from crewel.nodes.node_requests import OPERATOR, OperatorAnswer, OperatorQuestion
from crewel.qos.names import Name, parse_name
from crewel.security.grants import Role, Scope, scope_of
from crewel.storage import nodes, receivers
from crewel.transports.forwarded import Client


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
        # What is not of the node that is asked alone, and has a bound.
        handed = (each for each in routes if each.merge is not None and not each.is_stream)
        self._routes = {(each.method, each.path): each for each in handed}
        self._status = status
        membership.calls.serve(OPERATOR, self._handed)
        admin.everywhere = self

    async def answer(self, route: Route, ask: Ask) -> Any:
        """What the handler of the route answers, here or where the session is; or all nodes together, as the row says."""
        tokens = [each.token for each in self._membership.registry.others()]
        match route.merge:
            case Pages(has_shared=True) as pages if tokens:
                return await self._receivers(pages, route, ask, tokens)
            case Pages() as pages:
                return await self._page(pages, route, ask, tokens)
            case Parts() as parts if tokens:
                return await self._parts(parts, route, ask, tokens)
            case AtAll() as at_all if tokens or route.path in _ENDS_SESSIONS:
                return await self._at_all(at_all, route, ask, tokens)
            case At.OWNER if tokens:
                return await self._at_owner(route, ask, tokens)
        return await answered(route, ask)

    # Of one session

    async def _at_owner(self, route: Route, ask: Ask, tokens: list[str]) -> Any:
        name = parse_name(ask.session_name)
        owner = await self._owner(name.relative if name is not None and name.number else "")
        if owner not in tokens:
            return await answered(route, ask)
        if route.is_stream:
            await admit(route, ask)
            node = next(each.name for each in self._membership.registry.others() if each.token == owner)
            raise IllegalArgument("session", f"is at the node {node}: ask that one")
        return await self._hand_over(owner, route, ask)

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
        if not self._admin.access.has_store:
            return set()
        return {each.name for each in await receivers.find(self._admin.store, Name(subject), ())}

    async def _hand_over(self, token: str, route: Route, ask: Ask) -> Any:
        """Let another node do it, and return its answer. Raises RefusedElsewhere, and StoreUnavailable."""
        question = _question((route.method, route.path), ask.who, ask.scope)
        question = replace(
            question, expires=ask.expires, path=dict(ask.path), query=dict(ask.query), body=ask.body.decode()
        )
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
            ask = Ask(self._admin, asked.who, None, asked.path, fields, _NODE, scope, asked.expires, is_part=True)
            return OperatorAnswer(await answered(route, ask))
        except CrewelError as error:
            told = failure_json(error)
            return OperatorAnswer(error=told, status=self._status(error, told["errorCode"]))
        except ValueError as error:
            return OperatorAnswer(error={"errorCode": _ILLEGAL, "message": str(error)}, status=400)

    # Commands

    async def command(self, text: object, who: str, scope: Scope) -> dict[str, Any]:
        """Carry out a command wherever it has to be. If it is about a node or a session, that is the node named, or the
        session's. Any other is carried out here, and at all others where the answer of one is not the whole. Raises what `run`
        raises, and StoreUnavailable."""
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
        question = _question(("GET", _OVERVIEW), "another node", Scope(Role.VIEW))
        question = replace(question, query={"after": str(max(int(after_ms) - _BEATS_MS, 0))})
        tokens = [each.token for each in self._membership.registry.others()]
        asked = (_patiently(_PATIENCE_S, self._ask(token, question)) for token in tokens)
        (mine, *others), missing = await _all(overview(self._admin, after_ms), asked)
        known = list(filter(is_readable, others))
        missing["unreached"] += len(others) - len(known)
        return shown({**joined(mine, known), **missing} if tokens else mine)

    # Of a subject

    async def _at_all(self, merge: AtAll, route: Route, ask: Ask, tokens: list[str]) -> Any:
        if route.method != "GET":
            action = SubjectAction(ask.path["subject"], ask.who, ask.scope, route.needs, route.audited_as, ask.path)
            await self._require_everywhere(action, tokens)
        handed = (self._hand_over(token, route, ask) for token in tokens)
        async with self._all_sessions(route.path, ask.path["subject"], ask.who):
            return merge.as_one(_answers(await asyncio.gather(answered(route, ask), *handed, return_exceptions=True)))

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

    # Of parts

    async def _parts(self, merge: Parts, route: Route, ask: Ask, tokens: list[str]) -> Any:
        handed = (_patiently(merge.patience_s, self._hand_over(token, route, ask)) for token in tokens)
        found, missing = await _all(answered(route, replace(ask, is_part=True)), handed, may_lack=merge.may_lack)
        return {**merge.as_one(found, ask.fields), **missing}

    # Lists

    async def _receivers(self, merge: Pages, route: Route, ask: Ask, tokens: list[str]) -> Any:
        """A page of sessions, which are at one node each, and all subjects and groups, which all nodes have a part of."""
        fields = ask.fields
        kinds, kind = shared_kinds(fields), fields.get("kind")
        told: dict[str, Any] = {"receivers": [], "next": "", "unreached": 0, "failed": 0}
        if kind in (None, "session"):
            only = {"kind": "session"}
            told = await self._page(
                merge, route, replace(ask, fields=fields | only, query={**ask.query, **only}), tokens
            )
        shared = [await self._whole(route, ask, each, tokens) for each in kinds]
        sort = fields.get("sort", "name")
        rows = _wanted(told["receivers"], joined_shared(chain.from_iterable(found for found, _ in shared)), fields)
        page, following = await sorted_page(fields, rows, lambda row: (row[sort], row["name"]))
        if ask.covers_all:
            await add_what_the_store_says(self._admin, [row for row in page if row["kind"] != "session"])
        missing = {name: max(told[name], *(each[name] for _, each in shared), 0) for name in ("unreached", "failed")}
        following = following or told["next"]
        return {"receivers": page, "next": following, "unknownSince": self._admin.unknown_since, **missing}

    async def _whole(self, route: Route, ask: Ask, kind: str, tokens: list[str]) -> tuple[list[Row], dict[str, int]]:
        """All rows of this kind at all nodes that answer, and how many do not."""
        contains = {name: ask.fields[name] for name in ("contains",) if name in ask.fields}

        async def of(token: str) -> list[Row]:
            rows: list[Row] = []
            after = ""
            while True:
                asked = {"kind": kind, **contains, **({"after": after} if after else {})}
                page = replace(ask, fields={**asked, "count": MAX_PAGE}, query={**asked, "count": str(MAX_PAGE)})
                told = await (self._hand_over(token, route, page) if token else answered(route, page))
                rows += told["receivers"]
                after = told["next"]
                if not after:
                    return rows

        found, missing = await _all(of(""), map(of, tokens))
        return list(chain.from_iterable(found)), missing

    async def _page(self, merge: Pages, route: Route, ask: Ask, tokens: list[str]) -> Any:
        chosen = {name: ask.fields[name] for name in merge.joined if name in ask.fields}
        fields, query = (
            {name: value for name, value in of.items() if name not in chosen} for of in (ask.fields, ask.query)
        )
        asked = replace(ask, fields=fields, query=query)
        handed = (self._hand_over(token, route, asked) for token in tokens)
        found, missing = await _all(answered(route, asked), handed)
        sort, count, key = str(fields.get("sort", "name")), int(fields.get("count", PAGE)), merge.key

        def place(row: Row) -> Place:
            return place_in_order(sort, row.get(sort), row[merge.by])

        page = nsmallest(count + 1, _rows(merge, chain.from_iterable(each[key] for each in found)), key=place)
        has_more = len(page) > count or any(each["next"] for each in found)
        page = page[:count]
        shown = [row for row in page if all(row[name] == value for name, value in chosen.items())]
        sums = {name: sum(each[name] for each in found) for name in merge.sums}
        following = cursor(place(page[-1]), sort) if has_more and page else ""
        return {**found[0], key: shown, "next": following, **sums, **missing}


_COMMANDS: Final = ("POST", "/commands")
_ENDS_SESSIONS: Final = frozenset(
    name
    for each in OPERATIONS
    if each.level is Level.SUBJECT and each.key == "killed"
    for name in (each.route, each.command)
)
"""What ends all sessions of a subject: its routes and commands."""
_SUBJECT: Final = ("GET", Level.SUBJECT.resource)
_OVERVIEW: Final = "/overview"
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


async def _patiently(patience_s: float | None, asking: Awaitable[Any]) -> Any:
    async with asyncio.timeout(patience_s):
        return await asking


async def _all(
    own: Awaitable[Any], others: Iterable[Awaitable[Any]], *, may_lack: bool = False
) -> tuple[list[Any], dict[str, int]]:
    """What this node answers and the others, and how many have not. `may_lack`: that it is not there is an answer too, and an
    error of this node is not that of all if another one answers. Raises StoreUnavailable if one that does not answer may have
    what the others lack."""
    mine, *theirs = await asyncio.gather(own, *others, return_exceptions=True)
    found, missing = _told(each for each in theirs if not (may_lack and isinstance(each, Refused)))
    if not isinstance(mine, BaseException):
        return [mine, *found], missing
    if may_lack and found and isinstance(mine, CrewelError):
        return found, missing
    if may_lack and isinstance(mine, NotThere) and missing["unreached"]:
        silent = things(missing["unreached"], "other node")
        raise StoreUnavailable(f"{mine.message}, and {silent} did not answer: try again later")
    raise mine


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


def _rows(merge: Pages, rows: Iterable[Row]) -> Iterable[Row]:
    """The rows of a list, one of each thing."""
    if merge.as_one is None:
        return rows
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[merge.by], []).append(row)
    return map(merge.as_one, found.values())


async def _wanted(sessions: Iterable[Row], shared: AsyncIterator[Row], fields: Mapping[str, Any]) -> AsyncIterator[Row]:
    """The rows of a page of sessions, and those of the others that are wanted."""
    for row in sessions:
        yield row
    async for row in shared:
        if is_wanted(row, fields):
            yield row
