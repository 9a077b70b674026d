"""Which shape the data of acknowledged messages has, by sample: of a channel one message at most in a second.

Facts hold no data, and of what is taken nothing else is kept. Where receivers begin to reject what a channel has, dead letters
have the shape of that, and the samples have the shape of what they took before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf
from typing import Any, Final

from crewel.delivery.entry import Entry
from crewel.event_loop import in_turns
from crewel.storage.data_shape import shape_of

LARGEST: Final = 16_384
"""Bytes of a message that is looked at. Larger ones take long to parse, and would be kept in memory until then."""
MOST: Final = 1000
"""Samples that wait to be looked at."""
MOST_KNOWN: Final = 10_000
"""Channels whose last shape is known; the one that was not sampled for longest is forgotten."""
_PAUSE_S: Final = 1.0
_REPEAT_S: Final = 3600.0
"""So that a channel that never changes stays known, though old events leave the store."""


class ShapeSamples:
    """The samples of one server. To add one costs as much as to put it into a dict; they are parsed when `changed` is asked."""

    def __init__(self) -> None:
        self._waiting: dict[str, Entry] = {}
        self._known: dict[str, tuple[str, float]] = {}
        """By channel: its last shape, and when that was reported."""
        self._due = 0.0

    def add(self, entry: Entry) -> None:
        """This message was acknowledged; it is the sample of its channel, if that has none yet."""
        if entry.channel in self._waiting or len(self._waiting) >= MOST or not 0 < len(entry.wire) <= LARGEST:
            return
        is_redriven = entry.origin is not None and bool(entry.origin.redrive_of)
        if not is_redriven and not entry.is_notice:  # a redriven one is of an earlier time
            self._waiting[entry.channel] = entry

    async def changed(self, now: float) -> AsyncIterator[dict[str, Any]]:
        """Yield `channel`, `shape`, `id` and `sender` of each sample that differs from the one before it, once in a second at
        most. `now` is loop time, in seconds."""
        if now < self._due:
            return
        self._due = now + _PAUSE_S
        waiting, self._waiting = self._waiting, {}
        async for channel, entry in in_turns(waiting.items()):
            shape = shape_of(entry.wire)
            if self._is_news(channel, shape, now):
                sender = "" if entry.origin is None else entry.origin.sender
                yield {"channel": channel, "shape": shape, "id": str(entry.position), "sender": sender}

    def last_of(self, channel: str) -> str | None:
        """The shape of what was acknowledged last of this channel, as far as samples say it; None if they do not."""
        known = self._known.get(channel)
        return None if known is None else known[0]

    def forget(self) -> None:
        """What was reported is lost: report it again."""
        self._known = {channel: (shape, -inf) for channel, (shape, _) in self._known.items()}

    def _is_news(self, channel: str, shape: str, now: float) -> bool:
        known, reported = self._known.pop(channel, (None, 0.0))
        is_news = known != shape or now >= reported + _REPEAT_S
        self._known[channel] = shape, now if is_news else reported
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return is_news
