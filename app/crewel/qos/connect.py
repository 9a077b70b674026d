"""What a handshake asks for in `ext.session` (xmlBlaster's ConnectQos): the fields, their defaults and their bounds.

Everything is checked here, so that nobody behind it looks at JSON. Times are milliseconds as on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from crewel.errors import IllegalArgument
from crewel.qos.fields import Check, flag, number, one_of, read_fields, text, whole
from crewel.qos.names import ANONYMOUS, Name, parse_name

MAX_SECRET: Final = 8192
"""Longest token or `resume` in characters; a JWT with many grants is long."""


class Settle(StrEnum):
    """What settles a delivered message."""

    BATCH = "batch"
    MESSAGE = "message"

    @property
    def meaning(self) -> str:
        """What it says, in one line."""
        return "its batch is acknowledged" if self is Settle.BATCH else "a status of its own, in `ext.update`"


class OverflowPolicy(StrEnum):
    """What a full queue does, by the name that `ext.session` uses."""

    DEAD_MESSAGE = "deadMessage"
    DROP_OLDEST = "dropOldest"
    DISCONNECT = "disconnect"

    @property
    def meaning(self) -> str:
        """What it says, in one line."""
        return _MEANINGS[self]


_MEANINGS = {
    OverflowPolicy.DEAD_MESSAGE: "The arriving message becomes a dead letter.",
    OverflowPolicy.DROP_OLDEST: "The oldest message of the lowest priority that was not sent yet gives way.",
    OverflowPolicy.DISCONNECT: "The session ends.",
}


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
    """How often, and after how long, failed deliveries are repeated; None: what the server has configured."""

    retries: int | None = None
    delay_ms: int | None = None
    factor: float = 1.0
    """How many times as long as the one before each further pause of a row is."""
    max_delay_ms: int | None = None
    """The longest pause; None: as long as the factor makes it."""
    absence: bool = True
    """Whether a client that is away counts as failing: it is given up after as long as all retries would take."""


@dataclass(frozen=True, slots=True)
class ConnectQos:
    """One login. The defaults are those of a handshake without `ext.session`."""

    name: Name | None = None
    token: str | None = None
    resume: str | None = None
    """The secret that the last login of the session was given."""
    update: bool = False
    settle: Settle = Settle.BATCH
    ack_wait_ms: int | None = None
    """How long a sent message waits for its status; -1: for ever. None: what the server has configured."""
    ping_interval_ms: int = 0
    burst: Burst = Burst()
    ptp: bool = True
    """Whether messages may be addressed to the session."""
    persistent: bool = False
    timeout_ms: int = 86_400_000
    """How long a named session lives without any request."""
    max_sessions: int = 10
    """Most sessions of the subject, this one included."""
    clear_sessions: bool = False
    """Whether the subject's other sessions end first."""
    dispatcher: Retries | None = None
    """None: not given, which is not the same as given with the defaults."""
    queue: QueueQos = QueueQos()


NOTHING_ASKED: Final = ConnectQos()
"""The login of a client that says nothing of itself."""


def _name(value: object) -> Name:
    name = parse_name(value) if isinstance(value, str) else None
    if name is None:
        raise ValueError("a name such as client/joe/1: 1 to 64 of A-Z a-z 0-9 . @ - and a number, if any")
    if name.subject == ANONYMOUS and not name.is_numbered:
        raise ValueError(f"another name: {ANONYMOUS} is the server's own")
    return name


def _settle(value: object) -> Settle:
    return Settle(one_of(*Settle)(value))


def _overflow(value: object) -> OverflowPolicy:
    return OverflowPolicy(one_of(*OverflowPolicy)(value))


def _part(checks: Mapping[str, Check], names: Mapping[str, str], make: type[Any]) -> Check:
    """An object in the object: its fields on the wire, and what they are called in `make`."""

    def check(value: object) -> Any:
        if not isinstance(value, dict):
            raise ValueError("an object")  # noqa: TRY004 - one error for all that does not fit
        return make(**{names[name]: found for name, found in read_fields(value, checks, "").items()})

    return check


_BURST: Final = _part(
    {"maxEntries": whole(1), "maxBytes": whole(1)}, {"maxEntries": "max_entries", "maxBytes": "max_bytes"}, Burst
)
_RETRIES: Final = _part(
    {
        "retries": whole(0, or_else=-1),
        "delay": whole(0),
        "factor": number(1, 10),
        "maxDelay": whole(1),
        "absence": flag,
    },
    {"retries": "retries", "delay": "delay_ms", "factor": "factor", "maxDelay": "max_delay_ms", "absence": "absence"},
    Retries,
)
_BOUNDS: Final = _part(
    {"maxEntries": whole(1), "maxBytes": whole(1), "onOverflow": _overflow},
    {"maxEntries": "max_entries", "maxBytes": "max_bytes", "onOverflow": "policy"},
    QueueQos,
)

_CHECKS: Final[Mapping[str, Check]] = {
    "name": _name,
    "token": text(MAX_SECRET),
    "resume": text(MAX_SECRET),
    "update": flag,
    "settle": _settle,
    "ackWait": whole(1, or_else=-1),
    "pingInterval": whole(0),
    "burst": _BURST,
    "ptp": flag,
    "persistent": flag,
    "timeout": whole(1),
    "maxSessions": whole(1),
    "clearSessions": flag,
    "dispatcher": _RETRIES,
    "queue": _BOUNDS,
}

_CALLED: Final = {
    "ackWait": "ack_wait_ms",
    "pingInterval": "ping_interval_ms",
    "timeout": "timeout_ms",
    "maxSessions": "max_sessions",
    "clearSessions": "clear_sessions",
}


def read_connect_qos(given: object, max_entries: int) -> ConnectQos:
    """The login that `ext.session` asks for, in a server that keeps at most `max_entries` messages a session. Raises
    IllegalArgument, which names the field."""
    fields = read_fields(given, _CHECKS, "session")
    qos = ConnectQos(**{_CALLED.get(name, name): value for name, value in fields.items()})
    if qos.queue.max_entries is not None and qos.queue.max_entries > max_entries:
        raise IllegalArgument("queue.maxEntries", f"must be a whole number from 1 to {max_entries}")
    if qos.persistent and (qos.name is None or not qos.name.is_chosen):
        raise IllegalArgument(
            "persistent", "must be false for a session without a name and a number above 0 of its own"
        )
    if qos.clear_sessions and qos.name is None and qos.resume is None:
        raise IllegalArgument("clearSessions", "must be false for a session without a name")
    return qos
