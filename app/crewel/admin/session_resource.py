"""Sessions, as operators see and treat them: their commands and their REST resources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import itemgetter
from time import time
from typing import Any, Final

from aiohttp import web

from crewel.admin.administration import Administration
from crewel.admin.call import Call
from crewel.admin.command import COUNT, FLAG, Access, Command, operation_commands
from crewel.admin.example import Example
from crewel.admin.merges import At, Pages, Parts, Row
from crewel.admin.operation import About, Level, Operation
from crewel.admin.paging import sorted_page
from crewel.admin.receiver_condition import Condition
from crewel.admin.receiver_facts import add_what_the_store_says, standing_of
from crewel.admin.rejected_shapes import rejected_shape
from crewel.admin.request_fields import PAGE, choice_field, count_text, flag_text, number_text, page_fields, text_field
from crewel.admin.role_scopes import seen
from crewel.admin.route import Ask, NotThere, Route, operation_routes, send_lines
from crewel.admin.scope_coverage import covered
from crewel.admin.session_view import session_view, subject_of
from crewel.admin.trace import trace
from crewel.broker.mailboxes.dispatcher_runner import DispatcherRunner
from crewel.broker.session import Session
from crewel.broker.subscriptions.history_reader import as_delivered
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.errors import StoreError
from crewel.event_loop import in_turns
from crewel.qos.names import parse_name
from crewel.security.grants import Role
from crewel.storage.session_pace import pace_of
from crewel.times import format_timestamp

# Commands


def login_date(call: Call) -> str:
    """Since when this server has the first of these sessions."""
    return format_timestamp(call.admin.clock_ms(min(session.added_at for session in call.sessions)))


def uptime(call: Call) -> int:
    """Seconds since then."""
    return int(call.admin.now() - min(session.added_at for session in call.sessions))


def _subscription_dump(call: Call) -> dict[str, list[dict[str, Any]]]:
    """What the session is subscribed to, and what each subscription asks for beyond all messages of its channel."""
    plain: dict[str, list[dict[str, Any]]] = {channel: [] for channel in sorted(call.session.subscriptions)}
    return plain | call.admin.subscriptions.options.as_json(call.session)


def _polling_since(call: Call) -> str:
    """The date since which nothing goes to the client, which is gone or has failed; empty while it is there."""
    session, dispatchers = call.session, call.admin.dispatchers
    if dispatchers.state(session) is DispatcherState.ALIVE:
        return ""
    view = session.mailbox.view()
    if view.waits_until > 0:
        since = view.waits_until - dispatchers.rules(session).pause(view.failures)
    else:
        since = dispatchers.away_since(session)
    return format_timestamp(call.admin.clock_ms(since))


def _forget_failure(call: Call) -> str:
    call.session.mailbox.forget_failure()
    return "OK"


def _or_without(value: float | None) -> float:
    return value or -1  # as xmlBlaster says that there is none


def _without_wait(holdback: dict[str, Any] | None) -> dict[str, Any] | None:
    return holdback and {name: value for name, value in holdback.items() if name != "waits"}


async def _set_active(call: Call) -> None:
    if call.value:
        await call.admin.dispatchers.activate(call.session)
    else:
        await call.admin.dispatchers.hold(call.session, call.who, code="", reason="")


async def _peek(call: Call) -> list[dict[str, Any]]:
    """The oldest so many, as their receiver would get them. Raises NotCovered and StoreError."""
    entries = seen(call.scope, About.SESSION, await call.admin.dispatchers.peek(call.session, call.value))
    return call.admin.messages(entry.fields for entry in entries)


_read = partial(Command, Level.SESSION, Access.READ)
_write = partial(Command, Level.SESSION, Access.WRITE)
_operate = partial(Command, Level.SESSION, Access.OPERATE)


def _field(name: str, meaning: str, field: str, shown: Callable[[Any], Any] = lambda value: value) -> Command:
    """A property that is this field of the session as REST tells it, in this form."""
    return _read(name, meaning, lambda c: shown(session_view(c.admin, c.session, c.scope)[field]))


SESSION_COMMANDS: Final = (
    _field("id", "Its public name.", "id"),
    _field("loginName", "Its subject.", "subject"),
    _read("publicSessionId", "Its number.", lambda c: int(c.name.rpartition("/")[2])),
    _field("qos", "The options of its login, as in effect.", "qos"),
    _field("callbackConfigured", "Whether a connect is held or a socket is open.", "transport", bool),
    _field("connectionState", "ALIVE, POLLING or DEAD.", "state"),
    _read("loginDate", "When the session came to this server.", login_date),
    _read("uptime", "Seconds since `loginDate`.", uptime),
    _field(
        "sessionTimeoutExpireDate",
        "When it ends if its client does not connect; empty while a connect is held.",
        "expires",
        lambda expires: "" if expires is None else format_timestamp(expires),
    ),
    _read(
        "pollingSinceDate",
        "Start of the absence or failure of its client; empty while it is ALIVE.",
        _polling_since,
    ),
    _field("stalled", "Whether delivery pauses after a failure of its client.", "retry", bool),
    _field(
        "lastCallbackException",
        "The last failure that its client reported; empty if none.",
        "lastFailure",
        lambda failure: ": ".join((failure or {}).values()),
    ),
    _operate("clearLastCallbackException", "Clears that failure.", _forget_failure, role=Role.OPERATE),
    _read(
        "numCallbackExceptions",
        "How often in a row its client has failed; any OK resets it to 0.",
        lambda c: c.session.mailbox.view().failures,
    ),
    _field(
        "pingRoundTripDelay", "Round trip of its last ping in milliseconds; -1 without a ping.", "pingMs", _or_without
    ),
    _field("cbQueueNumMsgs", "Messages in its queue, including those sent and not acknowledged.", "waiting"),
    _field("cbQueueNumBytes", "Bytes of these messages.", "waitingBytes"),
    _field("cbQueueMaxMsgs", "Maximum number of messages in its queue.", "maxEntries"),
    _field("cbQueueMaxBytes", "Maximum bytes of its queue; -1: no limit.", "maxBytes", _or_without),
    _read(
        "peekCallbackMessages", "The oldest messages of the queue, which keeps them.", _peek, COUNT._replace(default=1)
    ),
    _operate(
        "removeFromCallbackQueue",
        "Drops the oldest messages without dead letters; returns the number.",
        lambda c: c.admin.taken_out(c.session, "cleared", c.who, c.admin.dispatchers.remove(c.session, c.value)),
        COUNT,
    ),
    _write(
        "dispatcherActive",
        "Whether it receives messages. false puts it on hold; true activates it, with the held message in its old"
        " place.",
        lambda c: c.session.mailbox.view().holdback is None,
        FLAG,
        _set_active,
    ),
    _field("holdback", "Who put it on hold, and why; null if it is not on hold.", "holdback", _without_wait),
    *operation_commands(Level.SESSION),
    _operate(
        "killSession",
        "Ends it; the queue of a named session becomes dead letters. Its client, if it is connected, is asked not to"
        " reconnect.",
        lambda c: c.admin.kill(c.sessions, c.who),
    ),
    _field("numSubscriptions", "Its subscriptions.", "subscriptions", len),
    _field("subscribedTopics", "Channels of its subscriptions.", "subscriptions"),
    _field("subscriptions", "These channels on one line.", "subscriptions", ",".join),
    _read(
        "subscriptionDump",
        "Its subscriptions with their options: groups, filters and more.",
        _subscription_dump,
    ),
)


# Resources

_UNKNOWN: Final = {404: "There is no such session."}
_VIEW: Final = (
    "The session: name, state, conditions, causes, active, holdback, waiting, waitingBytes, subscriptions and more."
)
_TRACE_S: Final = 60
_MOST_TRACE_S: Final = 3600
_PATIENCE_S: Final = 2.0
"""How long the other nodes are waited for: the page asks often, and one that hangs must not hide what the others tell."""


_ORDERS: Final[Mapping[str, Callable[[Session], int]]] = {
    "name": lambda _: 0,
    "waiting": lambda session: session.mailbox.view().depth,
    "waitingBytes": lambda session: session.mailbox.view().size,
}
"""By what a list is sorted."""


async def _list(ask: Ask) -> dict[str, Any]:
    """A page of the sessions in their order. Answers `next`, which is the cursor, empty on the last page."""
    fields, dispatchers = ask.fields, ask.admin.dispatchers
    order, unnamed = _ORDERS[fields.get("sort", "name")], 0

    async def named() -> AsyncIterator[Session]:
        nonlocal unnamed
        async for session in in_turns(ask.admin.sessions()):
            if session.name:
                yield session
            else:
                unnamed += 1

    def is_wanted(session: Session) -> bool:
        return _is_wanted(dispatchers, session, fields) and ask.covers_session(session) and _stands(ask, session)

    page, following = await sorted_page(fields, named(), lambda each: (order(each), each.name), is_wanted)
    views = [session_view(ask.admin, session, ask.scope) async for session in in_turns(page) if session.is_live]
    if ask.covers_all:
        await add_what_the_store_says(ask.admin, views)
    return {
        "sessions": views,
        "next": following,
        "unnamed": unnamed if ask.covers_all else 0,
        "unknownSince": ask.admin.unknown_since,
    }


def _is_wanted(dispatchers: DispatcherRunner, session: Session, fields: dict[str, Any]) -> bool:
    contains, subject, state, active = (fields.get(name) for name in ("contains", "subject", "state", "active"))
    return (
        session.is_live
        and (contains is None or contains.lower() in session.name.lower())
        and (subject is None or subject_of(session) == subject)
        and (state is None or dispatchers.state(session) == state)
        and (active is None or (session.mailbox.view().holdback is None) is active)
    )


def _stands(ask: Ask, session: Session) -> bool:
    """Whether the session stands as asked for, as far as the operator sees that."""
    condition = ask.fields.get("condition")
    return condition is None or condition in standing_of(ask.admin, session, covered(ask.scope))["conditions"]


def _found(ask: Ask) -> Session:
    """The session that the path names."""
    name = parse_name(ask.session_name)
    session = ask.admin.find(name.relative) if name is not None and name.number else None
    if session is None:
        raise NotThere(f"there is no session {ask.session_name} here")
    return session


async def _show(ask: Ask) -> dict[str, Any]:
    session = _found(ask)
    view = session_view(ask.admin, session, ask.scope)
    view["may"] = ask.may(lambda role: ask.covers_session(session, role))
    if ask.covers_all:  # what it has done is that of any channel
        await add_what_the_store_says(ask.admin, [view])
        await _add_shape(ask.admin, view)
    if session.durable is not None:
        view["pace"] = await _pace(ask.admin, session) if ask.covers_all else None
    return view


async def _add_shape(admin: Administration, view: dict[str, Any]) -> None:
    """Say of rejected messages which other fields they have: `shape` of that cause."""
    for cause in view["causes"]:
        if cause["kind"] == "rejects":
            with suppress(StoreError):  # all else comes from memory
                cause["shape"] = await rejected_shape(admin, view["name"], cause["since"])


async def _pace(admin: Administration, session: Session) -> dict[str, Any] | None:
    """How many messages it has acknowledged lately; null if the store does not say."""
    try:
        found = await pace_of(admin.store, session.name, int(time() * 1000))
    except StoreError:
        return None  # its other figures come from memory
    return {"count": found.messages, "withinMs": found.within_ms, "last": found.last_ms}


async def _messages(ask: Ask) -> dict[str, Any]:
    """The oldest messages of the queue. Looking changes nothing."""
    session, dispatchers = _found(ask), ask.admin.dispatchers
    entries = seen(ask.scope, About.SESSION, await dispatchers.peek(session, ask.fields.get("count", PAGE)))
    return {
        "name": session.name,
        "waiting": session.mailbox.view().depth,
        "messages": ask.admin.messages([as_delivered(entry, with_origin=True) async for entry in in_turns(entries)]),
    }


async def _timeline(ask: Ask) -> dict[str, Any]:
    """What happened to the session, also to one that has ended lately."""
    name = ask.session_name
    timelines, session = ask.admin.timelines, ask.admin.find(name)
    told = timelines.of(name) if ask.covers_all else timelines.of(name, ask.covers)
    if told is None and session is None:
        raise NotThere(f"there is no record of a session {name} here")
    events, dropped = told or ([], 0)
    since = None if session is None else int(ask.admin.clock_ms(session.added_at))
    shown = events[: ask.fields.get("count", PAGE)]
    return {"name": name, "since": since, "events": shown, "dropped": dropped if ask.covers_all else None}


def _joined_timelines(parts: Sequence[Row], fields: Mapping[str, Any]) -> Row:
    """What all nodes remember of one session: it is at one of them, and what it did at others, or before it ended, is there."""
    events = sorted(chain.from_iterable(part["events"] for part in parts), key=itemgetter("at"), reverse=True)
    dropped = [part["dropped"] for part in parts]
    return {
        "name": parts[0]["name"],
        "since": next((part["since"] for part in parts if part["since"] is not None), None),
        "events": events[: fields.get("count", PAGE)],
        "dropped": None if None in dropped else sum(dropped),
    }


async def _trace(ask: Ask) -> web.StreamResponse:
    session, seconds = _found(ask), ask.fields.get("seconds", _TRACE_S)
    with ask.action("trace session", about=session.name):
        return await send_lines(ask, trace(session, seconds, ask.admin.masks))


async def _call(ask: Ask, _: Operation) -> Call:
    session = _found(ask)
    return Call(ask.admin, ask.who, ask.scope, session.name, [session], fields=ask.fields)


async def _after(call: Call) -> dict[str, Any]:
    """The session as an operation has left it, or no more than its name."""
    return session_view(call.admin, call.session, call.scope) if call.session.is_live else {"name": call.name}


SESSION_ROUTES: Final = (
    Route(
        "GET",
        "/sessions",
        "List the named sessions, a page at a time.",
        _list,
        "`sessions`, a list; `next`, the cursor of the next page, empty if this is the last; `unnamed`, how many sessions"
        " have no name; `unknownSince`, as in the list of receivers.",
        Example({"active": False}, {"sessions": [{"name": "client/bob/1", "cause": "database is down, by admin"}]}),
        query=(
            text_field("subject", "Only this subject's: joe."),
            choice_field("state", "Only those in this state of the API", DispatcherState),
            choice_field("condition", "Only those that stand so", Condition),
            flag_text("active", "false: only those on hold; true: only the others."),
            text_field("contains", "Only those whose name contains this text."),
            choice_field("sort", "Sort them by this, numbers in descending order", _ORDERS),
            *page_fields("sessions"),
        ),
        about=About.MANY,
        merge=Pages("sessions", sums=("unnamed",)),
    ),
    Route(
        "GET",
        Level.SESSION.resource,
        "Show one session.",
        _show,
        f"{_VIEW} `oldest`: when its oldest message was published; `inFlight`: how many its client has not"
        " acknowledged; `pace`: how many messages it acknowledged (`count`) in the last `withinMs`, and when it"
        " acknowledged the `last`. For an operator of some channels `pace` is null, causes leave out what a full queue has"
        " turned away, and `lastFailure` is null if it is about a channel that the role does not cover. `conditions` and"
        " `causes`: as in the list of receivers; for rejected messages (`rejects`) also `shape`: which other fields they have"
        " than those that were acknowledged, or empty. `may`: the operator's highest role.",
        Example({}, {"name": "client/joe/1", "state": "ALIVE", "active": True, "subscriptions": ["/kitchen/orders"]}),
        refusals=_UNKNOWN,
        about=About.SESSION,
        merge=At.OWNER,
    ),
    Route(
        "GET",
        f"{Level.SESSION.resource}/messages",
        "Read the queue of a session without changing it.",
        _messages,
        "`name`, `waiting`: how many there are, and `messages` as the session would get them.",
        Example({"count": 5}, {"waiting": 4, "messages": [{"data": {"word": "pizza 4"}}]}),
        query=(count_text("At most this many of the first messages."),),
        refusals=_UNKNOWN,
        about=About.SESSION,
        merge=At.OWNER,
    ),
    Route(
        "GET",
        f"{Level.SESSION.resource}/timeline",
        "Show the recent events of a session, the newest first, even if it has ended.",
        _timeline,
        "`name`; `since`: when the session came to this server, or null if it has ended; `events`; `dropped`: how many"
        " earlier events were dropped, null for an operator of some channels, who gets the events of times at which the role"
        " covered all its subscriptions. An event has `what` (opened, lost, back, expired, refused, failed, held, released,"
        " skipped, drained, cleared, overflow, killed, died, closed), `since` and `at` (when it happened first and last),"
        " `count` (how often in a row) and the fields of its kind.",
        Example({"count": 5}, {"events": [{"what": "failed", "code": "user.update.error"}]}),
        query=(count_text("At most this many of the newest events."),),
        refusals={404: "There is no such session, and no record of a former one."},
        about=About.SESSION,
        merge=Parts(_joined_timelines, may_lack=True, patience_s=_PATIENCE_S),
    ),
    Route(
        "GET",
        f"{Level.SESSION.resource}/trace",
        "Show the messages of a session live, as lines of JSON, without secrets and masked fields.",
        _trace,
        "One message per line: `at`, `way` (in: from the client; out: to it), `message`, and `lost`: how many messages before"
        " it are missing because the reader was too slow. Replies to publishes are not shown. While there are no messages,"
        " empty lines keep the connection open. Ask the node that has the session; another one refuses with 400 and names it.",
        Example({"seconds": 1}, {"way": "out", "message": {"channel": "/kitchen/orders"}}),
        query=(number_text("seconds", "How long.", 1, _MOST_TRACE_S, _TRACE_S),),
        media_type="application/x-ndjson",
        refusals=_UNKNOWN,
        action="trace session",
        merge=At.OWNER,
    ),
    *operation_routes(Level.SESSION, _call, _after, _VIEW.removesuffix("."), _UNKNOWN, At.OWNER),
)
