"""Silver, made from events: one table a type, and one of the groups, which tell what was lost."""

from __future__ import annotations

from typing import Final

from crewel.pipeline.schemas.bronze import BYTES, PLACE
from crewel.pipeline.schemas.facts import CODE_GIVEN, SHAPE
from crewel.pipeline.schemas.table import Column, Layer, Table
from crewel.storage.streams import BUCKETS_MS

EVENT_VERSIONS: Final = (1,)
"""The versions of groups that are understood; all others are kept in `corrupt`."""

RUN: Final = (
    Column("node", "string", "Name of the server."),
    Column("token", "string", "The run of the server."),
    Column("n", "bigint", "Number of the group of events: 1, 2, 3 for each token."),
)
"""The columns of each table of silver that is made from events: the group that the row comes from."""
_INDEX: Final = Column("index", "int", "Number of the event within the group, from 0.")
_HAPPENED: Final = Column("happened", "timestamp", "When it happened, by the server's clock.", "UTC")
_SINCE: Final = Column("since", "timestamp", "Start of the period of the group, by the server's clock.", "UTC")
_UNTIL: Final = Column("until", "timestamp", "End of the period of the group, by the server's clock.", "UTC")
_SESSION: Final = Column("session", "string", "Name of the session.")
_CHANNEL: Final = Column("channel", "string", "Name of the channel.")


def _event(name: str, meaning: str, *columns: Column) -> Table:
    return Table(
        Layer.SILVER, f"event_{name}", meaning, (*PLACE, BYTES, *RUN, _INDEX, *columns), key=("place", "index")
    )


GROUPS: Final = Table(
    Layer.SILVER,
    "event_groups",
    "Groups of events. A missing number of a token is a lost group.",
    (
        *PLACE,
        *RUN,
        _SINCE,
        _UNTIL,
        Column("lost", "bigint", "How many events of this period were lost.", "events"),
        Column("events", "int", "How many events the group holds.", "events"),
    ),
    key=("place",),
)

EVENTS: Final = (
    GROUPS,
    _event(
        "opened",
        "Sessions that started: all with `ext.ack`, and with `events.level` `all` also others that have a name. The server"
        " names a session with `ext.ack` that asks for no name `client/anonymous/` and a number.",
        _HAPPENED,
        _SESSION,
        Column("reliable", "boolean", "Whether it uses `ext.ack`."),
        Column("transport", "string", "Connection type of the handshake."),
    ),
    _event(
        "closed",
        "Sessions that ended: those of `event_opened`.",
        _HAPPENED,
        _SESSION,
        Column("reliable", "boolean", "Whether it uses `ext.ack`."),
        Column("reason", "string", "`disconnected`, `expired` or `dead`."),
        Column("code", "string", "Dotted code with the reason `dead`; empty otherwise."),
        Column(
            "silent_ms",
            "bigint",
            "Time since the last request of its client; null if an earlier server wrote the event.",
            "ms",
            nullable=True,
        ),
    ),
    _event(
        "failed",
        "Failures that receivers reported, and statuses that they did not send in time.",
        _HAPPENED,
        _SESSION,
        _CHANNEL,
        Column("message_id", "string", "Id of the message."),
        Column("code", "string", "Dotted code that the server applied."),
        Column("outcome", "string", "`letter`, `waits` or `held`."),
        CODE_GIVEN,
    ),
    _event(
        "held",
        "Sessions that were put on hold.",
        _HAPPENED,
        _SESSION,
        Column("who", "string", "The cause: the receiver itself, or an operator."),
        Column("code", "string", "Dotted code that the receiver reported, or that the operator gave, or empty."),
        Column("message_id", "string", "Id of the message that failed; empty for an operator."),
    ),
    _event("released", "Sessions whose holdback ended.", _HAPPENED, _SESSION),
    _event(
        "overflow",
        "Full queues, one row per group, session and policy.",
        _SINCE,
        _UNTIL,
        _SESSION,
        Column("policy", "string", "The overflow policy: a value of `queue.onOverflow`."),
        Column("count", "bigint", "Number of affected messages.", "messages"),
    ),
    _event(
        "redelivered",
        "Messages that a session got again, one row per group and session.",
        _SINCE,
        _UNTIL,
        _SESSION,
        Column("count", "bigint", "Number of messages.", "messages"),
    ),
    _event(
        "settled",
        "Stored messages that were acknowledged, one row per group and channel.",
        _SINCE,
        _UNTIL,
        _CHANNEL,
        Column("count", "bigint", "Number of messages.", "messages"),
        Column("sum_ms", "bigint", "Sum of their times from the log to the acknowledgement.", "ms"),
        Column(
            "buckets",
            "array<bigint>",
            f"How many took at most {', '.join(map(str, BUCKETS_MS))} ms and more than the previous bound; last, how many"
            " took longer.",
            "messages",
        ),
    ),
    _event(
        "shape",
        "Shapes of acknowledged messages, by sample: a row for each channel whose sample has another shape than the one before"
        " it, and one an hour.",
        _HAPPENED,
        _CHANNEL,
        SHAPE,
        Column("log_id", "bigint", "Log id of the sampled message.", "us"),
        Column("sender", "string", "Name of the session that published it; empty for the server and for back ends."),
        Column("count", "bigint", "Acknowledgements on the channel in this group.", "messages"),
    ),
    _event(
        "traffic",
        "Transient messages, one row per group and channel.",
        _SINCE,
        _UNTIL,
        _CHANNEL,
        Column("published", "bigint", "Number of publishes.", "messages"),
        Column("delivered", "bigint", "How many deliveries were queued.", "messages"),
    ),
    _event(
        "visitors",
        "Sessions with neither `ext.ack` nor `ext.session` that started and ended, one row per group.",
        _SINCE,
        _UNTIL,
        Column("opened", "bigint", "Number of sessions that started.", "sessions"),
        Column("closed", "bigint", "Number of sessions that ended.", "sessions"),
    ),
)
