"""What the server advised, as the client keeps it (Bayeux 1.0, 7.4 — advice).

A new advice replaces the old one as a whole: what it leaves out falls back to
the defaults, not to what was advised before. That is what the official client
and most others do, so servers send advice in complete forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Reconnect(Enum):
    """What to do next."""

    RETRY = "retry"
    HANDSHAKE = "handshake"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Advice:
    """One advice; times in seconds (milliseconds on the wire)."""

    reconnect: Reconnect = Reconnect.RETRY
    interval: float = 0.0
    """How long to wait before the next connect or handshake."""
    timeout: float = 60.0
    """How long the server holds a connect."""
    max_interval: float = 0.0
    """When positive: how long an unconnected session lives beyond interval."""

    @property
    def session_lifetime(self) -> float | None:
        """Seconds without a connect after which the session is surely gone, or None: unknown."""
        if self.max_interval <= 0:
            return None
        return self.timeout + self.interval + self.max_interval


def read_advice(wire: object) -> Advice | None:
    """The advice in a reply's `advice` field, or None if there is no such object.

    Values of a wrong type count as left out: advice steers, and a reply must
    not become unusable because a part of its advice is.
    """
    if not isinstance(wire, Mapping):
        return None
    default = Advice()
    return Advice(
        reconnect=_reconnect(wire.get("reconnect"), default.reconnect),
        interval=_seconds(wire.get("interval"), default.interval),
        timeout=_seconds(wire.get("timeout"), default.timeout),
        max_interval=_seconds(wire.get("maxInterval"), default.max_interval),
    )


def _reconnect(value: Any, default: Reconnect) -> Reconnect:
    try:
        return Reconnect(value)
    except ValueError:
        return default


def _seconds(value: Any, default: float) -> float:
    # bool is an int to Python, but not to JSON.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return max(0.0, value / 1000)
