"""The events, telemetry in a stream next to the facts; and how far the data pipeline has read the streams, with its alerts.

Events are about sessions, failures, redeliveries and latencies, written in groups and off the hot path. An entry of the stream
`events` has one field `d`, a JSON object: one group of one run of a server. Groups are numbered, so that one that is missing is
seen; and each says how many of its own events were lost. So what is not there is never taken for what did not happen, as it
would be with the facts. This is the one place that says what groups and events hold: docs/reference/events.md is generated from
it, and the pipeline reads by it. Of what the pipeline leaves in the store the server only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import orjson

from crewel.storage.keys import Keys
from crewel.storage.script_step import Step, nothing

if TYPE_CHECKING:  # the pipeline reads what groups hold, without a client of the store
    from crewel.storage.store import Store

SCHEMA: Final = 1
"""The version of what is said here. Fields may be added without another one."""

BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000, 3600000)
"""Upper bounds of the buckets of a latency, in milliseconds, inclusive; what took longer is in one more."""
WIDE_MS: Final = 60_000
"""From this bound on buckets are too wide for a guess at where in them a time lies: it is at least the bound below."""


class Level(StrEnum):
    """From which `events.level` on a type of event is written; each level includes those before it."""

    FAILURES = "failures"
    RELIABLE = "reliable"
    ALL = "all"

    def includes(self, other: Level) -> bool:
        """Whether what is written from `other` on is written at this level."""
        return _ORDER.index(other) <= _ORDER.index(self)


_ORDER: Final = tuple(Level)

GROUP: Final[Mapping[str, str]] = {
    "v": f"Version of the schema: {SCHEMA}.",
    "node": "Name of the server.",
    "token": "The run of the server: random, new at each start.",
    "n": "Number of the group: 1, 2, 3 for each token. A missing number is a lost group.",
    "from": "Start of the period that the group covers: milliseconds since 1970, by the server's clock.",
    "until": "End of the period.",
    "lost": "How many events of this period were lost because there were too many.",
    "events": "The events: objects with `type` and the fields below.",
}
"""The fields of a group."""


@dataclass(frozen=True, slots=True)
class EventType:
    """One type of event: from which level on and when it is written, and its fields with what they mean."""

    name: str
    level: Level
    written: str
    fields: Mapping[str, str]


_AT: Final = "Milliseconds since 1970."
_SESSION: Final = "Name of the session, `client/joe/1`."
_CHANNEL: Final = "Name of the channel."

EVENTS: Final = (
    EventType(
        "opened",
        Level.RELIABLE,
        "when a session with `ext.ack` starts; at level `all` also one with `ext.session` alone. A session that survives a"
        " restart continues under the next token",
        {
            "at": _AT,
            "session": _SESSION,
            "reliable": "Whether it uses `ext.ack`.",
            "transport": "Connection type of the handshake.",
        },
    ),
    EventType(
        "closed",
        Level.RELIABLE,
        "when such a session ends",
        {
            "at": _AT,
            "session": _SESSION,
            "reliable": "Whether it uses `ext.ack`.",
            "reason": "`disconnected` by the client or the server; `expired`: its client sent no connect in time; `dead`: its"
            " receiver failed permanently, or its full queue made too many dead letters.",
            "code": "Dotted code with the reason `dead`; empty otherwise.",
            "silent": "Milliseconds since the last request of its client; 0 if there was none.",
        },
    ),
    EventType(
        "failed",
        Level.FAILURES,
        "when a receiver reports a failure, or does not send a status in time",
        {
            "at": _AT,
            "session": _SESSION,
            "channel": _CHANNEL,
            "id": "Id of the message.",
            "code": "Dotted code that the server applied.",
            "given": "The code as the receiver gave it, if another one was applied; left out otherwise.",
            "outcome": "`letter`: it became a dead letter; `waits`: it will be delivered again; `held`: the session is"
            " on hold.",
        },
    ),
    EventType(
        "held",
        Level.FAILURES,
        "when a session is put on hold",
        {
            "at": _AT,
            "session": _SESSION,
            "who": "The cause: the receiver itself, or an operator.",
            "code": "Dotted code that the receiver reported; of an operator, the code that was given, or empty.",
            "id": "Id of the message that failed; empty for an operator.",
        },
    ),
    EventType(
        "released",
        Level.FAILURES,
        "when delivery to a session on hold continues",
        {"at": _AT, "session": _SESSION},
    ),
    EventType(
        "overflow",
        Level.FAILURES,
        "once per group for each session and policy, if the queue of a stored session was full",
        {
            "session": _SESSION,
            "policy": "The overflow policy: a value of `queue.onOverflow`.",
            "count": "Number of affected messages.",
        },
    ),
    EventType(
        "redelivered",
        Level.RELIABLE,
        "once per group for each session that gets messages again, because it did not acknowledge their batch and its"
        " client is not busy, or because they failed, or no listener took them in time",
        {"session": _SESSION, "count": "Number of messages."},
    ),
    EventType(
        "settled",
        Level.RELIABLE,
        "once per group for each channel with acknowledged stored messages",
        {
            "channel": _CHANNEL,
            "count": "Number of messages.",
            "sum": "Sum of their times from the log to the acknowledgement, in milliseconds.",
            "buckets": f"How many took at most {', '.join(map(str, BUCKETS_MS))} milliseconds and more than the previous"
            " bound; last, how many took longer.",
        },
    ),
    EventType(
        "shape",
        Level.RELIABLE,
        "for each channel with acknowledged stored messages, when a sample has another shape than the sample before it, and"
        " once an hour. A sample is taken once in a second at most, and is a message of at most 16 KiB",
        {
            "at": _AT,
            "channel": _CHANNEL,
            "shape": "Fields of the data and their types: `{n: number, lines: [{sku: text}]}`. It holds no values.",
            "id": "Id of the sampled message.",
            "sender": "Name of the session that published it; empty for the server and for back ends.",
            "count": "Number of acknowledgements on the channel in this group; 0 if its own was in the one before.",
        },
    ),
    EventType(
        "traffic",
        Level.ALL,
        "once per group for each channel with transient publishes",
        {"channel": _CHANNEL, "published": "Number of publishes.", "delivered": "How many deliveries were queued."},
    ),
    EventType(
        "visitors",
        Level.ALL,
        "once per group, if sessions with neither `ext.ack` nor `ext.session` started or ended",
        {"opened": "Number of sessions that started.", "closed": "Number of sessions that ended."},
    ),
)
"""Every type of event."""


def write(k: Keys, group: Mapping[str, Any], max_bytes: int) -> Step[None]:
    """Append a group. If the stream takes more than `max_bytes` of memory then, about, its oldest tenth leaves, or more."""
    return Step("events", (k.events,), (max_bytes, orjson.dumps(group)), nothing)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the pipeline is with one stream, and how far the stream goes, both at one instant."""

    stream: str
    read: int
    """How many entries the stream had ever got up to what the pipeline has in its tables."""
    added: int
    """How many it ever got."""
    trimmed: int
    """How many of them are gone: always the oldest."""

    @property
    def missed(self) -> int:
        """How many are gone that the pipeline had not read."""
        return max(self.trimmed - self.read, 0)


def progress(k: Keys) -> Step[list[Progress]]:
    """Return how far the pipeline is with the streams; those of which it has said nothing, or not how many it had read, are
    left out. It changes nothing."""
    return Step("progress", (k.positions, k.facts, k.events), (), _progress)


def _progress(answer: Any) -> list[Progress]:
    found = []
    for position, added, length, stream in answer:
        count = _object(position).get("count")
        if type(count) is int:
            found.append(Progress(stream.decode(), count, added, added - length))
    return found


@dataclass(frozen=True, slots=True)
class Alert:
    """A receiver that has been on hold for too long, as the pipeline says."""

    session: str
    fields: dict[str, Any]


async def alerts(store: Store) -> list[Alert]:
    """Return the alerts in the order of their sessions. What is no alert is left out. Raises StoreError."""
    found: Any = await store.reader.hgetall(store.keys.alerts)
    made = [Alert(name.decode("utf-8", "replace"), _object(value)) for name, value in found.items()]
    return sorted((alert for alert in made if alert.fields), key=lambda alert: alert.session)


def _object(text: bytes | None) -> dict[str, Any]:
    """The JSON object that another program has written; an empty one if it is none."""
    try:
        value = orjson.loads(text or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
