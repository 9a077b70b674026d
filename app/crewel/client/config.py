"""What an application decides about its client, checked once; `ext.session` of its handshake follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any, TypedDict

from yarl import URL

from crewel.bayeux.message import Fields
from crewel.client.retry import BackoffRule
from crewel.qos.connect import CONNECT, DISPATCHER

TRANSPORTS = ("websocket", "long-polling")
"""The transports there are, in the order in which they are tried by default."""

SETTLES = ("message", "batch")
"""What settles a message that did not fail."""
RETRIES = 5
"""How often a message is repeated after a failure of the client, unless the application says otherwise."""
DELAY_MS = 1000
"""How long after the first failure."""
DELAY_FACTOR = 2
"""How many times as long as the one before each further pause is."""
MAX_DELAY_MS = 60_000
"""The longest pause."""

_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class MoreSettling(TypedDict, total=False):
    """What else a client may say of settling, in milliseconds; what is not given is as the server has it."""

    ack_wait_ms: int | None
    retries: int | None
    delay_ms: int | None
    delay_factor: float | None
    max_delay_ms: int | None
    absence: bool | None
    ping_interval_ms: int | None
    unclaimed_ms: int | None
    on_rejected: Callable[[Fields], None] | None


@dataclass(frozen=True, slots=True)
class Settling:
    """Whether and how the client reports the status of each message."""

    update: bool = False
    """Whether to report it."""
    settle: str = "message"
    """What says that a message went well: a status of its own (`message`), or that its batch is acknowledged (`batch`)."""
    ack_wait_ms: int | None = None
    """How long a message may stay unsettled; -1: for ever."""
    retries: int | None = None
    """How often a message is repeated after a `communication.*` failure; -1: for ever. None: `RETRIES`."""
    delay_ms: int | None = None
    """How long after the first failure. None: `DELAY_MS`, and each pause of a row is `DELAY_FACTOR` times as long as the one
    before, `MAX_DELAY_MS` at most."""
    delay_factor: float | None = None
    """How many times as long as the one before each pause of a row is; 1 if only `delay_ms` is given."""
    max_delay_ms: int | None = None
    """The longest pause."""
    absence: bool | None = None
    """Whether a client that is away counts as failing: True lets a named session end after as long as all retries would take.
    None: it does not, and the session lives for its `timeout`."""
    ping_interval_ms: int | None = None
    """How long the connection may be idle before the server tries it; 0: for ever."""
    unclaimed_ms: int | None = None
    """How long a message waits for a listener before it is rejected, and so becomes a dead letter; -1, and None: for ever."""
    on_rejected: Callable[[Fields], None] | None = None
    """Called with each status that the server did not take."""

    def __post_init__(self) -> None:
        if self.settle not in SETTLES:
            raise ValueError(f"settle is {' or '.join(SETTLES)}, not {self.settle}")
        if self.unclaimed_ms is not None and not (type(self.unclaimed_ms) is int and self.unclaimed_ms >= -1):
            raise ValueError(f"unclaimed_ms is a number of milliseconds, or -1 for ever, not {self.unclaimed_ms!r}")
        if self.unclaimed_ms is not None and not self.update:
            raise ValueError("unclaimed_ms needs update")

    @property
    def unclaimed_s(self) -> float | None:
        """`unclaimed_ms` in seconds; None: for ever."""
        return None if self.unclaimed_ms in (None, -1) else (self.unclaimed_ms or 0) / 1000

    @property
    def told_by(self) -> str:
        """What settles a message on the wire. If the application has not asked for `update`, its batch does."""
        return self.settle if self.update else "batch"

    @property
    def fields(self) -> Fields:
        """What `ext.session` asks for."""
        return CONNECT.write(
            {
                "update": self.update or None,
                "settle": self.settle if self.update else None,
                "ack_wait_ms": self.ack_wait_ms,
                "ping_interval_ms": self.ping_interval_ms,
            }
        )

    def with_retries(self, login: Fields) -> Fields:
        """The same `ext.session` with what a failure of this client does, for one that reports failures or asks for some of
        it. What its `dispatcher` says by itself stays."""
        own = login.get("dispatcher")
        given = (dict(own) if isinstance(own, dict) else {}) | DISPATCHER.write(
            {
                "retries": self.retries,
                "delay_ms": self.delay_ms,
                "factor": self.delay_factor,
                "max_delay_ms": self.max_delay_ms,
                "absence": self.absence,
            }
        )
        if not login.get("update") and not given:
            return login
        # Left out, `dispatcher` would also say how long the session outlives its client.
        usual = {"retries": RETRIES, "delay": DELAY_MS, "absence": False}
        growing = {} if "delay" in given else {"factor": DELAY_FACTOR, "maxDelay": MAX_DELAY_MS}
        return login | {"dispatcher": usual | growing | given}


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one client; times in seconds."""

    url: str
    """The endpoint. `ws` and `wss` are taken for `http` and `https`: all transports share one URL."""
    transports: tuple[str, ...] = TRANSPORTS
    """Tried in this order at every handshake."""
    ack: bool = True
    """Whether to ask for acknowledged delivery."""
    settling: Settling = field(default_factory=Settling)
    """How messages are settled."""
    network_delay: float = 10.0
    """How long an answer may take, beyond the time the server holds a connect."""
    open_timeout: float = 10.0
    """How long the first handshake is tried again; 0: one attempt."""
    name_timeout: float | None = None
    """How long to wait at most for a name whose last client is gone; None: as long as the server says, 0: not at all."""
    close_timeout: float = 2.0
    """How long the polite disconnect may take."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request and with the upgrade."""
    cookies: Mapping[str, str] = field(default_factory=dict)
    """Present from the start; what the server sets is added."""
    handshake: Fields = field(default_factory=dict)
    """More fields of the handshake, mostly `ext`."""
    login: Fields = field(default_factory=dict)
    """The login: `ext.session` of the handshake."""
    resume_file: Path | None = None
    """Where the secret that takes the session over is kept, for the next process."""
    leave: bool = False
    """Whether closing leaves the session with the server, which keeps it for a later client with its name."""
    ssl: SSLContext | None = None
    """Whom to trust over https; None: the authorities that this machine trusts."""
    backoff: BackoffRule = field(default_factory=BackoffRule)
    """How long to wait between failed attempts."""
    max_bytes: int = 16 * 1024 * 1024
    """The largest response or frame that is taken."""

    @property
    def reports(self) -> bool:
        """Whether the client reports statuses at all: if the application wants it, and else for messages that no listener
        takes, in a session that waits for its client and so may have more for it than it listens to."""
        return self.ack and self.login.get("update") is True

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _http(self.url))
        object.__setattr__(self, "transports", tuple(self.transports))
        unknown = [name for name in self.transports if name not in TRANSPORTS]
        if unknown or not self.transports:
            raise ValueError(f"transports are {', '.join(TRANSPORTS)}, not {', '.join(unknown) or 'none'}")
        if self.settling.update and not self.ack:
            raise ValueError("update needs ack")
        if self.network_delay <= 0:
            raise ValueError("network_delay must be positive")


def _http(text: str) -> str:
    url = URL(text)
    if url.scheme not in _SCHEMES or not url.host:
        raise ValueError(f"not an http or ws URL: {text}")
    return str(url.with_scheme(_SCHEMES[url.scheme]))


def reporting_login(login: Fields, *, is_kept: bool = False) -> Fields:
    """What a client asks for that acknowledges and has not said whether it settles. A session that waits for its client may
    have more for it than it listens to; with `update` the client can leave that open, where an acknowledgement settles all.
    `is_kept`: the client keeps what takes its session over."""
    waits = is_kept or login.get("name") or login.get("resume")
    # The application reads at its leisure: a message that is not acknowledged yet has not failed.
    return {"update": True, "settle": "batch", "ackWait": -1, **login} if waits and "settle" not in login else login


def login_fields(session: Fields | None, **more: Any) -> Fields:
    """What `ext.session` asks for: these fields, and those that are neither None nor False."""
    return {
        **(session or {}),
        **{name: value for name, value in more.items() if value is not None and value is not False},
    }
