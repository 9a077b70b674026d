"""What a handshake asks for in `ext.session` (xmlBlaster's ConnectQos): the fields, their defaults and their bounds.

Everything is checked here, so that no code behind it looks at JSON. Times are milliseconds as on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crewel.errors import IllegalArgument
from crewel.errors.codes import Explained
from crewel.qos.fields import Option, Options, flag, member_of, number, text, whole
from crewel.qos.names import ANONYMOUS, SUBJECT_RULE, Name, parse_name

MAX_SECRET: Final = 8192
"""Longest token or `resume` in characters; a JWT with many grants is long."""
MIN_NONCE: Final = 16
"""Shortest nonce in characters: two clients that choose shorter ones may choose the same."""
MAX_NONCE: Final = 64


class Settle(Explained):
    """What acknowledges a delivered message."""

    BATCH = "batch", "its batch is acknowledged"
    MESSAGE = "message", "a status of its own, in `ext.update`"


class OverflowPolicy(Explained):
    """What a full queue does, by the name that `ext.session` uses."""

    DEAD_MESSAGE = "deadMessage", "The arriving message becomes a dead letter."
    DROP_OLDEST = (
        "dropOldest",
        "The oldest unsent messages of the lowest priority are dropped, as many as it takes. If that does not make room, or all"
        " have a higher priority, the arriving message is dropped.",
    )
    DISCONNECT = "disconnect", "The session ends."


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one session's queue; what was sent and is not acknowledged counts."""

    max_entries: int
    max_bytes: int
    policy: OverflowPolicy = OverflowPolicy.DEAD_MESSAGE

    def exceeded(self, entries: int, size: int) -> str | None:
        """The code of the bound that one message more than `entries`, with `size` bytes in all, goes beyond; None if it
        fits."""
        if entries >= self.max_entries:
            return "resource.overflow.queue.entries"
        if entries and size > self.max_bytes:  # a message that is alone fits, however large
            return "resource.overflow.queue.bytes"
        return None


@dataclass(frozen=True, slots=True)
class Burst:
    """Most that one response carries; None: what the server has configured."""

    max_entries: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class QueueQos:
    """Most that waits for the session; None: what the server has configured."""

    max_entries: int | None = None
    max_bytes: int | None = None
    policy: OverflowPolicy | None = None


@dataclass(frozen=True, slots=True)
class Retries:
    """How often, and after how long, failed deliveries are repeated (`DISPATCHER`); None: what the server has configured."""

    retries: int | None = None
    delay_ms: int | None = None
    factor: float = 1.0
    max_delay_ms: int | None = None
    absence: bool = True


@dataclass(frozen=True, slots=True)
class ConnectQos:
    """One login; `CONNECT` says what each field means. The defaults are those of a handshake without `ext.session`; None:
    what the server has configured, or nothing."""

    name: Name | None = None
    token: str | None = None
    resume: str | None = None
    nonce: str | None = None
    update: bool = False
    settle: Settle = Settle.BATCH
    ack_wait_ms: int | None = None
    max_open: int = 0
    """0: any number."""
    ping_interval_ms: int = 0
    burst: Burst = Burst()
    ptp: bool = True
    persistent: bool = False
    timeout_ms: int = 86_400_000
    max_sessions: int = 10
    clear_sessions: bool = False
    reconnect_same_client_only: bool = False
    dispatcher: Retries | None = None
    """None: not given, which is not the same as given with the defaults."""
    queue: QueueQos = QueueQos()


NOTHING_ASKED: Final = ConnectQos()
"""The login of a client that asks for nothing."""


def _name(value: object) -> Name:
    name = parse_name(value) if isinstance(value, str) else None
    if name is None:
        raise ValueError(f"a name such as client/joe/1: {SUBJECT_RULE} and a number, if any")
    if name.subject == ANONYMOUS and not name.is_numbered:
        raise ValueError(f"another name: {ANONYMOUS} is the server's own")
    return name


_MOST_ENTRIES: Final = Option("maxEntries", "max_entries", whole(1), "Maximum number of messages")
_MOST_BYTES: Final = Option("maxBytes", "max_bytes", whole(1), "Maximum number of bytes")
_POLICIES: Final = " or ".join(f"`{policy.value}`" for policy in OverflowPolicy)
BURST: Final = Options(_MOST_ENTRIES, _MOST_BYTES)
"""The options of a login's `burst`."""
QUEUE: Final = Options(
    _MOST_ENTRIES, _MOST_BYTES, Option("onOverflow", "policy", member_of(OverflowPolicy), "What a full queue does")
)
"""The options of a login's `queue`."""
DISPATCHER: Final = Options(
    Option(
        "retries",
        "retries",
        whole(0, or_else=-1),
        "How many `communication.*` failures in a row a session survives. -1: no limit, 0: the first one ends it",
    ),
    Option("delay", "delay_ms", whole(0), "Pause after the first failure, ms"),
    Option(
        "factor",
        "factor",
        number(1, 10),
        "Each further pause is this many times as long as the previous one, 1 to 10",
    ),
    Option("maxDelay", "max_delay_ms", whole(1), "Longest pause, ms"),
    Option(
        "absence",
        "absence",
        flag,
        "Whether the absence of the client counts as a failure. If so, a named session whose login set `dispatcher` ends after"
        " the time that all retries would take. `false`: it lives until its `timeout`",
    ),
)
"""The options of a login's `dispatcher`."""

CONNECT: Final = Options(
    Option("name", "name", _name, "Name of the session, `client/joe/1`, or of its subject"),
    Option("token", "token", text(MAX_SECRET), "A JSON Web Token, or the admin token", "how-to/security.md"),
    Option("resume", "resume", text(MAX_SECRET), "Secret from the reply to the session's last login"),
    Option(
        "nonce",
        "nonce",
        text(MAX_NONCE, MIN_NONCE),
        f"Random string of {MIN_NONCE} to {MAX_NONCE} characters, new for each handshake, that identifies copies of it",
        "#handshakes-that-arrive-twice",
    ),
    Option(
        "update",
        "update",
        flag,
        "The client receives the origin of each message and reports its status; needs `ext.ack`, and the reply says `false`"
        " without it",
        "how-to/acknowledging.md",
    ),
    Option(
        "settle",
        "settle",
        member_of(Settle),
        "`message`: a message stays open until the client reports its status. `batch`: until its batch is acknowledged",
    ),
    Option(
        "ackWait",
        "ack_wait_ms",
        whole(1, or_else=-1),
        "With `settle` `message`: how long a message may stay open, ms; -1: no limit",
    ),
    Option(
        "maxOpen",
        "max_open",
        whole(0),
        "Maximum number of messages that are open at the client: sent, and without a status or, with `settle` `batch`, an"
        " acknowledgement; needs `ext.ack`. 1: one message at a time. 0: no limit",
        "how-to/acknowledging.md#one-message-at-a-time",
    ),
    Option(
        "pingInterval",
        "ping_interval_ms",
        whole(0),
        "Longest time that the server holds a connect, ms, so that it detects a client that is gone; 0: as configured",
    ),
    Option(
        "burst",
        "burst",
        BURST.part(Burst),
        '`{"maxEntries", "maxBytes"}`: upper limits for one response; the rest comes with the next connect',
    ),
    Option("ptp", "ptp", flag, "Whether publishers may address messages to the session", "how-to/point-to-point.md"),
    Option(
        "persistent",
        "persistent",
        flag,
        "Require a session that survives a restart of the server: refused without a chosen number, `ext.ack` and a store",
    ),
    Option("timeout", "timeout_ms", whole(1), "How long a named session lives without a request, ms"),
    Option("maxSessions", "max_sessions", whole(1), "Maximum number of sessions of the subject, including this one"),
    Option("clearSessions", "clear_sessions", flag, "End the subject's other sessions first; refused if it may not"),
    Option(
        "reconnectSameClientOnly",
        "reconnect_same_client_only",
        flag,
        "Refuse the login while another client is connected with this name, also if a token would take the session over",
        "#coming-back",
    ),
    Option(
        "dispatcher",
        "dispatcher",
        DISPATCHER.part(Retries),
        '`{"retries", "delay", "factor", "maxDelay", "absence"}`: retries for this session',
        "#retries-and-absence",
    ),
    Option(
        "queue",
        "queue",
        QUEUE.part(QueueQos),
        '`{"maxEntries", "maxBytes", "onOverflow"}`: limits of the queue; `maxEntries` up to `bayeux.max_queue_messages`,'
        " `maxBytes` up to `limits.max_queued_bytes_per_session`."
        f" `onOverflow`: {_POLICIES}. `maxBytes` and `deadMessage` need a session that is"
        " stored",
    ),
)
"""The options of a login, `ext.session`."""


def read_connect_qos(given: object, max_entries: int, max_bytes: int) -> ConnectQos:
    """The login that `ext.session` asks for, in a server where a login may ask for a queue of so many messages and bytes at
    most. Raises IllegalArgument, which names the field."""
    qos = ConnectQos(**CONNECT.read(given, "session"))
    if qos.queue.max_entries is not None and qos.queue.max_entries > max_entries:
        raise IllegalArgument("queue.maxEntries", f"must be a whole number from 1 to {max_entries}")
    if qos.queue.max_bytes is not None and qos.queue.max_bytes > max_bytes:
        raise IllegalArgument("queue.maxBytes", f"must be a whole number from 1 to {max_bytes}")
    if qos.persistent and (qos.name is None or not qos.name.is_chosen):
        raise IllegalArgument(
            "persistent", "must be false for a session without a name and a number above 0 of its own"
        )
    if qos.clear_sessions and qos.name is None and qos.resume is None:
        raise IllegalArgument("clearSessions", "must be false for a session without a name")
    return qos
