"""The facts: what happened to each message, written by the scripts in the same step that made it happen.

An entry of the stream `facts` has a type `t` and a JSON object `d`. This is the one place that says what the objects hold;
docs/facts.md is generated from it, and the pipeline reads by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import orjson

from crewel.delivery.records import Ended, EndReason, Letter, LogId, SessionName
from crewel.storage.keys import Keys
from crewel.storage.scripts import Step
from crewel.storage.store import Store


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
        "when messages enter the log, one entry a group",
        {
            "first": Field(_ID, "Log id of the first message; each further one has the id of the one before plus one."),
            "channels": Field(
                _TEXTS, "The channels of the messages, in the order of their ids; empty for one that nobody is owed."
            ),
        },
    ),
    FactType(
        "addressed",
        "when a message is put beside the log for certain receivers: they are owed it, or the members of a group are",
        {
            "id": Field(_ID, "Log id of the message."),
            "channel": Field(_TEXT, "Its channel."),
            "sessions": Field(_TEXTS, "Names of the sessions that are owed it."),
            "queues": Field(
                _TEXTS, "Names of the shared queues in which it waits: `client/joe`, of a subject, or `group:...`."
            ),
        },
    ),
    FactType(
        "leased",
        "when messages go from a shared queue to sessions, which are owed them from now on",
        {
            "queue": Field(_TEXT, "Name of the shared queue."),
            "leases": Field(_OBJECTS, "A list of objects, one a session."),
            "leases[].session": Field(_TEXT, "Its name."),
            "leases[].ids": Field(_IDS, "Log ids of the messages."),
        },
    ),
    FactType(
        "returned",
        "when messages that sessions were owed wait in a shared queue again; for the sessions they have ended",
        {"queue": Field(_TEXT, "Name of the shared queue."), "ids": Field(_IDS, "Log ids of the messages.")},
    ),
    FactType(
        "erased",
        "when a topic is removed with its history; what sessions are owed ends by itself",
        {"channel": Field(_TEXT, "The topic's channel."), "messages": Field(_ID, "How many its history had.")},
    ),
    FactType(
        "opened-session",
        "when a reliable session is made",
        {"session": Field(_TEXT, "Its name, `client/joe/1`.")},
    ),
    FactType(
        "subscribed",
        "when a session subscribes to what it was not subscribed to",
        {
            "session": Field(_TEXT, "Name of the session."),
            "patterns": Field(_TEXTS, "What it subscribed to."),
            "from": Field(_ID, "Log id: what came after it is owed."),
            "groups": Field(
                _TEXTS,
                "Names of the shared queues of groups that it is a member of from now on; left out if there are none.",
            ),
            "options": Field(
                "map<string, string>",
                "By pattern, what was asked for it, an object or a list of some; left out if nothing has changed.",
            ),
        },
    ),
    FactType(
        "unsubscribed",
        "when subscriptions end, also because the session's end has begun",
        {
            "session": Field(_TEXT, "Name of the session."),
            "patterns": Field(_TEXTS, "What it was subscribed to."),
            "from": Field(_IDS, "Log ids, one a pattern: what came after it was owed."),
            "until": Field(_ID, "Log id: what came after it is not owed."),
            "groups": Field(
                _TEXTS,
                "Names of the shared queues of groups that it is no member of any more; left out if there are none.",
            ),
        },
    ),
    FactType(
        "ended",
        "when messages have ended for their receivers, one entry a commit and one a session's end",
        {
            "ended": Field(
                _OBJECTS, "A list of objects, each about one session, reason and code; several may be about the same."
            ),
            "ended[].session": Field(
                _TEXT, "Name of the receiver; of messages that waited in a shared queue, the name of that."
            ),
            "ended[].reason": Field(
                _TEXT, "How the messages ended: " + ", ".join(f"`{reason}`" for reason in EndReason) + "."
            ),
            "ended[].code": Field(_TEXT, "Dotted error code of dead letters; left out otherwise."),
            "ended[].ids": Field(_IDS, "Log ids of the messages."),
        },
    ),
    FactType(
        "held",
        "when a receiver gets nothing for the time being",
        {
            "session": Field(_TEXT, "Name of the session."),
            "who": Field(_TEXT, "The operator, or the session's own name if its client asked for it."),
            "since": Field(_ID, "Milliseconds since 1970."),
            "code": Field(_TEXT, "Dotted error code that it answered, or empty."),
            "id": Field(_TEXT, "The message that it could not take, or empty."),
            "reason": Field(_TEXT, "Why, in words."),
            "active": Field("boolean", "`false`, if messages wait meanwhile."),
            "sink": Field("boolean", "`true`, if they become dead letters instead."),
        },
    ),
    FactType(
        "released",
        "when a receiver that was held gets messages again",
        {"session": Field(_TEXT, "Name of the session.")},
    ),
    FactType(
        "redriven",
        "when a dead letter is sent again: that is one more message, owed to one session, or published as the fact before"
        " says",
        {
            "letter": Field(_TEXT, "Dead id of the letter, which is gone."),
            "message": Field(_TEXT, "Id that the message had, a text."),
            "id": Field(_ID, "Log id that it has now."),
            "session": Field(_TEXT, "Name of the receiver; left out if it went to the channel."),
            "channel": Field(_TEXT, "The channel to which it went; left out if it went to the receiver."),
            "code": Field(_TEXT, "Dotted error code of the letter."),
            "returns": Field(_ID, "How often the message has been sent again."),
        },
    ),
    FactType(
        "discarded",
        "when dead letters are thrown away, one entry a step",
        {"letters": Field(_TEXTS, "Their dead ids."), "who": Field(_TEXT, "Who wanted it; left out if nobody said.")},
    ),
    FactType(
        "closed-session",
        "when the end of a session is complete, after the ends of its messages",
        {"session": Field(_TEXT, "Its name.")},
    ),
)
"""Every type of fact."""


def ends(ended: Iterable[Ended], letters: Sequence[Letter]) -> dict[SessionName, list[bytes]]:
    """Return for each session the objects of the fact `ended`, as JSON. The letters tell the codes of dead messages."""
    codes = {(letter.session, letter.id): letter.code for letter in letters}
    objects: dict[SessionName, list[bytes]] = {}
    for each in ended:
        texts = objects.setdefault(each.session, [])
        if each.reason is EndReason.DEAD:
            texts.extend(_deaths(each, codes))
        else:
            texts.append(orjson.dumps({"session": each.session, "reason": each.reason, "ids": each.ids}))
    return objects


def _deaths(ended: Ended, codes: Mapping[tuple[SessionName, LogId], str]) -> Iterable[bytes]:
    def code(log_id: LogId) -> str:
        return codes.get((ended.session, log_id), "")

    for text, ids in groupby(sorted(ended.ids, key=code), code):
        yield orjson.dumps({"session": ended.session, "reason": ended.reason, "code": text, "ids": list(ids)})


async def size(store: Store) -> int:
    """Return about how many bytes the facts take in the store's memory. Raises StoreError."""
    return int(await store.reader.memory_usage(store.keys.facts) or 0)


def trim(k: Keys, max_bytes: int) -> Step[int]:
    """Let the oldest facts go if they take more memory than this, about. Returns how many have gone."""
    return Step("trim_facts", (k.facts,), (max_bytes,), int)
