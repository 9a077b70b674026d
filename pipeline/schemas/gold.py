"""Gold: the answers. Each table is written anew as a whole, but for the minutes, which are added to."""

from __future__ import annotations

from typing import Final

from crewel.pipeline.schemas.table import Column, Layer, Table

FINDINGS: Final = {
    "lost": "It was owed and has neither ended nor does it wait anywhere.",
    "twice": "It ended more than once for the same receiver.",
    "surplus": "It ended or waits for a receiver to whom it was never owed.",
    "both": "It ended and waits all the same.",
    "unknown": "Facts of this time were trimmed before they were read: nothing can be said.",
    "not auditable": "A filter or a group decides what the subscription takes; the facts do not tell how.",
}
"""What the audit can find."""

_CHANNEL: Final = Column("channel", "string", "Name of the channel.")
_SESSION: Final = Column("session", "string", "Name of the session.")
_DATE: Final = Column("date", "date", "The day.", "UTC")
_MINUTE: Final = Column("minute", "timestamp", "Beginning of the minute.", "UTC")
_FIRST: Final = Column("first_at", "timestamp", "The first time.", "UTC")
_LAST: Final = Column("last_at", "timestamp", "The last time.", "UTC")


def _gold(name: str, meaning: str, *columns: Column, key: tuple[str, ...]) -> Table:
    return Table(Layer.GOLD, name, meaning, columns, key=key, partitions=(), is_derived=True)


def _milliseconds(name: str, meaning: str) -> Column:
    return Column(name, "double", meaning, "ms", nullable=True)


TRIAGE: Final = _gold(
    "triage",
    "What died and why: dead letters by code, channel, receiver and normalised reason.",
    Column("code", "string", "Dotted error code."),
    _CHANNEL,
    Column("receiver", "string", "Name of the session, or of the shared queue."),
    Column("template", "string", "The reason with numbers, ids and quoted texts replaced by signs."),
    Column("letters", "bigint", "How many.", "letters"),
    _FIRST,
    _LAST,
    Column("sample_letter", "string", "Dead id of one of them."),
    Column("sample_reason", "string", "Its reason."),
    Column("sample_body", "string", "Its message as JSON."),
    Column("attempts_mean", "double", "How often they may have been delivered.", "times", nullable=True),
    Column("attempts_max", "int", "The most of that.", "times", nullable=True),
    _milliseconds("to_death_median_ms", "Half of them died within this time of their acceptance."),
    _milliseconds("to_death_max_ms", "All of them did within this."),
    key=("code", "channel", "receiver", "template"),
)

POISON: Final = _gold(
    "poison",
    "Messages that several receivers rejected, or one several times.",
    Column("message_id", "string", "Id of the message."),
    _CHANNEL,
    Column("receivers", "bigint", "How many receivers rejected it.", "receivers"),
    Column("failures", "bigint", "How often it was rejected in all.", "times"),
    Column("codes", "array<string>", "The dotted error codes, each once."),
    Column("names", "array<string>", "The receivers, at most ten of them."),
    _FIRST,
    _LAST,
    Column("sample_reason", "string", "One of the reasons; null if no letter is left.", nullable=True),
    Column("sample_body", "string", "The message as JSON; null if no letter is left.", nullable=True),
    key=("message_id", "channel"),
)

RECEIVERS: Final = _gold(
    "receivers",
    "Receivers and how they do, against their own past and their peers.",
    _SESSION,
    Column("settled", "bigint", "Messages that it answered OK.", "messages"),
    Column("failed", "bigint", "Failures that it reported, and statuses that did not come in time.", "failures"),
    Column("failure_rate", "double", "Failures of all answers.", "share", nullable=True),
    Column("past_failure_rate", "double", "The same in the time before.", "share", nullable=True),
    Column("peers_failure_rate", "double", "The same of those with a common pattern, median.", "share", nullable=True),
    Column("held_ms", "bigint", "How long it was held back.", "ms"),
    Column(
        "polling_ms",
        "bigint",
        "How long it was away, as far as is known: from its last sign of life to the expiry of its session.",
        "ms",
    ),
    Column("redelivered", "bigint", "Messages that went again to it.", "messages"),
    Column("redelivery_rate", "double", "Those of all that it was sent.", "share", nullable=True),
    _milliseconds(
        "lag_median_ms",
        "Half of its messages were settled within this time of their place in the log; up to `delivery.commit_ms` of it passed"
        " until the server noted that.",
    ),
    _milliseconds("past_lag_median_ms", "The same in the time before."),
    _milliseconds("peers_lag_median_ms", "The same of its peers, median."),
    Column("is_sick", "boolean", "Whether something is conspicuous."),
    Column("why", "array<string>", "What, in words."),
    key=("session",),
)

LATENCY: Final = _gold(
    "latency",
    "How long settling takes, by channel and minute. Percentiles are the upper bounds of their buckets.",
    _MINUTE,
    _CHANNEL,
    Column("count", "bigint", "How many were settled.", "messages"),
    _milliseconds("mean_ms", "Mean time from the log to the settling."),
    _milliseconds("p50_ms", "Half of them took at most this."),
    _milliseconds("p90_ms", "Nine of ten did."),
    _milliseconds("p99_ms", "99 of a hundred did."),
    Column("buckets", "array<bigint>", "As in `event_settled`.", "messages"),
    key=("minute", "channel"),
)

BACKLOG: Final = _gold(
    "backlog",
    "What was owed and what ended, by minute.",
    _MINUTE,
    Column("owed", "bigint", "Messages that receivers came to be owed in it.", "messages"),
    Column("ended", "bigint", "Messages that ended in it.", "messages"),
    Column("waiting", "bigint", "Messages that were owed and had not ended at its end.", "messages"),
    key=("minute",),
)

CAPACITY: Final = _gold(
    "capacity",
    "How much there is of everything, by hour and channel.",
    Column("hour", "timestamp", "Beginning of the hour.", "UTC"),
    _CHANNEL,
    Column("persistent", "bigint", "Stored messages that were published or addressed.", "messages"),
    Column("transient", "bigint", "Messages that are not stored; known at the level `all` only.", "messages"),
    Column("deliveries", "bigint", "Messages that ended for a receiver.", "messages"),
    Column("bytes", "bigint", "Bytes of facts and events about it in the store.", "bytes"),
    Column("sessions", "bigint", "Sessions to which messages of it went.", "sessions"),
    Column("trend", "double", "Messages of this hour by those of the hour before.", "share", nullable=True),
    key=("hour", "channel"),
)

AUDIT: Final = _gold(
    "audit",
    "What does not add up, with the evidence.",
    Column("finding", "string", ", ".join(f"`{name}`" for name in FINDINGS) + "."),
    Column("log_id", "bigint", "Log id of the message; null of a subscription.", "us", nullable=True),
    Column("channel", "string", "Channel of the message; null if not known.", nullable=True),
    Column("receiver", "string", "Name of the session or shared queue."),
    Column("pattern", "string", "One subscription that holds it; null if there is none.", nullable=True),
    Column("evidence", "array<string>", "Places of the facts that tell."),
    Column("words", "string", "What is wrong, in words."),
    key=("finding", "log_id", "receiver", "pattern"),
)

HOLDBACKS: Final = _gold(
    "holdbacks",
    "Receivers that have been held back for longer than the limit.",
    _SESSION,
    Column("since", "timestamp", "From when on.", "UTC"),
    Column("raised", "timestamp", "When it was noticed.", "UTC"),
    Column("held_ms", "bigint", "How long it had been held then.", "ms"),
    Column("code", "string", "Dotted error code that it answered, or empty."),
    Column("who", "string", "Who held it back."),
    Column("reason", "string", "Why, in words."),
    key=("session", "since"),
)

MINUTES: Final = Table(
    Layer.GOLD,
    "minutes",
    "What happened by minute: the live figures.",
    (
        _MINUTE,
        _DATE,
        Column("what", "string", "Type of a fact or event, and for ends `ended:<reason>`."),
        Column("count", "bigint", "How many."),
    ),
    key=("minute", "what"),
)

GOLD: Final = (TRIAGE, POISON, RECEIVERS, LATENCY, BACKLOG, CAPACITY, AUDIT, HOLDBACKS, MINUTES)
