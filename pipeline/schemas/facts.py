"""Silver, made from facts and dead letters: one table a type of fact, one row a message, pattern or receiver.

A log id is microseconds since 1970 by the store's clock, the id that clients see. A receiver is the name of a session,
`client/joe/1`, or, for a shared queue, `client/joe` or `group:<pattern> <group>`.
"""

from __future__ import annotations

from typing import Final

from crewel.pipeline.schemas.bronze import BYTES, PLACE
from crewel.pipeline.schemas.table import Column, Layer, Table

_LOG_ID: Final = Column("log_id", "bigint", "Log id of the message.", "us")
_CHANNEL: Final = Column("channel", "string", "Channel of the message.")
CODE_GIVEN: Final = Column(
    "code_given", "string", "The code as the receiver gave it, if another one counts; null otherwise.", nullable=True
)
"""Beside a dotted code that a receiver caused."""
SHAPE: Final = Column(
    "shape", "string", "Fields of the data and their types, without values: `{n: number, lines: [{sku: text}]}`."
)
_SESSION: Final = Column("session", "string", "Name of the session.")
_QUEUE: Final = Column("queue", "string", "Name of the shared queue.")
_PATTERN: Final = Column("pattern", "string", "The pattern of the subscription.")
_FROM: Final = Column("from_id", "bigint", "Log id: later messages are pending for the session.", "us")
_OPTIONS: Final = Column(
    "options",
    "string",
    "The options of the subscription as JSON, an object or a list of objects; null if there are none.",
    nullable=True,
)
_FIRST: Final = Column(
    "first", "string", "Id that the dead letter had before it was ever restored; null if it never was.", nullable=True
)
_GROUPS: Final = Column(
    "groups", "array<string>", "Names of the shared queues of the groups that the session joins or leaves."
)


def _fact(name: str, meaning: str, *columns: Column, key: tuple[str, ...] = ()) -> Table:
    return Table(Layer.SILVER, f"fact_{name}", meaning, (*PLACE, BYTES, *columns), key=("place", *key))


_PUBLISHED = _fact(
    "published",
    "Messages that entered the log, one row each.",
    _LOG_ID,
    Column(
        "channel",
        "string",
        "Channel of the message; empty for a message that only its history gets, because of `forceUpdate: false`.",
    ),
    Column(
        "scheduled_id",
        "bigint",
        "Id under which it was scheduled; null if it was published at once.",
        "us",
        nullable=True,
    ),
    key=("log_id",),
)
_SCHEDULED = _fact(
    "scheduled",
    "Messages that are to be published later, one row each.",
    Column("log_id", "bigint", "Id of the scheduled message; it gets another one when it is published.", "us"),
    _CHANNEL,
    Column("due", "timestamp", "When it is to be published.", "UTC"),
    key=("log_id",),
)
_CANCELLED = _fact(
    "cancelled",
    "Scheduled messages that were cancelled, one row each.",
    Column("log_id", "bigint", "Id of the scheduled message.", "us"),
    _CHANNEL,
    Column(
        "who", "string", "The operator, or the name of the session that cancelled it; null if unknown.", nullable=True
    ),
    key=("log_id",),
)
_ADDRESSED = _fact(
    "addressed",
    "Messages for certain receivers, one row per receiver.",
    _LOG_ID,
    _CHANNEL,
    Column("receiver", "string", "Name of the session for which it is pending, or of the shared queue where it waits."),
    Column("is_queue", "boolean", "Whether the receiver is a shared queue."),
    key=("log_id", "receiver"),
)
_LEASED = _fact(
    "leased",
    "Messages that a session got from a shared queue. They are then pending for it.",
    _LOG_ID,
    _QUEUE,
    _SESSION,
    key=("log_id", "session"),
)
_RETURNED = _fact("returned", "Messages that went back to a shared queue.", _LOG_ID, _QUEUE, key=("log_id",))
_ERASED = _fact(
    "erased",
    "Topics that were removed with their history.",
    Column("channel", "string", "Channel of the topic."),
    Column("messages", "bigint", "How many messages its history had.", "messages"),
)
_SESSIONS = _fact(
    "sessions",
    "Sessions with `ext.ack` that started or ended completely.",
    _SESSION,
    Column("what", "string", "`opened` or `closed`."),
)
_SUBSCRIBED = _fact(
    "subscribed",
    "Subscriptions that started, and their options, one row per pattern.",
    _SESSION,
    _PATTERN,
    Column(
        "begins",
        "boolean",
        "Whether a subscription starts. False if only its options changed, or if a group distributes the messages.",
    ),
    _FROM,
    _OPTIONS,
    _GROUPS,
    key=("pattern",),
)
_UNSUBSCRIBED = _fact(
    "unsubscribed",
    "Subscriptions that ended, one row per pattern.",
    _SESSION,
    _PATTERN,
    _FROM,
    Column("until_id", "bigint", "Log id: later messages are not for the session.", "us"),
    _GROUPS,
    key=("pattern", "from_id"),
)
_ENDED = _fact(
    "ended",
    "Messages that ended for a receiver, one row each.",
    _LOG_ID,
    Column("receiver", "string", "Name of the session; for messages in a shared queue, the name of the queue."),
    Column(
        "reason", "string", "`settled`, `dead`, `expired`, `erased`, `dropped`, `filtered`, `lapsed` or `returned`."
    ),
    Column("code", "string", "Dotted error code of a dead letter; null otherwise.", nullable=True),
    Column("number", "int", "Number of the row within the entry, from 0."),
    CODE_GIVEN,
    key=("number",),
)
_REDRIVEN = _fact(
    "redriven",
    "Dead letters that were redriven.",
    Column("letter", "string", "Id of the dead letter, which is removed."),
    Column("message_id", "string", "Earlier id of the message."),
    _LOG_ID,
    Column(
        "session",
        "string",
        "Name of the receiver, a session or a shared queue; null if it went to the channel.",
        nullable=True,
    ),
    Column("channel", "string", "Channel it was published to; null if it went to the receiver.", nullable=True),
    Column("code", "string", "Dotted error code of the dead letter."),
    Column("returns", "bigint", "How often the message has been redriven.", "times"),
    _FIRST,
    key=("letter",),
)
_DISCARDED = _fact(
    "discarded",
    "Dead letters that were discarded, one row each.",
    Column("letter", "string", "Id of the dead letter."),
    Column("who", "string", "The operator; null if unknown.", nullable=True),
    _FIRST,
    key=("letter",),
)
_RESTORED = _fact(
    "restored",
    "Discarded dead letters that were restored, one row each.",
    Column("letter", "string", "Id of the dead letter that was discarded."),
    Column("restored_as", "string", "Its id from then on."),
    Column("who", "string", "The operator; null if unknown.", nullable=True),
    _FIRST,
    key=("letter",),
)
_HELD = _fact(
    "held",
    "Receivers to which delivery was paused.",
    _SESSION,
    Column("who", "string", "The operator; the name of the session if its client caused it, or with `sink`."),
    Column("since", "timestamp", "Start of the pause.", "UTC"),
    Column("code", "string", "Dotted error code that it reported, or that the operator gave, or empty."),
    Column("message_id", "string", "The message that it could not process, or empty."),
    Column("reason", "string", "A readable reason."),
    Column("active", "boolean", "False if messages wait in the queue."),
    Column("sink", "boolean", "True if messages become dead letters instead."),
)
_RELEASED = _fact("released", "Receivers to which delivery continued.", _SESSION)
LOST = _fact(
    "lost",
    "Losses that a server found in the store: confirmed messages that are missing, one row each time.",
    Column("node", "string", "Name of the server."),
    Column("from_id", "bigint", "Newest log id that the store has kept.", "us"),
    Column("until_id", "bigint", "Newest log id that the server had seen.", "us"),
    Column("messages", "bigint", "How many confirmed messages are missing.", "messages"),
    Column(
        "kept", "string", "Place of the newest fact that the store has kept; later ones no longer hold, up to `met_ms`."
    ),
    Column("met_ms", "bigint", "When a server first found the loss, since 1970.", "ms"),
    Column("firsts", "array<bigint>", "Log ids of the missing messages: the first of each range."),
    Column("lasts", "array<bigint>", "The last of each range."),
)

INTERVALS: Final = Table(
    Layer.SILVER,
    "intervals",
    "Subscriptions as intervals of the log. Each message in the interval on a matching channel is for the session, once.",
    (
        _SESSION,
        _PATTERN,
        _FROM,
        Column(
            "until_id",
            "bigint",
            "Log id: later messages are not for the session; null while the subscription exists.",
            "us",
            nullable=True,
        ),
        _OPTIONS,
        _GROUPS,
        Column("subscribed", "string", "Place of the fact; null if it was trimmed before it was read.", nullable=True),
        Column("unsubscribed", "string", "Place of the fact; null while the subscription exists.", nullable=True),
    ),
    key=("session", "pattern", "from_id"),
    partitions=(),
    is_derived=True,
)

LETTERS: Final = Table(
    Layer.SILVER,
    "letters",
    "Dead letters in the store: one message, one receiver. Redriven and discarded ones are removed.",
    (
        *PLACE,
        Column("message_id", "string", "Id of the message, as delivered."),
        Column("received_ns", "bigint", "When the message was accepted, since 1970.", "ns"),
        Column("receiver", "string", "Name of the session, or of the shared queue where it waited."),
        Column("channel", "string", "Channel of the message; empty if the message no longer exists."),
        Column("code", "string", "Dotted error code."),
        Column("reason", "string", "A readable reason."),
        Column("attempts", "int", "How often the message may have been delivered.", "times"),
        Column("returns", "int", "How often the message was redriven and failed again.", "times"),
        Column("sender", "string", "Name of the session that published it."),
        Column("qos", "string", "Options of the publish as JSON; empty if there are none."),
        Column("body", "string", "The message as JSON, without its id."),
        SHAPE,
        Column("is_persistent", "boolean", "Whether the message was stored; if not, no fact records its end."),
        Column("redrive_of", "string", "Id of the earlier dead letter that was redriven; empty if there is none."),
        CODE_GIVEN,
        Column(
            "died",
            "timestamp",
            "When the message died: earlier than `at` if the dead letter was discarded and restored.",
            "UTC",
            nullable=True,
        ),
    ),
    key=("place",),
    partitions=(),
    is_derived=True,
)

CORRUPT: Final = Table(
    Layer.SILVER,
    "corrupt",
    "Entries that could not be parsed. They do not stop the job.",
    (
        Column("key", "string", "The stream: `facts`, `events` or `dead`."),
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
    "Entries of a stream that were trimmed before they were read. Their content is unknown.",
    (
        Column("key", "string", "The stream: `facts` or `events`."),
        *PLACE,
        Column("before", "string", "Place of the first entry after the gap; null if there is none.", nullable=True),
        Column("before_ms", "bigint", "First half of `before`.", "ms", nullable=True),
        Column("lost", "bigint", "How many entries are missing; null if unknown.", "entries", nullable=True),
    ),
    key=("key", "place"),
)
"""Its place is that of what was read last before the gap."""

FACTS: Final = (
    _PUBLISHED,
    _SCHEDULED,
    _CANCELLED,
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
    _RESTORED,
    _HELD,
    _RELEASED,
    LOST,
    INTERVALS,
    LETTERS,
    GAPS,
    CORRUPT,
)
