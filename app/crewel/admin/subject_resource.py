"""Subjects, as operators see and treat them: their sessions, and the queue of what is addressed to them."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.call import Call
from crewel.admin.command import COUNT, FLAG, Access, Command, of_list, operation_commands, union
from crewel.admin.example import Example
from crewel.admin.merges import AtAll, Pages, Row, longest, merged
from crewel.admin.operation import About, Level, Operation
from crewel.admin.receiver_facts import AwaitedQueue, queue_view
from crewel.admin.request_fields import PAGE, count_text, page_fields
from crewel.admin.role_scopes import seen
from crewel.admin.route import Ask, NotThere, Route, operation_routes
from crewel.admin.session_resource import login_date, uptime
from crewel.broker.session import Session
from crewel.broker.subscriptions.history_reader import as_delivered
from crewel.event_loop import in_turns, sorted_in_turns
from crewel.qos.names import SUBJECT_RULE, is_subject, subject_queue
from crewel.security.grants import Role, role_of

# Commands


def _numbers(names: Iterable[str]) -> str:
    return ",".join(map(str, sorted(int(name.rpartition("/")[2]) for name in names)))


async def _names(sessions: Iterable[Session]) -> list[str]:
    return await sorted_in_turns([session.name async for session in in_turns(sessions)])


def _first(moments: list[str]) -> str:
    return min(filter(None, moments), default="")


async def _peek(call: Call) -> list[dict[str, Any]]:
    """The first so many of the waiting messages, as a session would get them. Raises NotCovered and StoreError."""
    entries = seen(call.scope, About.SUBJECT, await call.admin.destinations.peek(call.subject, call.value))
    return call.admin.messages(as_delivered(entry, with_origin=True) for entry in entries)


def _set_blocked(call: Call) -> Awaitable[None]:
    return call.admin.set_blocked(call.subject, is_blocked=call.value)


_read = partial(Command, Level.SUBJECT, Access.READ)
_write = partial(Command, Level.SUBJECT, Access.WRITE)

_SESSION_LIST: Final = _read("sessionList", "Names of its sessions.", lambda c: _names(c.sessions), join=union)

SUBJECT_COMMANDS: Final = (
    _read("numSessions", "Its sessions.", lambda c: len(c.sessions), join=sum),
    _SESSION_LIST,
    of_list(_SESSION_LIST, "sessions", "Numbers of its sessions on one line.", _numbers),
    _read(
        "uptime",
        "Seconds since its first session; 0 if it has none.",
        lambda c: uptime(c) if c.sessions else 0,
        join=max,
    ),
    _read(
        "creationDate",
        "When its first session began; empty if it has none.",
        lambda c: login_date(c) if c.sessions else "",
        join=_first,
    ),
    _read(
        "subjectQueueNumMsgs",
        "Messages that wait for a session of the subject.",
        lambda c: c.admin.waiting_for(c.subject),
        join=max,
    ),
    _read(
        "subjectQueueMaxMsgs",
        "Maximum number of these messages.",
        lambda c: c.admin.settings.ptp.subject_queue_max_entries,
    ),
    _read(
        "peekSubjectMessages",
        "The first of these messages, which stay in the queue.",
        _peek,
        COUNT._replace(default=1),
        join=longest,
    ),
    _write(
        "blockClientLogin",
        "Whether the server refuses its logins, until the server ends. Existing sessions stay. It can be set before the first"
        " login.",
        lambda c: c.admin.is_blocked(c.subject),
        FLAG,
        _set_blocked,
        join=any,
        is_beforehand=True,
    ),
    *operation_commands(Level.SUBJECT),
)


# Resources

_MESSAGES: Final = f"{Level.SUBJECT.resource}/messages"
_UNKNOWN: Final = {
    404: "There is no such subject: it has no sessions and no queued messages, and its logins are not blocked."
}


def _as_one(views: list[Row]) -> Row:
    """What several nodes say of one subject. Each has sessions of its own, and reads the queue in the store as far as it knows
    it."""
    return merged(
        views, views[0], sessions=union, blocked=any, queued=max, maxEntries=max, messages=longest, causes=longest,
        may=lambda words: min(words, key=lambda word: role_of(word) or 0), killed=sum, cleared=sum,
    )  # fmt: skip


async def _view(admin: Administration, subject: str) -> dict[str, Any]:
    """The subject as REST tells it."""
    queue = subject_queue(subject)
    sessions = admin.sessions_of(subject)
    queued = admin.waiting_for(subject)
    return {
        "name": f"client/{subject}",
        "subject": subject,
        "sessions": await _names(sessions),
        "blocked": admin.is_blocked(subject),
        "queued": queued,
        "maxEntries": admin.settings.ptp.subject_queue_max_entries,
        "causes": await queue_view(admin, AwaitedQueue(queue, queue, queued, sessions)),
    }


async def _list(ask: Ask) -> dict[str, Any]:
    """A page of the subjects in the order of their names. Answers `next`, which is the cursor, empty on the last page."""
    after, count = ask.fields.get("after", ""), ask.fields.get("count", PAGE)
    found: list[str] = []
    async for subject in ask.admin.all_subjects(after):
        if await _is_covered(ask, subject):
            found.append(subject)
            if len(found) > count:
                break
    page = found[:count]
    return {
        "subjects": [await _view(ask.admin, subject) for subject in page],
        "next": page[-1] if len(found) > count else "",
    }


async def _is_covered(ask: Ask, subject: str) -> bool:
    return ask.covers_all or await ask.role_on_subject(subject) is not None


def _found(ask: Ask, value: Any = None, *, is_beforehand: bool = False) -> Call:
    """A call about the subject that the path names. Raises NotThere if it is not there, and, if the call also holds
    beforehand, cannot be."""
    subject, can_be = ask.path["subject"], is_subject(ask.path["subject"])
    if not (ask.admin.has_subject(subject) or (is_beforehand and can_be)):
        why = "" if can_be else f", and there can be none: a subject is {SUBJECT_RULE}"
        raise NotThere(f"there is no subject {subject} here{why}")
    return Call(ask.admin, ask.who, ask.scope, f"client/{subject}", ask.admin.sessions_of(subject), value)


async def _show(ask: Ask) -> dict[str, Any]:
    subject = _found(ask).subject
    return await _view(ask.admin, subject) | {"may": (await ask.role_on_subject(subject) or Role.VIEW).word}


async def _messages(ask: Ask) -> dict[str, Any]:
    call = _found(ask, ask.fields.get("count", PAGE))
    return {"name": call.name, "queued": ask.admin.waiting_for(call.subject), "messages": await _peek(call)}


async def _call(ask: Ask, operation: Operation) -> Call:
    return _found(ask, is_beforehand=operation.is_beforehand)


async def _after(call: Call) -> dict[str, Any]:
    return {"name": call.name}


SUBJECT_ROUTES: Final = (
    Route(
        "GET",
        "/subjects",
        "List the subjects that have sessions or queued messages, or whose logins are blocked, by name, a page at a time.",
        _list,
        "`subjects`, a list; `next`, the cursor of the next page, empty if this is the last.",
        Example({"count": 2}, {"subjects": [{"name": "client/ann", "sessions": ["client/ann/1"]}], "next": "bob"}),
        query=page_fields("subjects"),
        about=About.MANY,
        merge=Pages("subjects", "subject", _as_one),
    ),
    Route(
        "GET",
        Level.SUBJECT.resource,
        "Show one subject.",
        _show,
        "The subject: name, sessions, queued, maxEntries. `causes`: what is wrong with its queue, as in the list of receivers."
        " `may`: the operator's highest role for it.",
        Example({}, {"name": "client/joe", "sessions": ["client/joe/1"], "blocked": False, "queued": 1}),
        refusals=_UNKNOWN,
        about=About.SUBJECT,
        merge=AtAll(_as_one),
    ),
    Route(
        "GET",
        _MESSAGES,
        "Read the messages that wait for a session of the subject, without removing them.",
        _messages,
        "`name`, `queued`: how many there are, and `messages` as a session would get them.",
        Example({"count": 5}, {"name": "client/joe", "queued": 1, "messages": [{"channel": "/kitchen/orders"}]}),
        query=(count_text("At most this many of the first messages."),),
        refusals=_UNKNOWN,
        about=About.SUBJECT,
        merge=AtAll(_as_one),
    ),
    *operation_routes(Level.SUBJECT, _call, _after, "`name`", _UNKNOWN, AtAll(_as_one)),
)
