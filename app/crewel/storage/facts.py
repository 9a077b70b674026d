"""The facts: what happened to each message, written by the scripts in the same step that made it happen.

An entry of the stream `facts` has a type `t` and a JSON object `d`. This is the one place that says what the objects hold;
docs/reference/facts.md is generated from it, and the pipeline reads by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import orjson

from crewel.delivery.records import Disposition, EndReason, LogId, PendingDeadLetter, SessionName
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step


class Field(NamedTuple):
    """One field of a JSON object."""

    type: str
    """In the words of SQL: `bigint`, `string`, `boolean`, `array<...>`, `map<string, string>`; `array<struct>` of objects,
    whose fields follow, `name[].field`."""
    meaning: str


@dataclass(frozen=True, slots=True)
class FactType:
    """One type of fact: when it is written, and the fields of its object."""

    name: str
    written: str
    fields: Mapping[str, Field]


_ID: Final = "bigint"
_IDS: Final = "array<bigint>"
_TEXT: Final = "string"
_TEXTS: Final = "array<string>"
_OBJECTS: Final = "array<struct>"

FACTS: Final[tuple[FactType, ...]] = (
    FactType(
        "published",
        "when messages enter the log, one entry per group commit",
        {
            "first": Field(_ID, "Log id of the first message; the ids of the others follow without a gap."),
            "channels": Field(
                _TEXTS,
                "The channels of the messages, in the order of their ids; empty for a message that only its history gets,"
                " because of `forceUpdate: false`.",
            ),
            "keys": Field(
                "map<string, string>",
                "By log id, the idempotency keys of those that have one; left out if none has.",
            ),
            "scheduled": Field(
                "map<string, bigint>", "By log id, the ids under which they were scheduled; left out if none was."
            ),
        },
    ),
    FactType(
        "scheduled",
        "when a message is stored that is to be published later",
        {
            "id": Field(_ID, "Its id; it gets another one when it is published."),
            "channel": Field(_TEXT, "Its channel."),
            "at": Field(_ID, "When it is to be published: milliseconds since 1970."),
            "key": Field(_TEXT, "Its idempotency key; left out if it has none."),
        },
    ),
    FactType(
        "cancelled",
        "when scheduled messages are cancelled, one entry per step",
        {
            "ids": Field(_IDS, "Their ids."),
            "channels": Field(_TEXTS, "Their channels, in the same order."),
            "who": Field(_TEXT, "The operator, or the session of its publisher; left out if unknown."),
        },
    ),
    FactType(
        "addressed",
        "when a message is stored for certain receivers: sessions, or shared queues",
        {
            "id": Field(_ID, "Log id of the message."),
            "channel": Field(_TEXT, "Its channel."),
            "sessions": Field(_TEXTS, "Names of the sessions for which it is pending."),
            "queues": Field(
                _TEXTS, "Names of the shared queues where it waits: `client/joe` for a subject, or `group:...`."
            ),
            "key": Field(_TEXT, "Its idempotency key; left out if it has none."),
        },
    ),
    FactType(
        "leased",
        "when sessions get messages from a shared queue, which are then pending for them",
        {
            "queue": Field(_TEXT, "Name of the shared queue."),
            "leases": Field(_OBJECTS, "A list of objects, one per session."),
            "leases[].session": Field(_TEXT, "Its name."),
            "leases[].ids": Field(_IDS, "Log ids of the messages."),
        },
    ),
    FactType(
        "returned",
        "when messages go back to a shared queue; they have ended for the sessions that had them",
        {"queue": Field(_TEXT, "Name of the shared queue."), "ids": Field(_IDS, "Log ids of the messages.")},
    ),
    FactType(
        "erased",
        "when a topic is removed with its history; pending deliveries end separately",
        {"channel": Field(_TEXT, "The topic's channel."), "messages": Field(_ID, "How many messages its history had.")},
    ),
    FactType(
        "opened-session",
        "when a session with `ext.ack` starts",
        {"session": Field(_TEXT, "Its name, `client/joe/1`.")},
    ),
    FactType(
        "subscribed",
        "when a session subscribes to a new pattern, joins a group, or changes the options of a subscription",
        {
            "session": Field(_TEXT, "Name of the session."),
            "patterns": Field(_TEXTS, "The new patterns; none if only groups or options change."),
            "from": Field(_ID, "Log id: later messages are pending for the session."),
            "groups": Field(
                _TEXTS,
                "Names of the shared queues of the groups that it joins; left out if there are none.",
            ),
            "options": Field(
                "map<string, string>",
                "By pattern, the options of the subscription, an object or a list of objects; left out if nothing has changed.",
            ),
        },
    ),
    FactType(
        "unsubscribed",
        "when subscriptions end, including at the end of the session",
        {
            "session": Field(_TEXT, "Name of the session."),
            "patterns": Field(_TEXTS, "The patterns it was subscribed to."),
            "from": Field(_IDS, "Log ids, one per pattern: later messages were pending for the session."),
            "until": Field(_ID, "Log id: later messages are not for the session."),
            "groups": Field(
                _TEXTS,
                "Names of the shared queues of the groups that it leaves; left out if there are none, and at the end of the"
                " session.",
            ),
        },
    ),
    FactType(
        "ended",
        "when messages have ended for their receivers, one entry per commit and one per end of a session",
        {
            "ended": Field(
                _OBJECTS, "A list of objects, each for one session, reason and code; several may have the same."
            ),
            "ended[].session": Field(
                _TEXT, "Name of the receiver; for messages in a shared queue, the name of the queue."
            ),
            "ended[].reason": Field(
                _TEXT, "How the messages ended: " + ", ".join(f"`{reason}`" for reason in EndReason) + "."
            ),
            "ended[].code": Field(_TEXT, "Dotted error code, for dead letters only."),
            "ended[].given": Field(
                _TEXT, "The error code as the receiver gave it, if another one counts; left out otherwise."
            ),
            "ended[].ids": Field(_IDS, "Log ids of the messages."),
        },
    ),
    FactType(
        "held",
        "when delivery to a receiver is paused",
        {
            "session": Field(_TEXT, "Name of the session."),
            "who": Field(
                _TEXT, "The operator, or the name of the session if its client caused it; left out with `sink`."
            ),
            "since": Field(_ID, "Milliseconds since 1970."),
            "code": Field(_TEXT, "Dotted error code that it reported, or that the operator gave, or empty."),
            "id": Field(_TEXT, "The message that it could not process, or empty; left out with `sink`."),
            "reason": Field(_TEXT, "A readable reason."),
            "active": Field("boolean", "`false` if messages wait in the queue; left out with `sink`."),
            "sink": Field("boolean", "`true` if messages become dead letters instead; left out otherwise."),
            "given": Field(_TEXT, "The code as the receiver gave it, if another one counts; left out otherwise."),
        },
    ),
    FactType(
        "released",
        "when delivery to a receiver continues after a pause",
        {"session": Field(_TEXT, "Name of the session.")},
    ),
    FactType(
        "redriven",
        "when a dead letter is redriven. This adds one message, for one session or, with the preceding facts `published`"
        " and `addressed`, for a channel and its consumer groups",
        {
            "letter": Field(_TEXT, "Id of the dead letter, which is removed."),
            "message": Field(_TEXT, "Earlier id of the message, a string."),
            "id": Field(_ID, "New log id."),
            "session": Field(
                _TEXT, "Name of the receiver, a session or a shared queue; left out if it went to the channel."
            ),
            "channel": Field(_TEXT, "The channel it was published to; left out if it went to the receiver."),
            "code": Field(_TEXT, "Dotted error code of the dead letter."),
            "returns": Field(_ID, "How often the message has been redriven."),
            "edited": Field("boolean", "`true` if an operator edited the message; left out otherwise."),
            "first": Field(_TEXT, "Id that the dead letter had before it was restored; left out if it never was."),
            "job": Field(_TEXT, "Id of the job that redrove it; left out if none did."),
        },
    ),
    FactType(
        "discarded",
        "when dead letters are discarded, one entry per step",
        {
            "letters": Field(_TEXTS, "Ids of the dead letters."),
            "messages": Field(_TEXTS, "Ids of their messages, in the same order."),
            "receivers": Field(_TEXTS, "Their receivers, in the same order."),
            "who": Field(_TEXT, "The operator; left out if unknown."),
            "job": Field(_TEXT, "Id of the job that discarded them; left out if none did."),
            "firsts": Field(
                _TEXTS,
                "Ids that they had before they were restored, or else their own; left out if none of them was restored.",
            ),
        },
    ),
    FactType(
        "restored",
        "when discarded dead letters are restored, one entry per step",
        {
            "letters": Field(_TEXTS, "Ids of the dead letters that were discarded."),
            "as": Field(_TEXTS, "Their ids from now on, in the same order."),
            "firsts": Field(_TEXTS, "The ids that they had first."),
            "messages": Field(_TEXTS, "Ids of their messages."),
            "receivers": Field(_TEXTS, "Their receivers."),
            "who": Field(_TEXT, "The operator; left out if unknown."),
        },
    ),
    FactType(
        "closed-session",
        "when the end of a session is complete, after the ends of its messages",
        {"session": Field(_TEXT, "Its name.")},
    ),
    FactType(
        "lost",
        "when a server finds that the store no longer has messages that it had confirmed, for example after a"
        " fail-over",
        {
            "node": Field(_TEXT, "The `node.name` of the server."),
            "from": Field(_ID, "Newest log id that the store has kept."),
            "until": Field(_ID, "Newest log id that the server had seen. All new messages have later ones."),
            "messages": Field(_ID, "How many confirmed messages are missing."),
            "fact": Field(
                _TEXT, "Id of the newest fact that the store has kept. Later ones no longer hold, up to `met`."
            ),
            "met": Field(_ID, "When a server first found the loss: milliseconds since 1970, by the store's clock."),
            "first": Field(
                _IDS,
                "Log ids of the missing messages: the first of each range without a gap, for at most 1,000 ranges.",
            ),
            "last": Field(_IDS, "The last of each range."),
        },
    ),
)
"""Every type of fact."""


def ends(ended: Iterable[Disposition], letters: Sequence[PendingDeadLetter]) -> dict[SessionName, list[bytes]]:
    """Return for each session the objects of the fact `ended`, as JSON. The dead letters have the codes of dead messages."""
    codes = {(letter.session, letter.id): (letter.code, letter.given) for letter in letters}
    objects: dict[SessionName, list[bytes]] = {}
    for each in ended:
        texts = objects.setdefault(each.session, [])
        if each.reason is EndReason.DEAD:
            texts.extend(_deaths(each, codes))
        else:
            texts.append(orjson.dumps({"session": each.session, "reason": each.reason, "ids": each.ids}))
    return objects


def _deaths(ended: Disposition, codes: Mapping[tuple[SessionName, LogId], tuple[str, str]]) -> Iterable[bytes]:
    def code(log_id: LogId) -> tuple[str, str]:
        return codes.get((ended.session, log_id), ("", ""))

    for (text, given), ids in groupby(sorted(ended.ids, key=code), code):
        more = {"given": given} if given else {}
        fact = {"session": ended.session, "reason": ended.reason, "code": text, **more, "ids": list(ids)}
        yield orjson.dumps(fact)


def trim(k: Keys, max_bytes: int) -> Step[int]:
    """Let the oldest facts go if they take more memory than this, about. Returns how many have gone."""
    return Step("trim_facts", (k.facts,), (max_bytes,), int)
