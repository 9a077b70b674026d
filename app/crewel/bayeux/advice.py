"""Advice objects (Bayeux 1.0, 2.2).

Clients replace their advice as a whole, on any message, so each of these is complete: the three keys together, or one of
the terminal forms.
"""

from __future__ import annotations

from typing import Any

Advice = dict[str, Any]


def retry(interval_ms: int, timeout_ms: int, max_interval_ms: int | None = None) -> Advice:
    """Keep connecting: pause, hold, and, if it is configured, the grace before the session expires."""
    advice: Advice = {"reconnect": "retry", "interval": interval_ms, "timeout": timeout_ms}
    if max_interval_ms is not None:
        advice["maxInterval"] = max_interval_ms
    return advice


def handshake(interval_ms: int = 0) -> Advice:
    """There is no session: handshake again. For failed connects and handshakes; clients choke on it in a successful reply."""
    return {"reconnect": "handshake", "interval": interval_ms}


def none() -> Advice:
    """It has ended: do not connect again."""
    return {"reconnect": "none"}


def removed() -> Advice:
    """The session was disconnected before this connect came: it has ended, and there is nothing to wait for."""
    return {"reconnect": "none", "interval": 0}


def multiple_clients(interval_ms: int, timeout_ms: int | None) -> Advice:
    """Another session of the same browser holds the connection: poll slowly, or, with an interval of 0, not at all."""
    advice: Advice = {"multiple-clients": True, "reconnect": "retry" if interval_ms > 0 else "none"}
    if interval_ms > 0:
        advice["interval"] = interval_ms
    if timeout_ms is not None:
        advice["timeout"] = timeout_ms
    return advice
