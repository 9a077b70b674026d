"""Says in the log what is refused, in one line a minute at most, and which settings decide it.

A client reads why its message was refused; an operator who sees only the log would learn of it from users.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from crewel.metrics import Metrics

log = logging.getLogger(__name__)

QUIET_S: Final = 60.0
"""Seconds between two lines."""
_PUBLISHES: Final[Mapping[str, str]] = {
    "403": "security.policy or an authoriser does not grant them",
    "404": "an extension or a listener of a service refuses them",
    "405": "a wrong channel or id",
    "409": "the topic or the queue takes no more",
    "503": "the store is unavailable or full",
}
"""Why publishes are refused, by the code of their replies."""
_PAYLOADS: Final[Mapping[str, str]] = {
    "origin": "http.allowed_origins",
    "host": "http.allowed_hosts",
    "too_large": "bayeux.max_message_bytes",
    "too_many": "bayeux.max_batch_messages",
    "too_deep": "bayeux.max_depth",
    "too_slow": "http.body_timeout_ms",
    "no_handshake": "websocket.handshake_timeout_ms",
    "handshake_in_batch": "a client sends more with its handshake; Faye: docs/how-to/from-faye.md",
}
"""What refuses a whole request, by the fault: a setting, or where to read on."""
_OMITTED: Final = frozenset(
    {"402", "429"}
)  # the client begins a new session without help; and what is counted by its limit
_ONE: Final[Mapping[str, str]] = {"publishes": "publish", "operations": "operation", "requests": "request"}


class RefusalSummary:
    """Compares the counters of refusals with what was said of them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._said: Counter[str] = Counter()
        self._quiet_until = 0.0

    def sweep(self, now: float) -> None:
        """Say what was refused since the last line, unless that was a moment ago."""
        if now < self._quiet_until:
            return
        counts = self._counts()
        grown = counts - self._said
        if grown:
            self._said, self._quiet_until = counts, now + QUIET_S
            log.warning("refused within the last minute: %s", "; ".join(map(self._shown, grown, grown.values())))

    def _shown(self, what: str, number: int) -> str:
        noun, _, rest = what.partition(" ")
        return f"{number} {_ONE[noun] if number == 1 else noun} {rest}{self._last(noun, rest.split()[1])}"

    def _last(self, noun: str, why: str) -> str:
        """Where the last of these refusals was, if that is known."""
        channel = self._metrics.refused_channels.get(why) if noun == "publishes" else None
        account = self._metrics.limited_last.get(why.removeprefix("limits.")) if noun == "operations" else None
        return f", the last on {channel!r}" if channel else f", the last of {account}" if account else ""

    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for code, count in self._metrics.refused_publishes.items():
            if code not in _OMITTED:
                counts[
                    f"publishes with {code} ({_PUBLISHES.get(code, 'docs/reference/errors.md lists the codes')})"
                ] = count
        for limit, count in self._metrics.limited.items():
            counts[f"operations by limits.{limit}"] = count
        for fault, count in self._metrics.refused_payloads.items():
            setting = _PAYLOADS.get(fault)
            counts[f"requests as {fault}" + (f" ({setting})" if setting else "")] = count
        return counts
