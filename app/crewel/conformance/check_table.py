"""The table of checks: what a row says, and what running it may answer. Pure.

A check is a coroutine that gets a `Trial` and returns if the server obeys. `check` puts it into `CHECKS`, in the order of the
files; its docstring says how it looks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from crewel.conformance.verdicts import TRANSPORTS

if TYPE_CHECKING:
    from crewel.conformance.trial import Trial


class Level(Enum):
    """How binding a statement is."""

    MUST = "MUST"
    """MUST and REQUIRED, and what the specification states of servers without a keyword."""
    SHOULD = "SHOULD"
    """SHOULD and RECOMMENDED."""
    CLIENTS = "CLIENTS"
    """Not in the specification: widespread clients depend on it."""


class Outcome(Enum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "not offered"
    """The server does not offer the transport. It may support it: a handshake "MAY" name fewer types than are supported."""
    UNTESTED = "untested"
    """The server gives no occasion to look."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row."""

    id: str
    level: Level
    section: str
    """A key of `SECTIONS`."""
    text: str
    """The statement, in our words."""
    how: str
    """How it is looked at."""
    transports: Collection[str]
    """The transports that it is looked at on; empty: once, on no transport in particular."""
    run: Callable[[Trial], Awaitable[None]]
    is_last: bool = False
    """Whether it runs after all others: a server may break by it."""


SECTIONS: Final = {
    "HTTP transport": "_bayeux_http_transport",
    "Unconnected operation": "_bayeux_operation",
    "Channels": "_bayeux_protocol_elements",
    "Meta channels": "_bayeux_meta_channels",
    "Service channels": "_bayeux_service_channels",
    "Client ID": "_bayeux_protocol_elements",
    "Messages": "_bayeux_protocol_elements",
    "Connection types": "_bayeux_supported_connections",
    "clientId": "_bayeux_clientid",
    "advice": "_bayeux_advice",
    "id": "_bayeux_id",
    "timestamp": "_bayeux_message_fields",
    "successful": "_bayeux_message_fields",
    "error": "_bayeux_message_fields",
    "Handshake": "_bayeux_meta_handshake",
    "Connect": "_bayeux_meta_connect",
    "Disconnect": "_bayeux_meta_disconnect",
    "Subscribe": "_bayeux_meta_subscribe",
    "Unsubscribe": "_bayeux_meta_unsubscribe",
    "Delivery": "_bayeux_event_message",
    "long-polling": "_bayeux_long_polling",
    "callback-polling": "_bayeux_callback_polling",
    "Multiple clients": "_bayeux_multiple_clients",
}
"""The sections of the specification, and their anchors on its page."""
SPECIFICATION: Final = "https://docs.cometd.org/current8/reference/"

CHECKS: Final[dict[str, Check]] = {}
"""All checks by id; `crewel.conformance.runner` imports the files that fill it."""


def check(
    name: str, level: Level, section: str, text: str, transports: Collection[str] = TRANSPORTS, *, is_last: bool = False
) -> Callable[[Callable[[Trial], Awaitable[None]]], Callable[[Trial], Awaitable[None]]]:
    """Put a coroutine into the table."""

    def put(run: Callable[[Trial], Awaitable[None]]) -> Callable[[Trial], Awaitable[None]]:
        if name in CHECKS or section not in SECTIONS:
            raise ValueError(f"{name}: the id is taken, or there is no section {section!r}")
        how = " ".join((run.__doc__ or "").split())
        CHECKS[name] = Check(name, level, section, text, how, transports, run, is_last)
        return run

    return put
