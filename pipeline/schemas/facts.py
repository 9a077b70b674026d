"""Silver, made from facts and dead letters: one table a type of fact, one row a message, pattern or receiver.

A log id is microseconds since 1970 by the store's clock, the id that clients see. A receiver is the name of a session,
`client/joe/1`, or where it says so of a shared queue, `client/joe` or `group:<pattern> <group>`.
"""

from __future__ import annotations

from typing import Final

from crewel.pipeline.schemas.bronze import BYTES, PLACE
from crewel.pipeline.schemas.table import Column, Layer, Table

_LOG_ID: Final = Column("log_id", "bigint", "Log id of the message.", "us")
_CHANNEL: Final = Column("channel", "string", "Channel of the message.")
_SESSION: Final = Column("session", "string", "Name of the session.")
_QUEUE: Final = Column("queue", "string", "Name of the shared queue.")
_PATTERN: Final = Column("pattern", "string", "What is subscribed to.")
_FROM: Final = Column("from_id", "bigint", "Log id: what came after it is owed.", "us")
_OPTIONS: Final = Column(
    "options", "string", "What was asked for it, as JSON: an object or a list of some; null if nothing.", nullable=True
)
_GROUPS: Final = Column("groups", "array<string>", "Names of the shared queues of groups that come or go with it.")


def _fact(name: str, meaning: str, *columns: Column, key: tuple[str, ...] = ()) -> Table:
    return Table(Layer.SILVER, f"fact_{name}", meaning, (*PLACE, BYTES, *columns), key=("place", *key))


_PUBLISHED = _fact(
    "published",
    "Messages that entered the log, a row each.",
    _LOG_ID,
    Column("channel", "string", "Channel of the message; empty for one that nobody is owed."),
    key=("log_id",),
)
_ADDRESSED = _fact(
    "addressed",
    "Messages for certain receivers, a row for each receiver.",
    _LOG_ID,
    _CHANNEL,
    Column("receiver", "string", "Name of the session that is owed it, or of the shared queue in which it waits."),
    Column("is_queue", "boolean", "Whether the receiver is a shared queue."),
    key=("log_id", "receiver"),
)
_LEASED = _fact(
    "leased",
    "Messages that went from a shared queue to a session, which is owed them from then on.",
    _LOG_ID,
    _QUEUE,
    _SESSION,
    key=("log_id", "session"),
)
_RETURNED = _fact("returned", "Messages that wait in a shared queue again.", _LOG_ID, _QUEUE, key=("log_id",))
_ERASED = _fact(
    "erased",
    "Topics that were removed with their history.",
    Column("channel", "string", "Channel of the topic."),
    Column("messages", "bigint", "How many its history had.", "messages"),
)
_SESSIONS = _fact(
    "sessions",
    "Reliable sessions that were made, and whose end was complete.",
    _SESSION,
    Column("what", "string", "`opened` or `closed`."),
)
_SUBSCRIBED = _fact(
    "subscribed",
    "Subscriptions that began, and what was asked for them, a row a pattern.",
    _SESSION,
    _PATTERN,
    Column(
        "begins",
        "boolean",
        "Whether a subscription begins. False if only what was asked for it has changed, or if a group decides who is owed it.",
    ),
    _FROM,
    _OPTIONS,
    _GROUPS,
    key=("pattern",),
)
_UNSUBSCRIBED = _fact(
    "unsubscribed",
    "Subscriptions that ended, a row a pattern.",
    _SESSION,
    _PATTERN,
    _FROM,
    Column("until_id", "bigint", "Log id: what came after it is not owed.", "us"),
    _GROUPS,
    key=("pattern", "from_id"),
)
_ENDED = _fact(
    "ended",
    "Messages that ended for a receiver, a row each.",
    _LOG_ID,
    Column("receiver", "string", "Name of the session; of what waited in a shared queue, the name of that."),
    Column(
        "reason", "string", "`settled`, `dead`, `expired`, `erased`, `dropped`, `filtered`, `lapsed` or `returned`."
    ),
    Column("code", "string", "Dotted error code of a dead letter; null otherwise.", nullable=True),
    Column("number", "int", "Which row of the entry it is, from 0."),
    key=("number",),
)
_REDRIVEN = _fact(
    "redriven",
    "Dead letters that were sent again.",
    Column("letter", "string", "Dead id of the letter, which is gone."),
    Column("message_id", "string", "Id that the message had."),
    _LOG_ID,
    Column("session", "string", "Name of the receiver; null if it went to the channel.", nullable=True),
    Column("channel", "string", "Channel to which it went; null if it went to the receiver.", nullable=True),
    Column("code", "string", "Dotted error code of the letter."),
    Column("returns", "bigint", "How often the message has been sent again.", "times"),
    key=("letter",),
)
_DISCARDED = _fact(
    "discarded",
    "Dead letters that were thrown away, a row each.",
    Column("letter", "string", "Dead id of the letter."),
    Column("who", "string", "Who wanted it; null if nobody said.", nullable=True),
    key=("letter",),
)
_HELD = _fact(
    "held",
    "Receivers that get nothing for the time being.",
    _SESSION,
    Column("who", "string", "The operator, or the session's own name if its client asked for it."),
    Column("since", "timestamp", "From when on.", "UTC"),
    Column("code", "string", "Dotted error code that it answered, or empty."),
    Column("message_id", "string", "The message that it could not take, or empty."),
    Column("reason", "string", "Why, in words."),
    Column("active", "boolean", "False if messages wait meanwhile."),
    Column("sink", "boolean", "True if they become dead letters instead."),
)
_RELEASED = _fact("released", "Receivers that get messages again.", _SESSION)

INTERVALS: Final = Table(
    Layer.SILVER,
    "intervals",
    "Subscriptions: intervals of the log. Each message in it whose channel the pattern matches is owed to the session once.",
    (
        _SESSION,
        _PATTERN,
        _FROM,
        Column(
            "until_id", "bigint", "Log id: what came after it is not owed; null while it is open.", "us", nullable=True
        ),
        _OPTIONS,
        _GROUPS,
        Column("subscribed", "string", "Place of the fact; null if it was trimmed before it was read.", nullable=True),
        Column("unsubscribed", "string", "Place of the fact; null while it is open.", nullable=True),
    ),
    key=("session", "pattern", "from_id"),
    partitions=(),
    is_derived=True,
)

LETTERS: Final = Table(
    Layer.SILVER,
    "letters",
    "Dead letters that are in the store: one message, one receiver. Those that were sent again or discarded are gone.",
    (
        *PLACE,
        Column("message_id", "string", "Id of the message, as its receiver saw it."),
        Column("received_ns", "bigint", "When the message was accepted, since 1970.", "ns"),
        Column("receiver", "string", "Name of the session, or of the shared queue in which it waited."),
        Column("channel", "string", "Channel of the message; empty if nothing is left of it."),
        Column("code", "string", "Dotted error code."),
        Column("reason", "string", "Why, in words."),
        Column("attempts", "int", "How often it may have been delivered.", "times"),
        Column("returns", "int", "How often it was sent again by an operator and died again.", "times"),
        Column("sender", "string", "Name of the session that published it."),
        Column("qos", "string", "What the publisher asked for, as JSON; empty if nothing."),
        Column("body", "string", "The message as JSON, less its id."),
        Column("is_persistent", "boolean", "Whether the store had the message; if not, no fact tells its end."),
        Column("redrive_of", "string", "Dead id of the letter that it was before; empty if it was none."),
    ),
    key=("place",),
    partitions=(),
    is_derived=True,
)

CORRUPT: Final = Table(
    Layer.SILVER,
    "corrupt",
    "Entries that could not be understood, kept apart. They stop nothing.",
    (
        Column("key", "string", "Which stream: `facts`, `events` or `dead`."),
        *PLACE,
        Column(
            "why",
            "string",
            "`no payload`, `not text`, `too long`, `not JSON`, `unknown type`, `unknown version` or `wrong fields`.",
        ),
        Column("t", "string", "Type of a fact; null otherwise.", nullable=True),
        Column("bytes", "bigint", "Length of the payload in the store.", "bytes"),
        Column("payload", "string", "As in `raw`.", nullable=True),
    ),
    key=("key", "place"),
)

GAPS: Final = Table(
    Layer.SILVER,
    "gaps",
    "Where entries of a stream were trimmed before they were read: what happened there is unknown.",
    (
        Column("key", "string", "Which stream: `facts` or `events`."),
        *PLACE,
        Column("before", "string", "Place of the first entry after the gap; null if there is none.", nullable=True),
        Column("before_ms", "bigint", "First half of that.", "ms", nullable=True),
        Column("lost", "bigint", "How many entries are missing; null if nobody knows.", "entries", nullable=True),
    ),
    key=("key", "place"),
)
"""Its place is that of what was read last before the gap."""

FACTS: Final = (
    _PUBLISHED,
    _ADDRESSED,
    _LEASED,
    _RETURNED,
    _ERASED,
    _SESSIONS,
    _SUBSCRIBED,
    _UNSUBSCRIBED,
    _ENDED,
    _REDRIVEN,
    _DISCARDED,
    _HELD,
    _RELEASED,
    INTERVALS,
    LETTERS,
    GAPS,
    CORRUPT,
)
