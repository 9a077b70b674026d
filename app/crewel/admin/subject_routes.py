"""The REST resources of subjects: who they are, and what waits for them."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin import operations, subject_facts
from crewel.admin.calls import Call
from crewel.admin.routes import Ask, NotThere, Route, number_text, text_field
from crewel.admin.subject_facts import subject_view

_PAGE: Final = 100
_MOST: Final = 1000
_ONE: Final = "/subjects/{subject}"
_MESSAGES: Final = _ONE + "/messages"
_UNKNOWN: Final = {404: "There is no such subject: it has no session, and nothing waits for it."}


async def _list(ask: Ask) -> dict[str, Any]:
    """A page of the subjects in the order of their names. Answers `next`, which is the cursor, empty on the last page."""
    after, count = ask.fields.get("after", ""), ask.fields.get("count", _PAGE)
    found = [subject for subject in ask.admin.all_subjects() if subject > after]
    page = found[:count]
    return {
        "subjects": [subject_view(ask.admin, subject) for subject in page],
        "next": page[-1] if len(found) > count else "",
    }


def _found(ask: Ask, value: Any = None) -> Call:
    """A call about the subject that the path names."""
    subject = ask.path["subject"]
    if not ask.admin.has_subject(subject):
        raise NotThere(f"there is no subject {subject} here")
    sessions = ask.admin.broker.logins.names.of_subject(subject)
    return Call(ask.admin, ask.who, f"client/{subject}", list(sessions), value)


async def _show(ask: Ask) -> dict[str, Any]:
    return subject_view(ask.admin, _found(ask).subject)


async def _messages(ask: Ask) -> dict[str, Any]:
    call = _found(ask, ask.fields.get("count", _PAGE))
    return {"name": call.name, "queued": subject_facts.queued(call), "messages": await subject_facts.peek(call)}


async def _clear(ask: Ask) -> dict[str, Any]:
    call = _found(ask)
    ask.admin.note(ask.who, "clear subject queue", subject=call.name)
    return {"name": call.name, "cleared": await subject_facts.clear(call)}


async def _kill(ask: Ask) -> dict[str, Any]:
    call = _found(ask)
    ask.admin.note(ask.who, "kill client", subject=call.name)
    return {"name": call.name, "killed": operations.kill(call)}


SUBJECT_ROUTES: Final = (
    Route(
        "GET",
        "/subjects",
        "The subjects that have sessions, or that something waits for, in the order of their names, a page at a time.",
        _list,
        "`subjects`, a list; `next`, the cursor of the next page, empty if this is the last.",
        query=(
            text_field("after", "The `next` of the page before."),
            number_text("count", "Most subjects in the page.", 1, _MOST, _PAGE),
        ),
    ),
    Route(
        "GET",
        _ONE,
        "One subject.",
        _show,
        "The subject: name, sessions, queued, maxEntries.",
        refusals=_UNKNOWN,
    ),
    Route(
        "GET",
        _MESSAGES,
        "What waits until one of its sessions is there; it stays.",
        _messages,
        "`name`, `queued`: how many there are, and `messages` as a session would get them.",
        query=(number_text("count", "Most messages, of the first.", 1, _MOST, _PAGE),),
        refusals=_UNKNOWN,
    ),
    Route(
        "DELETE",
        _MESSAGES,
        "Drop what waits for it, without letters.",
        _clear,
        "`name`, and `cleared`: how many messages it were.",
        refusals=_UNKNOWN,
    ),
    Route(
        "POST",
        _ONE + "/kill",
        "End all its sessions. What waits for them becomes dead letters, what is addressed to the subject waits for the next.",
        _kill,
        "`name`, and `killed`: how many sessions it were.",
        refusals=_UNKNOWN,
    ),
)
