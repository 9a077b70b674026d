"""What an application decides about its client, checked once; `ext.session` of its handshake follows from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, TypedDict

from yarl import URL

from crewel.bayeux.message import Fields
from crewel.client.arguments import (
    check_count,
    check_fields,
    check_kind,
    check_methods,
    check_path,
    check_plain_function,
    check_text,
    check_texts,
    check_time,
    check_wait,
    check_whole,
    items,
)
from crewel.client.resume import ResumeFile, ResumeStore
from crewel.client.retry import BackoffRule, check_backoff
from crewel.client.time_units import NO_LIMIT, in_milliseconds, milliseconds
from crewel.client.token_source import TokenFunction, check_token
from crewel.outgoing_proxy import Proxy, proxy_for, without_password
from crewel.qos.connect import CONNECT, DISPATCHER
from crewel.qos.names import is_name_for_login, parse_name

TRANSPORTS = ("websocket", "long-polling")
"""The transports there are, in the order in which they are tried by default."""

SETTLES = ("message", "batch")
"""What settles a message that did not fail."""
RETRIES = {"retries": 5, "delay": 1000, "absence": False}
"""What a failure of the client does, unless the application says otherwise: five repeats, the first after a second."""
GROWTH = {"factor": 2, "maxDelay": 60_000}
"""How its pauses grow, unless the application says how long they are."""

_CHECKS: Final[Mapping[str, Callable[[str, object], None]]] = {
    "url": check_text,
    "on_rejected": check_plain_function,
    "headers": check_texts,
    "cookies": check_texts,
    "handshake": check_fields,
    "name": check_text,
    "token": check_token,
    "resume": check_text,
    "resume_file": check_path,
    "resume_store": lambda name, value: check_methods(name, value, _STORE, "load", "save"),
    "session": check_fields,
    "max_open": check_count,
    "network_delay": check_time,
    "open_timeout": check_wait,
    "name_timeout": check_wait,
    "close_timeout": check_wait,
    "backoff": check_backoff,
    "ssl": lambda name, value: check_kind(name, value, "an ssl.SSLContext", SSLContext),
    "proxy": check_text,
    "max_bytes": check_whole,
}
"""What checks the types that would fail later, in the session's loop."""
_STORE: Final = "an object with the coroutine functions load and save, such as ResumeCallbacks(load, save)"
_USUAL_PATH = "/cometd"  # the default of `bayeux.path`
_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class Options(TypedDict, total=False):
    """The keywords of a client; `Config` explains them."""

    transports: Iterable[str]
    ack: bool
    update: bool
    settle: str
    ack_wait: float | None
    max_open: int | None
    retries: int | None
    delay: float | None
    delay_factor: float | None
    max_delay: float | None
    absence: bool | None
    ping_interval: float | None
    unclaimed_timeout: float | None
    on_rejected: Callable[[Fields], None] | None
    headers: Mapping[str, str] | None
    cookies: Mapping[str, str] | None
    handshake: Fields | None
    name: str | None
    token: str | TokenFunction | None
    resume: str | None
    resume_file: str | PathLike[str] | None
    resume_store: ResumeStore | None
    persistent: bool
    session: Fields | None
    leave: bool
    network_delay: float
    open_timeout: float
    name_timeout: float | None
    close_timeout: float
    backoff: BackoffRule | None
    ssl: SSLContext | None
    proxy: str | None
    max_bytes: int
    traces: bool


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one client; times in seconds. None: as the server has it, or nothing."""

    url: str
    """The endpoint. `ws` and `wss` are taken for `http` and `https`: all transports share one URL."""
    transports: Iterable[str] = TRANSPORTS
    """Tried in this order at every handshake."""
    ack: bool = True
    """Whether to ask for acknowledged delivery."""
    update: bool = False
    """Whether to report the status of each message."""
    settle: str = "message"
    """How a message is acknowledged: by its own status (`message`), or by the acknowledgement of its batch (`batch`)."""
    ack_wait: float | None = None
    """How long a message may stay open, in seconds; -1: without limit."""
    max_open: int | None = None
    """How many messages may be open at this client; 1: one at a time. None: any number."""
    retries: int | None = None
    """How often in a row the server retries after a `communication.*` failure; -1: without limit. None: as `RETRIES`."""
    delay: float | None = None
    """The pause after the first failure. None: as `RETRIES`, and further pauses as `GROWTH`."""
    delay_factor: float | None = None
    """Each further pause is this many times as long as the previous one; 1 if only `delay` is set."""
    max_delay: float | None = None
    """The longest pause."""
    absence: bool | None = None
    """Whether the absence of the client counts as a failure. True: a named session ends after the time that all retries would
    take. None: it does not count, and the session lives for its `timeout`."""
    ping_interval: float | None = None
    """How long the connection may be idle before the server tests it; 0: without limit."""
    unclaimed_timeout: float | None = None
    """How long a message waits for a listener before it becomes a dead letter; -1 or None: without limit."""
    on_rejected: Callable[[Fields], None] | None = None
    """Called with each status that the server rejected."""
    headers: Mapping[str, str] | None = None
    """Sent with every request and with the upgrade."""
    cookies: Mapping[str, str] | None = None
    """Present from the start; what the server sets is added."""
    handshake: Fields | None = None
    """More fields of the handshake, mostly `ext`."""
    name: str | None = None
    """The session, `joe/1`, or its subject, `joe`."""
    token: str | TokenFunction | None = None
    """A JSON Web Token, or the admin token; or a function or coroutine function that returns one. It is asked again before a
    JSON Web Token expires, and after the server has refused one."""
    resume: str | None = None
    """The secret that takes an earlier session over."""
    resume_file: str | PathLike[str] | None = None
    """Where that secret is kept, for the next process."""
    resume_store: ResumeStore | None = None
    """What keeps that secret, if it is no file."""
    persistent: bool = False
    """Whether to require a session that survives a restart of the server."""
    session: Fields | None = None
    """More fields of `ext.session`."""
    leave: bool = False
    """Whether closing leaves the session with the server, which keeps it for a later client with its name."""
    network_delay: float = 10.0
    """How long an answer may take, beyond the time the server holds a connect."""
    open_timeout: float = 10.0
    """How long to retry the first handshake; 0: one attempt."""
    name_timeout: float | None = None
    """The longest wait for a name whose last client is gone; None: the time that the server gives, 0: no wait."""
    close_timeout: float = 2.0
    """How long the disconnect may take."""
    backoff: BackoffRule | None = None
    """How long to wait between failed attempts. None: as `BackoffRule` has it."""
    ssl: SSLContext | None = None
    """Whom to trust over https; None: the authorities that this machine trusts."""
    proxy: str | None = field(default=None, repr=False)
    """The HTTP proxy, `http://NAME:PASSWORD@HOST:PORT`, also for a server on loopback; empty: none. None: as the environment
    has it (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`), but none for a server on loopback."""
    max_bytes: int = 16 * 1024 * 1024
    """The largest response or frame that is taken."""
    traces: bool = False
    """Whether to make spans with OpenTelemetry, which the extra `otel` brings."""
    login: Fields = field(init=False)
    """The login: `ext.session` of the handshake."""
    through: Proxy | None = field(init=False)
    """The proxy on the way to the server."""

    def __post_init__(self) -> None:
        for each in fields(self):
            # None is what some have by default.
            if each.name in _CHECKS and (value := getattr(self, each.name)) is not each.default:
                _CHECKS[each.name](each.name, value)
        transports = items("transports", self.transports, 'a list such as ["websocket"]')
        unknown = [str(name) for name in transports if name not in TRANSPORTS]
        if unknown or not transports:
            raise ValueError(f"transports are {', '.join(TRANSPORTS)}, not {', '.join(unknown) or 'none'}")
        if self.name is not None and not is_name_for_login(self.name):
            raise ValueError(f"name is a subject, or one with a number from 1, such as joe or joe/1, not {self.name!r}")
        if self.settle not in SETTLES:
            raise ValueError(f"settle is {' or '.join(SETTLES)}, not {self.settle}")
        if self.unclaimed_timeout is not None:
            milliseconds("unclaimed_timeout", self.unclaimed_timeout)
            if not self.update:
                raise ValueError("unclaimed_timeout needs update")
        if self.resume_file is not None and self.resume_store is not None:
            raise ValueError("resume_file and resume_store exclude each other: give one of them")
        if self.update and not self.ack:
            raise ValueError("update needs ack")
        if self.max_open is not None and not self.ack:
            raise ValueError("max_open needs ack")
        if not self.network_delay > 0:  # which NaN is not
            raise ValueError(f"network_delay is a positive number of seconds, not {self.network_delay!r}")
        object.__setattr__(self, "url", _http(self.url))
        object.__setattr__(self, "through", proxy_for(self.url, self.proxy))
        object.__setattr__(self, "transports", transports)
        object.__setattr__(self, "login", self._with_retries(self._asked()))

    @property
    def unclaimed_s(self) -> float | None:
        """`unclaimed_timeout`; None: without limit."""
        return None if self.unclaimed_timeout in (None, NO_LIMIT, math.inf) else self.unclaimed_timeout

    @property
    def secrets(self) -> ResumeStore | None:
        """What keeps the secret of the session, if anything does."""
        return self.resume_store if self.resume_file is None else ResumeFile(Path(self.resume_file))

    @property
    def returns(self) -> bool:
        """Whether the next process can come back to the session: by its name with a number, or with the secret that is kept."""
        parsed = None if self.name is None else parse_name(self.name)
        return self.secrets is not None or (parsed is not None and parsed.is_chosen)

    @property
    def settles_by(self) -> str:
        """What settles a message on the wire. If the application has not asked for `update`, its batch does."""
        return self.settle if self.update else "batch"

    @property
    def reports(self) -> bool:
        """Whether the client reports statuses at all. It does if the application wants it. Else it does for messages that no
        listener takes, in a session that waits for its client and so may have more for it than it listens to."""
        return self.ack and self.login.get("update") is True

    def _asked(self) -> Fields:
        """What `ext.session` asks for, but for retries."""
        asked = CONNECT.write(
            in_milliseconds(
                {
                    "name": self.name,
                    "resume": self.resume,
                    "persistent": self.persistent or None,
                    "update": self.update or None,
                    "settle": self.settle if self.update else None,
                    "ack_wait": self.ack_wait,
                    "max_open": self.max_open,
                    "ping_interval": self.ping_interval,
                }
            )
        )
        login = {**(self.session or {}), **asked}
        # A session that waits for its client may have more for it than it listens to; with `update` the client can leave that
        # open, where an acknowledgement settles all. The application reads at its leisure: what is not acknowledged yet has
        # not failed.
        waits = self.secrets is not None or login.get("name") or login.get("resume")
        if self.ack and not self.update and waits and "settle" not in login:
            return {"update": True, "settle": "batch", "ackWait": -1, **login}
        return login

    def _with_retries(self, login: Fields) -> Fields:
        """The fields of a login with the retries that this client asks for, if it reports failures or asks for some. What its
        own `dispatcher` says stays."""
        own: Any = login.get("dispatcher")
        given = (dict(own) if isinstance(own, dict) else {}) | DISPATCHER.write(
            in_milliseconds(
                {
                    "retries": self.retries,
                    "delay": self.delay,
                    "factor": self.delay_factor,
                    "max_delay": self.max_delay,
                    "absence": self.absence,
                }
            )
        )
        if not login.get("update") and not given:
            return login
        # Left out, `dispatcher` would also say how long the session outlives its client.
        return login | {"dispatcher": RETRIES | ({} if "delay" in given else GROWTH) | given}


INHERITED: Final = frozenset(
    {
        "transports",
        "headers",
        "cookies",
        "handshake",
        "token",
        "network_delay",
        "open_timeout",
        "name_timeout",
        "close_timeout",
        "backoff",
        "ssl",
        "proxy",
        "max_bytes",
        "on_rejected",
        "traces",
    }
)
"""What a consumer's session has from its client: all that does not say whose session it is, and how it is delivered to."""


def _http(text: str) -> str:
    """The address with http or https. One without a path is that of a server, which answers at its usual path."""
    shown = without_password(text)
    if "://" not in text:
        raise ValueError(f"the address needs a scheme: http://{shown.lstrip('/')}, not {shown}")
    url = URL(text)
    if url.scheme not in _SCHEMES or not url.host:
        raise ValueError(f"not an http or ws URL: {shown}")
    if url.path in ("", "/"):
        url = url.with_path(_USUAL_PATH, keep_query=True)
    return str(url.with_scheme(_SCHEMES[url.scheme]))
