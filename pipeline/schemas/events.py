"""Silver, made from events: one table a type, and one of the groups, which tell what was lost."""

from __future__ import annotations

from typing import Final

from crewel.pipeline.schemas.bronze import BYTES, PLACE
from crewel.pipeline.schemas.table import Column, Layer, Table
from crewel.storage.streams import BUCKETS_MS

EVENT_VERSIONS: Final = (1,)
"""The versions of groups that are understood; all others are kept in `corrupt`."""

_RUN: Final = (
    Column("node", "string", "Name of the server."),
    Column("token", "string", "Which run of the server."),
    Column("n", "bigint", "Number of the group: 1, 2, 3 for each token."),
)
_INDEX: Final = Column("index", "int", "Which event of the group it is, from 0.")
_HAPPENED: Final = Column("happened", "timestamp", "When it happened, by the server's clock.", "UTC")
_SINCE: Final = Column("since", "timestamp", "From when on the group tells, by the server's clock.", "UTC")
_UNTIL: Final = Column("until", "timestamp", "Until when the group tells, by the server's clock.", "UTC")
_SESSION: Final = Column("session", "string", "Name of the session.")
_CHANNEL: Final = Column("channel", "string", "Name of the channel.")


def _event(name: str, meaning: str, *columns: Column) -> Table:
    return Table(
        Layer.SILVER, f"event_{name}", meaning, (*PLACE, BYTES, *_RUN, _INDEX, *columns), key=("place", "index")
    )


GROUPS: Final = Table(
    Layer.SILVER,
    "event_groups",
    "Groups of events. A number that is missing for a token is a group that was lost.",
    (
        *PLACE,
        *_RUN,
        _SINCE,
        _UNTIL,
        Column("lost", "bigint", "How many events of this time were lost.", "events"),
        Column("events", "int", "How many events it holds.", "events"),
    ),
    key=("place",),
)

EVENTS: Final = (
    GROUPS,
    _event(
        "opened",
        "Sessions with a name that began.",
        _HAPPENED,
        _SESSION,
        Column("reliable", "boolean", "Whether it acknowledges."),
        Column("transport", "string", "Type of the connection that it shook hands on."),
    ),
    _event(
        "closed",
        "Sessions with a name that ended.",
        _HAPPENED,
        _SESSION,
        Column("reliable", "boolean", "Whether it acknowledges."),
        Column("reason", "string", "`disconnected`, `expired` or `dead`."),
        Column("code", "string", "Dotted code of a receiver that failed for good; empty otherwise."),
    ),
    _event(
        "failed",
        "Failures that receivers reported, and statuses that did not come in time.",
        _HAPPENED,
        _SESSION,
        _CHANNEL,
        Column("message_id", "string", "Id of the message."),
        Column("code", "string", "Dotted code, as it counted."),
        Column("outcome", "string", "`letter`, `waits` or `held`."),
    ),
    _event(
        "held",
        "Sessions that were held back.",
        _HAPPENED,
        _SESSION,
        Column("who", "string", "Who held it back: the receiver itself, or an operator."),
        Column("code", "string", "Dotted code that was reported; empty if an operator did it."),
        Column("message_id", "string", "Id of the message that is held; empty if an operator did it."),
    ),
    _event("released", "Sessions that are held back no more.", _HAPPENED, _SESSION),
    _event(
        "overflow",
        "Queues that were full, a row a group, session and policy.",
        _SINCE,
        _UNTIL,
        _SESSION,
        Column("policy", "string", "What was done, by the names of `queue.onOverflow`."),
        Column("count", "bigint", "How many messages it met.", "messages"),
    ),
    _event(
        "redelivered",
        "Messages that went again to a session, a row a group and session.",
        _SINCE,
        _UNTIL,
        _SESSION,
        Column("count", "bigint", "How many.", "messages"),
    ),
    _event(
        "settled",
        "Stored messages that were settled, a row a group and channel.",
        _SINCE,
        _UNTIL,
        _CHANNEL,
        Column("count", "bigint", "How many.", "messages"),
        Column("sum_ms", "bigint", "How long they took in all, from the log to the settling.", "ms"),
        Column(
            "buckets",
            "array<bigint>",
            f"How many took at most {', '.join(map(str, BUCKETS_MS))} ms and more than the bound before; and last, how many"
            " took longer.",
            "messages",
        ),
    ),
    _event(
        "traffic",
        "Messages that are not stored, a row a group and channel.",
        _SINCE,
        _UNTIL,
        _CHANNEL,
        Column("published", "bigint", "How many.", "messages"),
        Column("delivered", "bigint", "How many were queued for a receiver.", "messages"),
    ),
    _event(
        "visitors",
        "Sessions without a name that began and ended, a row a group.",
        _SINCE,
        _UNTIL,
        Column("opened", "bigint", "How many began.", "sessions"),
        Column("closed", "bigint", "How many ended.", "sessions"),
    ),
)
