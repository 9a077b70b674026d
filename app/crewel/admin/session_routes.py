"""The REST resources of sessions."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from typing import Any, Final

from crewel.admin import operations
from crewel.admin.calls import Call
from crewel.admin.routes import Ask, NotThere, Route, flag_text, number_text, text_field
from crewel.admin.session_facts import session_view, subject_of
from crewel.broker.sessions import Session
from crewel.delivery.states import DispatcherState
from crewel.qos.fields import one_of
from crewel.qos.names import parse_name

_PAGE: Final = 100
_MOST: Final = 1000
_ONE: Final = "/sessions/{subject}/{number}"
_UNKNOWN: Final = {404: "There is no such session."}
_SESSION: Final = "The session: name, state, active, holdback, waiting, waitingBytes, subscriptions and more."
_STATES: Final = ", ".join(DispatcherState)


async def _list(ask: Ask) -> dict[str, Any]:
    """A page of the sessions in the order of their names. Answers `next`, which is the cursor, empty on the last page."""
    fields = ask.fields
    count = fields.get("count", _PAGE)
    found = heapq.nsmallest(count + 1, _wanted(ask, fields), key=lambda session: session.name)
    page, more = found[:count], len(found) > count
    return {
        "sessions": [session_view(ask.admin, session) for session in page],
        "next": page[-1].name if more else "",
        "unnamed": sum(not session.name for session in ask.admin.broker.sessions.values()),
    }


def _wanted(ask: Ask, fields: dict[str, Any]) -> list[Session]:
    dispatching = ask.admin.dispatching
    subject, state, active, after = (fields.get(name) for name in ("subject", "state", "active", "after"))
    return [
        session
        for session in ask.admin.named()
        if (after is None or session.name > after)
        and (subject is None or subject_of(session) == subject)
        and (state is None or dispatching.state(session) == state)
        and (active is None or (dispatching.holdback(session) is None) is active)
    ]


def _found(ask: Ask) -> Session:
    """The session that the path names."""
    told = f"client/{ask.path['subject']}/{ask.path['number']}"
    name = parse_name(told)
    session = ask.admin.find(name.relative) if name is not None and name.number else None
    if session is None:
        raise NotThere(f"there is no session {told} here")
    return session


async def _show(ask: Ask) -> dict[str, Any]:
    return session_view(ask.admin, _found(ask))


def _does(
    what: str, do: Callable[[Call, dict[str, Any]], Awaitable[dict[str, Any]]]
) -> Callable[[Ask], Awaitable[Any]]:
    """A handler that does this to the session, notes who did it, and answers what came of it, and the session as it is
    then."""

    async def handle(ask: Ask) -> dict[str, Any]:
        session = _found(ask)
        ask.admin.note(ask.who, f"{what} session", session=session.name, **ask.fields)
        told = await do(Call(ask.admin, ask.who, session.name, [session]), ask.fields)
        return told if not session.is_live else session_view(ask.admin, session) | told

    return handle


async def _activate(call: Call, _: dict[str, Any]) -> dict[str, Any]:
    await operations.activate(call)
    return {}


async def _hold(call: Call, fields: dict[str, Any]) -> dict[str, Any]:
    await operations.hold(call, **fields)
    return {}


async def _skip(call: Call, _: dict[str, Any]) -> dict[str, Any]:
    return {"letters": await operations.skip(call)}


async def _drain(call: Call, _: dict[str, Any]) -> dict[str, Any]:
    return {"letters": await operations.drain(call)}


async def _retry(call: Call, _: dict[str, Any]) -> dict[str, Any]:
    return {"retried": operations.retry(call)}


async def _ping(call: Call, _: dict[str, Any]) -> dict[str, Any]:
    return {"pingMs": await operations.ping(call)}


async def _kill(call: Call, _: dict[str, Any]) -> dict[str, Any]:
    return {"name": call.name, "killed": operations.kill(call) > 0}


SESSION_ROUTES: Final = (
    Route(
        "GET",
        "/sessions",
        "The sessions that have a name, in its order, a page at a time.",
        _list,
        "`sessions`, a list; `next`, the cursor of the next page, empty if this is the last; `unnamed`, how many sessions"
        " have no name.",
        query=(
            text_field("subject", "Only this subject's: joe."),
            text_field("state", f"Only those in this state: {_STATES}.", one_of(*DispatcherState)),
            flag_text("active", "false: only those that are held back; true: only the others."),
            text_field("after", "The `next` of the page before."),
            number_text("count", "Most sessions in the page.", 1, _MOST, _PAGE),
        ),
    ),
    Route("GET", _ONE, "One session.", _show, _SESSION, refusals=_UNKNOWN),
    Route(
        "POST",
        _ONE + "/activate",
        "Deliver again to a session that is held back, the held message in its old place.",
        _does("activate", _activate),
        _SESSION,
        refusals=_UNKNOWN,
    ),
    Route(
        "POST",
        _ONE + "/hold",
        "Hold a session back: what arrives waits until it is activated.",
        _does("hold", _hold),
        _SESSION,
        body=(
            text_field("reason", "Why, for who looks at it later."),
            text_field("code", "A code, for who looks at it later."),
        ),
        refusals=_UNKNOWN,
    ),
    Route(
        "POST",
        _ONE + "/skip",
        "Make the held message, or the first that waits, a dead letter. The session stays as it is.",
        _does("skip", _skip),
        "The session, and `letters`: how many became dead letters, 0 or 1.",
        refusals=_UNKNOWN,
    ),
    Route(
        "POST",
        _ONE + "/drain",
        "Make all that waits dead letters. The session stays as it is.",
        _does("drain", _drain),
        "The session, and `letters`: how many became dead letters.",
        refusals=_UNKNOWN,
    ),
    Route(
        "POST",
        _ONE + "/retry",
        "End the pause after a failure of the client: what waits goes out now.",
        _does("retry", _retry),
        "The session, and `retried`: whether there was a pause.",
        refusals=_UNKNOWN,
    ),
    Route(
        "POST",
        _ONE + "/ping",
        "Ask the client for a sign of life.",
        _does("ping", _ping),
        "The session, and `pingMs`: how long it took.",
        refusals=_UNKNOWN | {504: "The client gave none in time (communication.noConnection)."},
    ),
    Route(
        "POST",
        _ONE + "/kill",
        "End the session. What waits for a named one becomes dead letters.",
        _does("kill", _kill),
        "`name`, and `killed`: true.",
        refusals=_UNKNOWN,
    ),
)
