"""Where a message is: for each receiver, whether it waits, was acknowledged or became a dead letter; and the outcome of
a dead letter that has gone. REST resources.

What is open comes from the sessions of this server, what has ended from the facts of the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.dead_letter_filters import WITH_FIELD
from crewel.admin.dead_letter_resource import wanted_field
from crewel.admin.example import SAMPLES, Example
from crewel.admin.merges import Parts, Row
from crewel.admin.message_history import (
    ACKNOWLEDGED,
    DEAD,
    WAITING,
    MessageHistory,
    ReceiverOutcome,
    add,
    message_history,
    new_schedule,
    removal,
)
from crewel.admin.operation import About
from crewel.admin.paging import First
from crewel.admin.receiver_facts import receiver_stop
from crewel.admin.request_fields import NEXT, count_text, cursor, text_field
from crewel.admin.route import Ask, NotThere, Route
from crewel.admin.scheduled_resource import scheduled_content
from crewel.bayeux.channel import parse
from crewel.bayeux.codec import reread
from crewel.broker.dead_letter import DeadLetter
from crewel.broker.session import Session, stored_of
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import Logged, LogId, PendingMessage
from crewel.errors import IllegalArgument
from crewel.event_loop import Turns, in_turns, without_collections
from crewel.qos.fields import text_that
from crewel.qos.names import is_queue, parse_name
from crewel.security.masks import masked, masked_ext, masked_properties
from crewel.storage import audit_stream, dead_letter_bin, dead_letter_store, message_bodies, scheduled_messages
from crewel.storage.audit_stream import AuditFilter
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter, is_dead_id
from crewel.storage.message_bodies import message_body
from crewel.storage.message_facts import Fact, earlier_id, facts_of, messages_with_key, removals_of
from crewel.storage.scheduled_messages import ScheduledMessage
from crewel.storage.sight import Sight

_MOST_LETTERS: Final = 20
"""Receivers whose dead letter is looked up."""
_MOST_SHOWN: Final = 1000
"""Receivers that one answer has."""
_URGENCY: Final = {DEAD: 0, WAITING: 1, ACKNOWLEDGED: 3}
"""Which of very many are shown: those that lack the message first. Other states lie between."""
_MOST_PLACES: Final = 20
"""Receivers for which a message waits, and whose inbox or queue is asked for its body."""
_MOST_REDRIVES: Final = 10
"""Redrives that are followed back to the first publish."""
_OUTCOMES_AT_ONCE: Final = 1000
_MAX_DIGITS: Final = 18
_FOUND: Final = 20
_CLOCKS_MS: Final = 5000
"""How much the clocks of store and server may differ."""


async def _show(ask: Ask) -> dict[str, Any]:
    with without_collections():
        return await _answer(ask)


async def _answer(ask: Ask) -> dict[str, Any]:
    admin, text, sight = ask.admin, ask.path["message"], ask.sight
    letter = await _letter(admin, text, sight) if is_dead_id(text) else None
    message = text if letter is None else letter.id
    log_id = _log_id(message)
    told, not_for, is_partial = MessageHistory(), [], False
    if log_id is not None:
        found = await facts_of(admin.store, log_id, admin.fact_index, sight)
        is_partial = found.is_partial
        async for fact in in_turns(found.facts):
            add(told, log_id, [fact])
        not_for = await _add_sessions(ask, log_id, told)
        letters = await _add_letters(admin, log_id, told)
        letter = letter or next(iter(letters), None)
        await _add_removals(admin, log_id, told, sight, is_partial=is_partial)
    elif letter is None:
        raise NotThere(f"{text} is not the id of a stored message, such as 1795324804876345")
    if letter is not None:
        _add_letter(told, letter)
    scheduled = await _add_scheduled(admin, message, told)
    if not (told.outcomes or not_for or told.channel) or not sight.has(told.channel):
        raise NotThere(f"there is no record of the message {text}, or it has been removed")
    await asyncio.sleep(0)
    counts, shown = await _shown(told, ask.fields.get("receiver", ""))
    _add_filters(ask, told.channel, shown)
    answer = {
        "message": message,
        "channel": told.channel,
        "key": told.key,
        "publishedAt": told.published_ms,
        "firstPublishedAt": await _first_published(admin, log_id, sight) if told.redrive_of else None,
        "recorded": told.published_ms is not None,
        "partial": is_partial,
        "redriveOf": told.redrive_of,
        "redrivenAs": told.redriven_as,
        "scheduledAs": told.scheduled_as,
        "schedule": told.schedule,
        **await _content(admin, log_id, told, letter, scheduled),
        "states": counts,
        "receivers": [outcome.as_json() for outcome in shown],
        "notFor": not_for,
    }
    await _free(told)
    return answer


async def _free(told: MessageHistory) -> None:
    """Drop the outcomes, many in a step: with 100,000 receivers, to drop all at once takes 13 ms."""
    turns, outcomes = Turns(), told.outcomes
    await turns.end()
    while outcomes:
        for _ in range(min(_OUTCOMES_AT_ONCE, len(outcomes))):
            outcomes.popitem()
        await turns.rest()


async def _shown(told: MessageHistory, wanted: str) -> tuple[Counter[str], list[ReceiverOutcome]]:
    """How many receivers there are by state; and of those with this text in their names the most urgent, by name."""
    counts: Counter[str] = Counter()
    urgent: First[ReceiverOutcome] = First(_MOST_SHOWN, key=lambda each: (_URGENCY.get(each.state, 2), each.receiver))
    async for outcome in in_turns(told.outcomes.values()):
        counts[outcome.state] += 1
        if wanted in outcome.receiver:
            urgent.add(outcome)
    return counts, sorted(urgent.items(), key=attrgetter("receiver"))


def _log_id(text: str) -> LogId | None:
    """The id of a stored message, if the text is one."""
    return LogId(int(text)) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


async def _first_published(admin: Administration, log_id: LogId | None, sight: Sight) -> int | None:
    """When the message was published before it was redriven for the first time, as far as that is recorded: milliseconds since
    1970; None if it was not redriven."""
    first = None
    for _ in range(_MOST_REDRIVES):
        log_id = _log_id(await earlier_id(admin.store, log_id, sight)) if log_id is not None else None
        if log_id is None:
            break
        first = log_id // 1000
    return first


async def _add_scheduled(admin: Administration, text: str, told: MessageHistory) -> ScheduledMessage | None:
    """The message as long as it is scheduled: its fact may be trimmed before it is due."""
    if told.published_ms is not None:
        return None
    found = await scheduled_messages.get(admin.store, [text])
    if not found:
        return None
    told.channel = found[0].message.channel
    told.schedule = new_schedule(found[0].message.due_ms)
    return found[0]


async def _content(
    admin: Administration,
    log_id: LogId | None,
    told: MessageHistory,
    letter: StoredDeadLetter | None,
    scheduled: ScheduledMessage | None,
) -> dict[str, Any]:
    """What its publisher said, as long as the store has it; null where it has it no longer."""
    if scheduled is not None:
        return scheduled_content(scheduled, admin.masks)
    body = None
    if letter is None and log_id is not None:
        states = told.outcomes.items()
        waiting = list(islice((name for name, each in states if each.state == WAITING), _MOST_PLACES))
        queues = [name for name in waiting if is_queue(name)]
        sessions = [name for name in waiting if not is_queue(name)]
        body = await message_body(admin.store, log_id, told.channel, sessions, queues)
    if letter is not None:
        shown = DeadLetter.read(letter, admin.node).masked(admin.masks)
        return {"data": shown.data, "ext": shown.ext, "qos": shown.qos, "sender": shown.sender, "to": shown.to}
    return _view(admin, body)


def _view(admin: Administration, body: Logged | None) -> dict[str, Any]:
    if body is None:
        return dict.fromkeys(("data", "ext", "qos", "sender", "to"))
    fields, masks = reread(body.body), admin.masks
    return {
        "data": masked(fields.get("data"), masks),
        "ext": masked_ext(fields.get("ext", {}), masks),
        "qos": masked_properties(reread(body.qos), masks) if body.qos else {},
        "sender": body.sender,
        "to": body.to,
    }


async def _letter(admin: Administration, dead_id: str, sight: Sight) -> StoredDeadLetter:
    """The dead letter. Raises NotThere."""
    found = await dead_letter_store.get(admin.store, [dead_id])
    if not found or not sight.has(found[0].channel):
        raise NotThere(f"there is no dead letter {dead_id}, or it has been removed")
    return found[0]


def _add_letter(told: MessageHistory, letter: StoredDeadLetter) -> None:
    """Add what the dead letter says, where the facts no longer have it or never did: the message was not stored."""
    told.channel = told.channel or letter.channel
    name = parse_name(letter.receiver)
    receiver = letter.receiver if name is None else name.relative
    if receiver not in told.outcomes:
        more = {"letter": letter.dead_id, "reason": letter.reason, "attempts": letter.attempts}
        told.outcomes[receiver] = ReceiverOutcome(
            receiver, DEAD, int(letter.dead_id.partition("-")[0]), letter.code, more
        )


async def _add_sessions(ask: Ask, log_id: LogId, told: MessageHistory) -> list[dict[str, str]]:
    """Add what the sessions here know that the facts do not; returns those that subscribe, and why it is not for them."""
    admin = ask.admin
    async for session, durable, waiting in _waiting_for(admin, log_id):
        told.channel = told.channel or waiting.channel  # the facts of a redrive to a receiver do not say it
        told.outcomes[session.name] = ReceiverOutcome(
            session.name,
            WAITING,
            more=_waiting(ask, session, durable.known_attempts(log_id, waiting), str(log_id)),
        )
    channel = parse(told.channel) if told.channel else None
    not_for: list[dict[str, str]] = []
    if channel is None:
        return not_for
    async for durable in in_turns(stored_of(admin.channels.subscribers(channel))):
        subscriber: Session | None = durable.connected
        if subscriber is None or not subscriber.is_live or subscriber.name in told.outcomes:
            continue
        if durable.covers(channel.patterns, log_id):
            told.outcomes[subscriber.name] = ReceiverOutcome(subscriber.name, "ended; how is not recorded")
        elif len(not_for) < _MOST_SHOWN:
            not_for.append({"receiver": subscriber.name, "why": "subscribed later"})
    return not_for


async def _waiting_for(
    admin: Administration, log_id: LogId
) -> AsyncIterator[tuple[Session, DurableSession, PendingMessage]]:
    """The sessions here that have the message pending, some of them twice: also one that has unsubscribed may still have it."""
    turns = Turns()
    await turns.end()
    for durable in admin.access.node.holders(log_id):
        await turns.rest()
        session: Session | None = durable.connected
        if session is None or session.durable is not durable or not session.is_live:
            continue
        waiting = durable.find(log_id)
        if waiting is not None:
            yield session, durable, waiting


def _add_filters(ask: Ask, name: str, outcomes: Iterable[ReceiverOutcome]) -> None:
    """Add by what the sessions here that the operator sees choose among the messages of the channel with this name."""
    admin, channel = ask.admin, parse(name) if name else None
    if channel is None:
        return
    for outcome in outcomes:
        session = admin.find(outcome.receiver)
        is_seen = session is not None and ask.covers_session(session)
        wanted = {} if session is None or not is_seen else admin.subscriptions.options.filtered.get(session, {})
        choices = [each for pattern in channel.patterns for each in wanted.get(pattern, ())]
        filters = [each.filter.text for each in choices if each.filter is not None]
        if filters:
            outcome.more["filters"] = filters


def _waiting(ask: Ask, session: Session, attempts: int, message_id: str) -> dict[str, Any]:
    """What is known of a message that waits for the session. Why it does may be due to messages that the operator does not
    see."""
    admin = ask.admin
    held = session.mailbox.view().holdback
    if not ask.covers_session(session):
        why = ""
    elif held is None:
        why = receiver_stop(admin, session)[0] or DispatcherState.ALIVE.value
    else:
        why = ": ".join(filter(None, (f"on hold by {held.who}", held.code, held.reason)))
    is_held = held is not None and held.message_id == message_id
    return {"attempts": attempts, "why": why} | ({"held": True} if is_held else {})


async def _dead(told: MessageHistory) -> list[ReceiverOutcome]:
    await asyncio.sleep(0)  # a turn of its own: there may be very many
    return [outcome async for outcome in in_turns(told.outcomes.values()) if outcome.state == DEAD]


async def _add_letters(admin: Administration, log_id: LogId, told: MessageHistory) -> list[StoredDeadLetter]:
    """Add the dead letters that are still there, and return them."""
    dead = await _dead(told)
    found = []
    for outcome in dead[:_MOST_LETTERS]:
        wanted = DeadLetterFilter(
            receiver=outcome.receiver, since_ms=max((outcome.at_ms or 0) - 1000, 0), contains=str(log_id)
        )
        page = await dead_letter_store.page(admin.store, wanted, count=10)
        for letter in page.letters:
            if letter.id == str(log_id):
                outcome.more |= {"letter": letter.dead_id, "reason": letter.reason, "attempts": letter.attempts}
                found.append(letter)
    return found


async def _add_removals(
    admin: Administration, log_id: LogId, told: MessageHistory, sight: Sight, *, is_partial: bool
) -> None:
    """Add who took away the dead letters that are no longer there, and why."""
    gone = [each for each in await _dead(told) if not {"letter", "redrivenAs"} & each.more.keys()]
    if gone and is_partial and not all("discarded" in outcome.more for outcome in gone):
        add(told, log_id, await removals_of(admin.store, str(log_id), log_id // 1000, sight))
    for outcome in gone[:_MOST_LETTERS]:
        if "discarded" in outcome.more:
            outcome.more["discarded"]["reason"] = await _reason(admin, outcome.more["discarded"])


async def _reason(admin: Administration, gone: dict[str, Any]) -> str:
    """Why an operator discarded a dead letter, as its job or the audit tells it."""
    if gone["job"]:
        job = await admin.jobs.get(gone["job"])
        return "" if job is None else job.reason
    wanted = AuditFilter(who=gone["who"], what="discard dead letters", since_ms=gone["at"] - _CLOCKS_MS)
    page = await audit_stream.page(admin.store, wanted, newest_first=False)
    reasons = (entry["reason"] for entry in page.entries if gone["letter"] in entry["details"].get("ids", ()))
    return str(next(reasons, ""))


def _restored(dead_id: str, fact: Fact) -> dict[str, Any]:
    """The outcome of a dead letter that was discarded and restored."""
    fields = fact.fields
    at = fields["letters"].index(dead_id)
    who = {"at": fact.at_ms, "who": fields.get("who", ""), "job": ""}
    return {"end": "restored", "message": fields["messages"][at], "restoredAs": fields["as"][at], **who}


async def _show_end(ask: Ask) -> dict[str, Any]:
    """What happened to a dead letter that has gone."""
    admin, dead_id, sight = ask.admin, ask.path["id"], ask.sight
    kept = await dead_letter_store.get(admin.store, [dead_id])
    if kept:
        return await _if_covered(ask, {"end": "kept", "message": kept[0].id}, kept[0].channel)
    at_ms = int(dead_id.partition("-")[0]) if is_dead_id(dead_id) else None
    facts = [] if at_ms is None else await removals_of(admin.store, dead_id, at_ms, sight)
    restored = next(
        (_restored(dead_id, fact) for fact in facts if fact.type == "restored" and dead_id in fact.fields["letters"]),
        None,
    )
    if restored is not None:
        return await _if_covered(ask, restored, "")
    for fact in facts:
        fields = fact.fields
        if fact.type == "redriven" and fields["letter"] == dead_id:
            channel = fields.get("channel", "")
            told = {"end": "redriven", "at": fact.at_ms, "job": fields.get("job", ""), "message": fields["message"]}
            more = {"redrivenAs": str(fields["id"])} | ({"edited": True} if fields.get("edited") else {})
            return await _if_covered(ask, told | more, channel)
        if fact.type == "discarded" and dead_id in fields["letters"]:
            gone = removal(dead_id, fact)
            messages = fields.get("messages", ())
            message = next(islice(messages, fields["letters"].index(dead_id), None), "")
            told = {"end": "discarded", "message": message, "reason": await _reason(admin, gone), **gone}
            told["binned"] = bool(await dead_letter_bin.get(admin.store, [dead_id]))
            return await _if_covered(ask, told, "")
    raise _no_end(ask)


def _no_end(ask: Ask) -> NotThere:
    dead_id = ask.path["id"][:64]
    return NotThere(f"there is no record of the outcome of the dead letter {dead_id}, or it has been removed")


async def _if_covered(ask: Ask, told: dict[str, Any], channel: str) -> dict[str, Any]:
    """The answer, if the operator's roles cover the channel of the message."""
    log_id = _log_id(told["message"])
    if not ask.covers_all and not channel and log_id is not None:
        found = await facts_of(ask.admin.store, log_id, ask.admin.fact_index, ask.sight)
        channel = message_history(log_id, found.facts).channel
    if not (ask.covers_all or (channel and ask.covers(channel))):
        raise _no_end(ask)
    return told


async def _search(ask: Ask) -> dict[str, Any]:
    """Messages that the store still has, with a text in them; or those that were published with a key."""
    fields, store, sight = ask.fields, ask.admin.store, ask.sight
    after, count = ask.after(_place), fields.get("count", _FOUND)
    if "key" in fields:
        if {"contains", "field"} & fields.keys():
            raise IllegalArgument("key", "excludes `contains` and `field`")
        return await _search_key(ask, fields["key"], after, count)
    if after and _log_id(after) is None:
        raise IllegalArgument("after", "must be the `next` of the previous page")
    wanted, field = fields.get("contains", ""), wanted_field(ask)
    found = await message_bodies.search(store, wanted, after, count, field=field, sight=sight)
    queues = message_bodies.InQueues([], is_partial=False)
    if not after:
        queues = await message_bodies.search_queues(store, wanted, count, field=field, sight=sight)
    return {
        "messages": _rows(ask, found.messages),
        "next": ask.following(found.next),
        "queued": _rows(ask, queues.messages),
        "queuedPartial": queues.is_partial,
    }


def _rows(ask: Ask, messages: Iterable[Logged]) -> list[dict[str, Any]]:
    return [
        {"message": str(each.id), "channel": each.channel, "publishedAt": each.id // 1000, **_view(ask.admin, each)}
        for each in messages
    ]


async def _search_key(ask: Ask, key: str, after: str, count: int) -> dict[str, Any]:
    """Messages that were published with this key, as long as the facts tell them; with their data, if the log or the history of
    their topic has it."""
    store = ask.admin.store
    found = await messages_with_key(store, key, after, count, ask.sight)
    bodies = [await message_body(store, each.id, each.channel, (), ()) for each in found.messages]
    return {
        "messages": [
            {"message": str(each.id), "channel": each.channel, "publishedAt": each.at_ms, **_view(ask.admin, body)}
            for each, body in zip(found.messages, bodies, strict=True)
        ],
        "next": ask.following(found.next),
        "queued": [],
        "queuedPartial": False,
    }


_place: Final = text_that(lambda value: _log_id(value) is not None or is_dead_id(value), NEXT)


_CONTENT: Final = (
    "`data`, `ext`, `qos` (the options of its publish, also its `clientProperties`), `sender` and `to` (its"
    " destination)"
)


def _as_one(views: list[Row], _: object) -> Row:
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


MESSAGE_ROUTES: Final = (
    Route(
        "GET",
        "/messages/{message}",
        "Show the outcome of a stored message for each receiver.",
        _show,
        f"`message`, `channel`, `key` (its idempotency key, or empty), `publishedAt`; {_CONTENT}, null if the store no"
        " longer has them. `recorded`: whether its publish is still among the facts. `partial`: whether there are more"
        " facts than one request reads. `redriveOf`, `redrivenAs`: its other ids. `scheduledAs`: the id under which it was"
        " scheduled, or empty. `schedule`: null, or of a scheduled message `deliverAt` (null if no longer recorded),"
        " `publishedAs` (its id since it was published, or empty) and `cancelled` (null, or `at` and `who`)."
        " `firstPublishedAt`: its first publish, before it was redriven, or null. `receivers`, a list, with `receiver`,"
        " `state` (waiting, acknowledged, dead letter, or another reason for its end), `at` and `code`. Where they are known,"
        " also `attempts`, `why`, `held` (true if this message put the receiver on hold), `letter`, `reason`, `redrivenAs`,"
        " `filters` (of its subscriptions) and `discarded`:"
        " `letter`, `at`, `who`, `reason`, `job`. `notFor`: subscribers that do not receive it, each with `why`. Each"
        " list has at most 1,000 entries, receivers that lack the message first; `states` counts all receivers.",
        Example({"receiver": "joe"}, {"receivers": [{"receiver": "client/joe/1", "state": "acknowledged"}]}),
        query=(text_field("receiver", "Only receivers with this text in their names."),),
        refusals={404: "There is no record of the message, or it has been removed."},
        about=About.MANY,
        merge=Parts(_as_one, may_lack=True),
    ),
    Route(
        "GET",
        "/messages",
        "Search the stored messages by a text, a field of their data or idempotency key, the newest first.",
        _search,
        f"`messages`, a list, each with `message` (its id), `channel`, `publishedAt`, {_CONTENT}. `next`, the cursor of"
        " the next page, empty if this is the last: earlier pages may be short or empty. `queued`, on the first page:"
        " messages in the queues of subjects and groups, in the same form; `queuedPartial`: whether there may be more."
        " A search by text or field finds messages that are or recently were pending, but not those that were redriven to a"
        " receiver. A search by key finds messages as long as their facts exist; their data is null if the store no"
        " longer has it.",
        Example({"key": "order-5"}, {"messages": [{"message": SAMPLES["message"], "channel": "/kitchen/orders"}]}),
        query=(
            text_field("contains", "Only those with this text in data, options or sender."),
            WITH_FIELD,
            text_field("key", "Only those that were published with this idempotency key."),
            text_field("after", "`next` of the previous page.", cursor(_place)),
            count_text("At most this many messages.", _FOUND),
        ),
        about=About.MANY,
    ),
    Route(
        "GET",
        "/dead-letters/{id}/end",
        "Show the outcome of a removed dead letter.",
        _show_end,
        "`end` (redriven, discarded, restored, or kept: it is still there) and `message` (its id, if recorded). If the dead"
        " letter has been removed, also `at` and `job` (empty without a job); if redriven, `redrivenAs`, and `edited` if an"
        " operator changed the message; if discarded, `who`, `reason`, and `binned`: whether"
        " it can be restored; if restored, `restoredAs`, its new id, and `who`.",
        Example({}, {"end": "redriven", "message": SAMPLES["message"], "redrivenAs": SAMPLES["message"]}),
        refusals={
            404: "There is no record of the dead letter, or the record has been removed, or the dead letter was dropped."
        },
        about=About.MANY,
    ),
)
