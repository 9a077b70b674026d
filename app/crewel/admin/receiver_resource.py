"""All receivers in one list, as operators look for trouble: sessions, subjects and consumer groups. A REST resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from crewel.admin.administration import Administration
from crewel.admin.client_connection import address_of, program_of, transport_of
from crewel.admin.example import Example
from crewel.admin.merges import Pages
from crewel.admin.operation import About
from crewel.admin.paging import sorted_page
from crewel.admin.receiver_condition import TROUBLES, Condition, Facts, causes_of, conditions_of, has_cause, trouble_of
from crewel.admin.receiver_facts import (
    add_what_the_store_says,
    at_rest,
    session_facts,
    shared_facts,
    standing,
    stopped_since,
)
from crewel.admin.request_fields import choice_field, flag_text, page_fields, text_field
from crewel.admin.route import Ask, Route
from crewel.admin.scope_coverage import covered, shows_failure
from crewel.admin.server_view import oldest_of
from crewel.broker.mailboxes.dispatcher_runner import DispatcherRunner
from crewel.broker.session import Session
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.event_loop import in_turns
from crewel.qos.names import group_of, group_queue, shown_name, subject_queue
from crewel.security.grants import Scope

_KINDS: Final = ("session", "subject", "group")
_EMPTY: Final = "EMPTY"
"""The state of a group or subject without sessions."""
MEMBERS: Final = {
    _EMPTY: Condition.UNATTENDED,
    DispatcherState.POLLING.value: Condition.AWAY,
    DispatcherState.ALIVE.value: Condition.CONNECTED,
}
"""How the members of a group or subject in this state stand."""
_STATES: Final = (*DispatcherState, _EMPTY)
_NOT_CONNECTED: Final = "none"
"""The transport of a session whose client is not connected, as the overview counts it."""
_TRANSPORTS: Final = ("websocket", "long-polling", "callback-polling", _NOT_CONNECTED)


class _Session:
    """A named session as the list has it. It is looked at when it is asked: of most in a long list, only the name is."""

    __slots__ = ("_dispatchers", "name", "session")

    kind, members, queue = "session", 1, ""

    def __init__(self, dispatchers: DispatcherRunner, session: Session) -> None:
        self._dispatchers, self.session = dispatchers, session
        self.name = session.name

    @property
    def state(self) -> str:
        return self._dispatchers.state(self.session).value

    @property
    def is_held(self) -> bool:
        return self.session.mailbox.view().holdback is not None

    @property
    def waiting(self) -> int:
        return self.session.mailbox.view().depth

    @property
    def waiting_bytes(self) -> int:
        return self.session.mailbox.view().size


class _Shared(NamedTuple):
    """A subject or group as the list has it."""

    kind: str
    name: str
    state: str
    waiting: int
    sessions: Collection[Session]
    queue: str
    """The name of its queue."""
    is_held: bool = False
    waiting_bytes: None = None
    """Only the store knows."""
    session: None = None

    @property
    def members(self) -> int:
        return len(self.sessions)


_Receiver = _Session | _Shared


def _facts(admin: Administration, receiver: _Receiver, scope: Scope) -> Facts:
    if receiver.session is not None:
        return session_facts(admin, receiver.session, covered(scope))
    return shared_facts(admin, receiver.queue, receiver.waiting, receiver.sessions)


def _trouble(ask: Ask, receiver: _Receiver) -> int:
    if receiver.session is not None and at_rest(ask.admin, receiver.session) is not None:
        return 0
    facts = _facts(ask.admin, receiver, ask.scope)
    return trouble_of(facts, causes_of(facts))


_ORDERS: Final[Mapping[str, Callable[[Ask, _Receiver], int | None]]] = {
    "name": lambda *_: None,
    "trouble": _trouble,
    "waiting": lambda _, receiver: receiver.waiting,
    "waitingBytes": lambda _, receiver: receiver.waiting_bytes,
    "oldest": lambda _, receiver: None if receiver.session is None else oldest_of(receiver.session),
}
"""By what the list is sorted."""


async def _list(ask: Ask) -> dict[str, Any]:
    fields, admin = ask.fields, ask.admin
    order = _ORDERS[fields.get("sort", "name")]
    page, following = await sorted_page(
        fields,
        _all(admin, fields.get("kind")),
        lambda each: (order(ask, each), each.name),
        lambda each: _is_wanted(ask, each) and _is_covered(ask, each),
    )
    views = [_view(admin, receiver, ask.scope) async for receiver in in_turns(page) if _is_there(receiver)]
    if ask.covers_all:  # the times of messages of any channel
        await add_what_the_store_says(admin, views)
    return {"receivers": views, "next": following, "unknownSince": admin.unknown_since}


async def _all(admin: Administration, kind: str | None) -> AsyncIterator[_Receiver]:
    if kind in (None, "session"):
        dispatchers = admin.dispatchers
        async for session in in_turns(admin.sessions()):
            if session.name:
                yield _Session(dispatchers, session)
    if kind in (None, "subject"):
        async for subject in in_turns(admin.destinations.awaited()):
            sessions = admin.sessions_of(subject)
            takes = DispatcherState.ALIVE if any(map(admin.takes, sessions)) else DispatcherState.POLLING
            state = takes.value if sessions else _EMPTY
            waiting = admin.waiting_for(subject)
            queue = subject_queue(subject)
            yield _Shared("subject", f"client/{subject}", state, waiting, sessions, queue)
    if kind in (None, "group"):
        async for group in in_turns(_groups(admin)):
            yield group


def _groups(admin: Administration) -> Iterator[_Shared]:
    """The groups with members, and those that have messages only."""
    states, queues = admin.groups.states(), admin.queues
    for group in states:
        name = f"{group.pattern} {group.name}"
        queue = group_queue(group.pattern, group.name)
        members = admin.groups.members(queue)
        state = DispatcherState.ALIVE if any(map(admin.takes, members)) else DispatcherState.POLLING
        yield _Shared("group", name, state.value, group.waiting, members, queue)
    with_members = {(group.pattern, group.name) for group in states}
    for queue in queues.names():
        of = group_of(queue)
        if of is not None and of not in with_members:
            yield _Shared("group", shown_name(queue), _EMPTY, queues.waiting(queue), (), queue)


def _is_there(receiver: _Receiver) -> bool:
    """Whether it is a receiver that has not ended meanwhile. The live feed of an operator's page is none."""
    session = receiver.session
    return session is None or (session.is_live and not (session.grants is not None and session.grants.is_feed))


def _is_covered(ask: Ask, receiver: _Receiver) -> bool:
    """Whether the operator sees it. A subject has messages of any channel."""
    if ask.covers_all:
        return True
    if receiver.kind == "group":
        return ask.covers(receiver.name.partition(" ")[0])
    return receiver.session is not None and ask.covers_session(receiver.session)


def _is_wanted(ask: Ask, receiver: _Receiver) -> bool:
    fields = ask.fields
    contains, state, held = (fields.get(name) for name in ("contains", "state", "held"))
    return (
        _is_there(receiver)
        and (contains is None or contains.lower() in receiver.name.lower())
        and (state is None or receiver.state == state)
        and (held is None or receiver.is_held is held)
        and _has_client(receiver.session, fields)
        and _stands(ask, receiver, fields.get("condition"), fields.get("cause"))
    )


def _stands(ask: Ask, receiver: _Receiver, condition: str | None, cause: str | None) -> bool:
    """Whether the receiver stands as asked for, for the cause that is asked for."""
    if condition is None and cause is None:
        return True
    facts = _facts(ask.admin, receiver, ask.scope)
    causes = causes_of(facts)
    stands = condition is None or condition in conditions_of(facts, causes)
    return stands and (cause is None or has_cause(causes, cause))


def _has_client(session: Session | None, fields: dict[str, Any]) -> bool:
    """Whether the client of the session is as asked for. A group or a subject has none."""
    transport, address, client = (fields.get(name) for name in ("transport", "address", "client"))
    if transport is None and address is None and client is None:
        return True
    return (
        session is not None
        and (transport is None or (transport_of(session) or _NOT_CONNECTED) == transport)
        and (address is None or address_of(session).startswith(address))
        and (client is None or client.lower() in program_of(session).lower())
    )


def _view(admin: Administration, receiver: _Receiver, scope: Scope) -> dict[str, Any]:
    session, facts = receiver.session, _facts(admin, receiver, scope)
    if receiver.session is None and covered(scope) is None:  # a message of another channel may have stopped a member
        facts.stopped_since = stopped_since(admin, facts, receiver.sessions)
    return {
        "kind": receiver.kind,
        "name": receiver.name,
        "state": receiver.state,
        "held": receiver.is_held,
        "waiting": receiver.waiting,
        "waitingBytes": receiver.waiting_bytes,
        "members": receiver.members,
        "maxEntries": facts.max_entries,
        "oldest": None if session is None else oldest_of(session),
        **standing(facts, causes_of(facts)),
        "lastFailure": None if session is None else last_failure(session, scope),
        "node": "" if session is None else admin.node,
        "transport": "" if session is None else transport_of(session) or _NOT_CONNECTED,
        "address": "" if session is None else address_of(session),
        "client": "" if session is None else program_of(session),
    }


def last_failure(session: Session, scope: Scope) -> dict[str, str] | None:
    """The last failure that the client reported, as REST tells it; None also if these roles do not show it."""
    failure = session.mailbox.view().failure
    if failure is None or not shows_failure(scope, session):
        return None
    code, reason = failure
    return {"code": code, "reason": reason}


RECEIVER_ROUTES: Final = (
    Route(
        "GET",
        "/receivers",
        "List the receivers: named sessions, subjects with messages that wait for a session, and consumer groups.",
        _list,
        "`receivers`, a list; `next`, the cursor of the next page, empty if this is the last; `unknownSince`: since when the"
        " store cannot be used (receivers that only it knows are missing then), or null. A receiver has `kind`,"
        " `name`, `state`, `held`, `waiting`, `waitingBytes` (null for subjects and groups), `members` (sessions),"
        " `maxEntries` (the bound of its queue), `oldest` (when its oldest stored message was published, or null), and"
        " `lastFailure`. `conditions`: how it stands, in plain words, the most urgent first; `cause`: why, in one text;"
        " `trouble`: a number, the larger, the more urgent. `causes`: each with `kind`, `level` (bad, warn, info), `text`,"
        " `advice` (what to do; empty if nothing is to be done) and, where known, `since`, `at`, `count`, `code`, `from`,"
        " `awaySince` (of a queue that is full, or soon), `usualMs`. `since`: that of the first cause, or null. For"
        " rejected messages (`rejects`) a cause has `count` of `of`, `rule`, `channels`, `perMinute`, and `othersTook`: how"
        " many of the newest `othersOf` other receivers acknowledged. For a queue that will be full soon (`filling`),"
        " it has `fullAt` and `perMinute`; for a receiver that falls behind (`slow`) or catches up (`recovering`), `oldest`,"
        " `perMinute` (how many messages more wait than a minute before) and `takenPerMinute`. A session also has `node`,"
        " `transport` (none while its client is away), `address` (of its client behind trusted proxies; while it is away, the"
        " last one) and `client` (its `User-Agent`).",
        Example({"sort": "trouble"}, {"receivers": [{"name": "client/bob/1", "cause": "database is down, by admin"}]}),
        query=(
            choice_field("kind", "Only those of this kind", _KINDS),
            choice_field("state", "Only those in this state", _STATES),
            choice_field("condition", "Only those that stand so", Condition),
            choice_field("cause", "Only those whose most urgent cause is this, as a finding counts them", TROUBLES),
            flag_text("held", "true: only those on hold; false: only the others."),
            text_field("contains", "Only those whose name contains this text."),
            choice_field("transport", "Only sessions that are connected by this transport", _TRANSPORTS),
            text_field("address", "Only sessions whose client has an address that begins with this text."),
            text_field("client", "Only sessions whose client has this text in its `User-Agent`."),
            choice_field("sort", "Sort them by this, numbers in descending order, the oldest first", _ORDERS),
            *page_fields("receivers"),
        ),
        about=About.MANY,
        merge=Pages("receivers", has_shared=True),
    ),
)
