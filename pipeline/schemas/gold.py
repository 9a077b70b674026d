"""Gold: the results. Each job rewrites the whole table, except those by day, whose changed days it rewrites, and `minutes`,
which grows."""

from __future__ import annotations

from typing import Final

from crewel.pipeline.schemas.facts import LOST
from crewel.pipeline.schemas.table import BATCH, Column, Layer, Table

FINDINGS: Final = {
    "lost": "It was to be delivered, but it neither ended nor is pending.",
    "twice": "It ended more than once for the same receiver.",
    "surplus": "It ended or is pending for a receiver that it was not sent to.",
    "both": "It ended and is still pending.",
    "no letter": "It became a dead letter that no longer exists, but was neither redriven nor discarded.",
    "rolled back": "The store lost confirmed data, for example by a fail-over. Facts of the lost time no longer hold.",
    "unknown": "Facts of this period were trimmed before they were read, so the result is unknown.",
    "damaged table": "Another program removed, added or changed rows of a table of silver. The audit used bronze instead.",
}
"""What the audit can find."""

_CHANNEL: Final = Column("channel", "string", "Name of the channel.")
_SESSION: Final = Column("session", "string", "Name of the session.")
_DATE: Final = Column("date", "date", "The day.", "UTC")
_MINUTE: Final = Column("minute", "timestamp", "Beginning of the minute.", "UTC")
_FIRST: Final = Column("first_at", "timestamp", "The first time.", "UTC")
_LAST: Final = Column("last_at", "timestamp", "The last time.", "UTC")
_NAMES: Final = Column("names", "array<string>", "The receivers, at most ten of them.")
_LEFT: Final = (
    Column("dead_letters", "array<string>", "Ids of its dead letters, at most ten."),
    Column("sample_reason", "string", "One of the reasons; null if no dead letter is left.", nullable=True),
    Column("sample_body", "string", "The message as JSON; null if no dead letter is left.", nullable=True),
)
"""What the dead letters tell that are left of something."""
_WHY: Final = Column("why", "string", "The evidence, in words.")


def _gold(name: str, meaning: str, *columns: Column, key: tuple[str, ...]) -> Table:
    return Table(Layer.GOLD, name, meaning, columns, key=key, partitions=(), is_derived=True)


def _daily(name: str, meaning: str, *columns: Column, key: tuple[str, ...]) -> Table:
    """A table of which only the days are written again that something was added to."""
    return Table(Layer.GOLD, name, meaning, (*columns, _DATE), key=key, is_derived=True, version=2)


def _milliseconds(name: str, meaning: str) -> Column:
    return Column(name, "double", meaning, "ms", nullable=True)


TRIAGE: Final = _gold(
    "triage",
    "Dead letters by code, channel, receiver and normalised reason.",
    Column("code", "string", "Dotted error code."),
    _CHANNEL,
    Column("receiver", "string", "Name of the session, or of the shared queue."),
    Column(
        "cause",
        "string",
        "Cause of the rejections: `message`, `receiver`, `channel` or `unclear`; null if the receiver did not reject"
        " them, or accepted them later.",
        nullable=True,
    ),
    Column("template", "string", "The reason with placeholders for numbers, ids and quoted texts."),
    Column("other_codes", "array<string>", "Other codes with which this receiver rejected the same messages."),
    Column("letters", "bigint", "How many dead letters.", "dead letters"),
    _FIRST,
    _LAST,
    Column("sample_letter", "string", "Id of one of the dead letters."),
    Column("sample_reason", "string", "Its reason."),
    Column("sample_body", "string", "Its message as JSON."),
    Column("attempts_mean", "double", "Mean number of deliveries.", "times", nullable=True),
    Column("attempts_max", "int", "Largest number of deliveries.", "times", nullable=True),
    _milliseconds("to_death_median_ms", "Median time from acceptance to dead letter."),
    _milliseconds("to_death_max_ms", "Longest time from acceptance to dead letter."),
    key=("code", "channel", "receiver", "cause", "template"),
)

INCIDENTS: Final = _gold(
    "incidents",
    "Dead letters of one receiver with one code, reason and cause, across channels, without a pause of more than 10 minutes."
    " Those that are gone count with the others of that time, if these have one reason, and those that the receiver accepted"
    " later with those that it did not.",
    Column("receiver", "string", "Name of the session, or of the shared queue."),
    Column("code", "string", "Dotted error code."),
    Column("template", "string", "The reason, as in `triage`."),
    Column("cause", "string", "As in `triage`.", nullable=True),
    _FIRST,
    _LAST,
    Column("letters", "bigint", "How many messages died.", "dead letters"),
    Column("kept", "bigint", "How many of them the store still has.", "dead letters"),
    Column("channels", "array<string>", "The channels, at most ten of them."),
    Column("other_codes", "array<string>", "Other codes with which this receiver rejected the same messages."),
    Column("sample_letter", "string", "Id of one of the dead letters."),
    Column("sample_reason", "string", "Its reason."),
    Column("sample_body", "string", "Its message as JSON."),
    Column("attempts_mean", "double", "Mean number of deliveries.", "times", nullable=True),
    _milliseconds("to_death_median_ms", "Median time from acceptance to dead letter."),
    key=("receiver", "code", "template", "cause", "first_at"),
)

POISON: Final = _gold(
    "poison",
    "Messages that are the cause of their rejections: more receivers rejected them than accepted them, also if only those"
    " count that are not failing.",
    Column("message_id", "string", "Id of the message."),
    _CHANNEL,
    Column("receivers", "bigint", "How many receivers rejected it.", "receivers"),
    Column("takers", "bigint", "How many receivers accepted it.", "receivers"),
    Column("failures", "bigint", "Total number of rejections.", "times"),
    Column("codes", "array<string>", "The distinct dotted error codes."),
    _NAMES,
    _FIRST,
    _LAST,
    *_LEFT,
    _WHY,
    key=("message_id", "channel"),
)

FAILING_CHANNELS: Final = _gold(
    "failing_channels",
    "Channels whose publisher is the cause of rejections: most receivers reject its data, and accepted what came before.",
    _CHANNEL,
    Column("shape", "string", "As in `letters`, of most of them; empty if no dead letter is left."),
    Column(
        "earlier_shape",
        "string",
        "The shape of earlier messages that receivers accepted; null if what changed is not the shape, or no sample shows it.",
        nullable=True,
    ),
    Column("publishers", "array<string>", "The named sessions that published them, at most ten."),
    Column("messages", "bigint", "How many messages were rejected.", "messages"),
    Column("published", "bigint", "Messages of the channel from the first to the last of them.", "messages"),
    Column("takers", "bigint", "How many receivers accepted one of them, at most.", "receivers"),
    Column("earlier", "bigint", "Messages of the channel before the first of them, as far as known.", "messages"),
    Column("receivers", "bigint", "How many receivers rejected them.", "receivers"),
    Column("failures", "bigint", "Total number of rejections.", "times"),
    Column("codes", "array<string>", "The distinct dotted error codes."),
    _NAMES,
    _FIRST,
    _LAST,
    *_LEFT,
    _WHY,
    key=("channel", "shape"),
)

RECEIVERS: Final = _gold(
    "receivers",
    "Receivers, compared with their own past and with their peers; groups only if no member takes their messages.",
    Column("session", "string", "Name of the session; of a group, the name of its shared queue."),
    Column("settled", "bigint", "Messages that it acknowledged.", "messages"),
    Column(
        "transient",
        "bigint",
        "Transient messages on the channels of its subscriptions; known only with `events.level` `all`.",
        "messages",
    ),
    Column("failed", "bigint", "Failures that it reported, and statuses that it did not send.", "failures"),
    Column("excused", "bigint", "Failures whose cause is the message or the channel.", "failures"),
    Column("rejected", "bigint", "Messages that it rejected, if it is the cause itself.", "messages"),
    Column(
        "others_took",
        "bigint",
        "How many of them were accepted by at least as many receivers as rejected them.",
        "messages",
    ),
    Column(
        "common",
        "array<string>",
        "What tells these messages from those that it accepted: stretches of time, and one field or value with both rates."
        " Empty if nothing does.",
    ),
    Column(
        "failure_rate", "double", "Failures less the excused ones, as a share of all statuses.", "share", nullable=True
    ),
    Column("past_failure_rate", "double", "The same of everything before the period.", "share", nullable=True),
    Column(
        "peers_failure_rate",
        "double",
        "Median of the same for receivers with a common pattern.",
        "share",
        nullable=True,
    ),
    Column("held_ms", "bigint", "Time on hold.", "ms"),
    Column(
        "polling_ms",
        "bigint",
        "Known time of absence: from the last request of its client to the expiry of its session. An absence that ends with the"
        " client's return is not recorded, and shows as lag.",
        "ms",
    ),
    Column("redelivered", "bigint", "Messages that were redelivered to it.", "messages"),
    Column(
        "redelivery_rate",
        "double",
        "Redelivered messages as a share of all messages sent to it.",
        "share",
        nullable=True,
    ),
    _milliseconds(
        "lag_median_ms",
        "Median time from the log to the acknowledgement; it includes absences of the client, and up to"
        " `delivery.commit_ms` until the server recorded the acknowledgement.",
    ),
    _milliseconds("past_lag_median_ms", "The same of everything before the period."),
    _milliseconds("peers_lag_median_ms", "Median of the same for its peers."),
    Column("is_sick", "boolean", "Whether the receiver is failing."),
    Column("why", "array<string>", "Readable reasons."),
    key=("session",),
)

RECEIVER_TIMES: Final = _gold(
    "receiver_times",
    "When receivers were on hold or absent, and the minutes in which they failed. Of absences, only those are known that ended"
    " with the expiry of the session.",
    _SESSION,
    Column("what", "string", "`on hold`, `absent` or `fails`."),
    Column("begin", "timestamp", "Its beginning.", "UTC"),
    Column("end", "timestamp", "Its end; null while it lasts.", "UTC", nullable=True),
    Column("failed", "bigint", "Failures less the excused ones; 0 for a time on hold or absent.", "failures"),
    key=("session", "what", "begin"),
)

DEATHS: Final = _gold(
    "deaths",
    "Dead letters by minute and code.",
    _MINUTE,
    Column("code", "string", "Dotted error code."),
    Column("letters", "bigint", "How many dead letters.", "dead letters"),
    key=("minute", "code"),
)

LATENCY: Final = _daily(
    "latency",
    "Time to acknowledgement by channel and minute. Percentiles are the upper bounds of their buckets; null means more than an"
    " hour.",
    _MINUTE,
    _CHANNEL,
    Column("count", "bigint", "How many messages were acknowledged.", "messages"),
    _milliseconds("mean_ms", "Mean time from the log to the acknowledgement."),
    _milliseconds("p50_ms", "50th percentile."),
    _milliseconds("p90_ms", "90th percentile."),
    _milliseconds("p99_ms", "99th percentile."),
    Column("buckets", "array<bigint>", "As in `event_settled`.", "messages"),
    key=("minute", "channel"),
)

BACKLOG: Final = _daily(
    "backlog",
    "Pending and ended deliveries by minute.",
    _MINUTE,
    Column("owed", "bigint", "Deliveries that became pending in the minute.", "messages"),
    Column("ended", "bigint", "Deliveries that ended in the minute.", "messages"),
    Column("waiting", "bigint", "Deliveries that were pending at the end of the minute.", "messages"),
    key=("minute",),
)

CAPACITY: Final = _daily(
    "capacity",
    "Volumes by hour and channel.",
    Column("hour", "timestamp", "Beginning of the hour.", "UTC"),
    _CHANNEL,
    Column("persistent", "bigint", "Stored messages that were published or addressed.", "messages"),
    Column("transient", "bigint", "Transient messages; known only with `events.level` `all`.", "messages"),
    Column("deliveries", "bigint", "Messages that ended for a receiver.", "messages"),
    Column("bytes", "bigint", "Size of the facts and events of the channel in the store.", "bytes"),
    Column("sessions", "bigint", "Sessions that got messages of the channel.", "sessions"),
    Column("trend", "double", "Messages of this hour divided by those of the previous hour.", "share", nullable=True),
    key=("hour", "channel"),
)

AUDIT: Final = _gold(
    "audit",
    "Findings of the audit, with evidence.",
    Column("finding", "string", ", ".join(f"`{name}`" for name in FINDINGS) + "."),
    Column("log_id", "bigint", "Log id of the message; null for a subscription.", "us", nullable=True),
    Column("channel", "string", "Channel of the message; null if not known.", nullable=True),
    Column(
        "receiver",
        "string",
        "Name of the session or shared queue; of the server for `rolled back`, of the table for `damaged table`.",
    ),
    Column("pattern", "string", "A subscription that contains the message; null if there is none.", nullable=True),
    Column("evidence", "array<string>", "Places of the facts."),
    Column("words", "string", "A readable description."),
    key=("finding", "log_id", "receiver", "pattern"),
)

LOSSES: Final = _gold(
    "losses",
    "Losses of the store that no server has recorded, as an audit found them: by a restore of a backup, for example. Later"
    " audits need them, when the store has trimmed the facts around a loss. The place is that of the first fact that was lost.",
    *LOST.columns,
    key=("place",),
)

HOLDBACKS: Final = _gold(
    "holdbacks",
    "Receivers that have been on hold for longer than the limit.",
    _SESSION,
    Column("since", "timestamp", "Start of the holdback.", "UTC"),
    Column("raised", "timestamp", "When the alert was raised.", "UTC"),
    Column("held_ms", "bigint", "Duration of the holdback at that time.", "ms"),
    Column("code", "string", "Dotted error code that it reported, or that the operator gave, or empty."),
    Column("who", "string", "The cause: the receiver itself, or an operator."),
    Column("reason", "string", "A readable reason."),
    key=("session", "since"),
)

MINUTES: Final = Table(
    Layer.GOLD,
    "minutes",
    "Counts by minute: the live figures. A row is the contribution of one batch to a count.",
    (
        _MINUTE,
        _DATE,
        Column("what", "string", "Type of the fact or event; for an end, `ended:<reason>`."),
        Column("count", "bigint", "Number of facts, events or ends."),
    ),
    key=("minute", "what", BATCH),
)

GOLD: Final = (
    TRIAGE,
    INCIDENTS,
    POISON,
    FAILING_CHANNELS,
    RECEIVERS,
    RECEIVER_TIMES,
    DEATHS,
    LATENCY,
    BACKLOG,
    CAPACITY,
    AUDIT,
    LOSSES,
    HOLDBACKS,
    MINUTES,
)
