"""Where a message is: for each receiver, whether it waits, was acknowledged or became a dead letter. A REST resource.

What is open comes from the sessions of this server, what has ended from the facts of the store.
"""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.message_history import MessageHistory, ReceiverOutcome, message_history
from crewel.admin.operation import About
from crewel.admin.route import Ask, NotThere, Route
from crewel.bayeux.channel import parse
from crewel.broker.session import Session
from crewel.delivery.records import LogId
from crewel.event_loop import in_turns
from crewel.qos.names import parse_name
from crewel.storage import dead_letters
from crewel.storage.dead_letters import DeadLetterFilter, StoredDeadLetter, is_dead_id
from crewel.storage.message_facts import facts_of

_MOST_LETTERS: Final = 20
"""Receivers whose dead letter is looked up."""
_MAX_DIGITS: Final = 18


async def _show(ask: Ask) -> dict[str, Any]:
    admin, text = ask.admin, ask.path["message"]
    letter = await _letter(admin, text) if is_dead_id(text) else None
    message = text if letter is None else letter.id
    told, not_for, is_partial = MessageHistory(), [], False
    if message.isascii() and message.isdigit() and len(message) <= _MAX_DIGITS:
        log_id = LogId(int(message))
        found = await facts_of(admin.store, log_id)
        told, is_partial = message_history(log_id, found.facts), found.is_partial
        not_for = await _add_sessions(admin, log_id, told)
        await _add_letters(admin, log_id, told)
    elif letter is None:
        raise NotThere(f"{text} is not the id of a stored message, such as 1795324804876345")
    if letter is not None:
        _add_letter(told, letter)
    if not (told.outcomes or not_for or told.channel):
        raise NotThere(f"nothing is recorded of the message {message}, or no longer")
    if not (ask.covers_all or ask.covers(told.channel)):
        raise NotThere(f"nothing is recorded of the message {message} on the operator's channels")
    return {
        "message": message,
        "channel": told.channel,
        "publishedAt": told.published_ms,
        "recorded": told.published_ms is not None,
        "partial": is_partial,
        "redriveOf": told.redrive_of,
        "redrivenAs": told.redriven_as,
        "receivers": [told.outcomes[name].as_json() for name in sorted(told.outcomes)],
        "notFor": not_for,
    }


async def _letter(admin: Administration, dead_id: str) -> StoredDeadLetter:
    """The dead letter. Raises NotThere."""
    found = await dead_letters.get(admin.store, [dead_id])
    if not found:
        raise NotThere(f"there is no dead letter {dead_id}, or no longer")
    return found[0]


def _add_letter(told: MessageHistory, letter: StoredDeadLetter) -> None:
    """Add what the dead letter says, where the facts no longer tell of it or never did: the message was not stored."""
    told.channel = told.channel or letter.channel
    name = parse_name(letter.receiver)
    receiver = letter.receiver if name is None else name.relative
    if receiver not in told.outcomes:
        more = {"letter": letter.dead_id, "reason": letter.reason, "attempts": letter.attempts}
        told.outcomes[receiver] = ReceiverOutcome(
            receiver, "dead letter", int(letter.dead_id.partition("-")[0]), letter.code, more
        )


async def _add_sessions(admin: Administration, log_id: LogId, told: MessageHistory) -> list[dict[str, str]]:
    """Add what the sessions here know that the facts do not; returns those that subscribe, and why it is not for them."""
    channel = parse(told.channel) if told.channel else None
    patterns = frozenset() if channel is None else frozenset(channel.patterns)
    not_for = []
    async for session in in_turns(admin.broker.sessions.values()):
        durable = session.durable
        if durable is None or not session.is_live:
            continue
        waiting = durable.find(log_id)
        if waiting is not None:
            told.outcomes[session.name] = ReceiverOutcome(
                session.name, "waiting", more=_waiting(admin, session, waiting.attempts)
            )
        elif session.name not in told.outcomes and not patterns.isdisjoint(session.subscriptions):
            if durable.wants(patterns, log_id):
                told.outcomes[session.name] = ReceiverOutcome(session.name, "ended; how is not recorded")
            else:
                not_for.append({"receiver": session.name, "why": "subscribed later"})
    return not_for


def _waiting(admin: Administration, session: Session, attempts: int) -> dict[str, Any]:
    held = admin.dispatchers.holdback(session)
    why = f"on hold by {held.who}" if held is not None else admin.dispatchers.state(session).value
    return {"attempts": attempts, "why": why}


async def _add_letters(admin: Administration, log_id: LogId, told: MessageHistory) -> None:
    """Add the dead letters that are still there."""
    dead = [outcome for outcome in told.outcomes.values() if outcome.state == "dead letter"]
    for outcome in dead[:_MOST_LETTERS]:
        wanted = DeadLetterFilter(
            receiver=outcome.receiver, since_ms=max((outcome.at_ms or 0) - 1000, 0), contains=str(log_id)
        )
        page = await dead_letters.page(admin.store, wanted, count=10)
        for letter in page.letters:
            if letter.id == str(log_id):
                outcome.more |= {"letter": letter.dead_id, "reason": letter.reason, "attempts": letter.attempts}


MESSAGE_ROUTES: Final = (
    Route(
        "GET",
        "/messages/{message}",
        "Show what happened to a stored message for each receiver.",
        _show,
        "`message`, `channel`, `publishedAt`. `recorded`: whether its publish is still among the facts. `partial`: whether"
        " there are more facts than one request reads. `redriveOf`, `redrivenAs`: other ids of it. `receivers`, a list, with"
        " `receiver`, `state` (waiting, acknowledged, dead letter, or another reason of its end), `at` and `code`. Where they"
        " are known, also `attempts`, `why`, `letter`, `reason` and `redrivenAs`. `notFor`: subscribers that do not get it,"
        " each with `why`.",
        refusals={404: "Nothing is recorded of the message, or no longer."},
        about=About.MANY,
    ),
)
