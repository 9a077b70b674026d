"""The last hour of one server: a sample of its figures every five seconds, in a ring, so that a page that opens shows what was.

A sample reads numbers that exist anyway. Only the sessions and their messages have to be counted one session after the other,
by the same look that the overview shows. That is done in turns, and the longer it takes the more seldom, so that it never costs
more than a thousandth of the processor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import nan
from time import process_time, time
from typing import TYPE_CHECKING, Final

from crewel.metrics import Metrics
from crewel.storage.streams import BUCKETS_MS, WIDE_MS

if TYPE_CHECKING:
    from crewel.admin.server_view import ServerView
    from crewel.admin.session_counts import SessionCounts

EVERY_S: Final = 5.0
KEPT: Final = 720
"""Samples: an hour."""
_SHARE: Final = 1000
"""After a count of the sessions, at least so many times what it took passes before the next one."""

_RATES: Final[dict[str, Callable[[Metrics], float]]] = {
    "published": lambda metrics: metrics.publishes,
    "delivered": lambda metrics: metrics.deliveries,
    "redelivered": lambda metrics: metrics.redeliveries + metrics.resends,
    "deadLetters": lambda metrics: sum(metrics.letters.values()),
    "dropped": lambda metrics: metrics.lost,
    "refused": lambda metrics: sum(metrics.errors.values()),
    "stored": lambda metrics: metrics.stored_publishes,
    "groups": lambda metrics: metrics.publish_steps,
    "foreign": lambda metrics: metrics.foreign_entries,
}
"""Counters, which samples have as rates a second."""
_GAUGES: Final = {"memoryBytes": "queued_bytes"}
"""Figures that samples have as they stand: gauges."""
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""Percentiles of the time from a publish to its acknowledgement, in milliseconds; NaN without acknowledgements."""

COUNTED: Final = ("sessions", "connected", "waiting", "queued")
"""What a look at every session tells; `queued` waits for subjects and groups, all the rest is of sessions."""

COLUMNS: Final = ("at", *_RATES, *_GAUGES, *COUNTED, *_SHARES)
"""What a sample has; `at` is in milliseconds since 1970."""


class MetricsHistory:
    """Takes the samples of one server."""

    def __init__(
        self, view: ServerView, count: Callable[[], Awaitable[SessionCounts]], queued: Callable[[], int]
    ) -> None:
        """`count` looks at every session, and `queued` says how many messages wait for subjects and groups."""
        self._now, self._metrics, self._events = view.now, view.metrics, view.events
        self._count, self._queued = count, queued
        self._samples: deque[tuple[float, ...]] = deque(maxlen=KEPT)
        self._last: tuple[float, ...] = (nan,) * len(COUNTED)
        self._count_at = 0.0
        self._at = self._now()
        self.on_sample: list[Callable[[], None]] = []
        """Called after each sample."""
        self._counts = self._counted()
        self._latencies = list(self._events.latencies)
        self._lost = deque([self._metrics.lost], maxlen=KEPT)

    async def run_forever(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.count_sessions()
            self.sample()
            for follow in self.on_sample:
                follow()

    async def count_sessions(self) -> None:
        """Count the sessions and their messages, unless it is too early for it."""
        if self._now() < self._count_at:
            return
        began = process_time()
        counted = await self._count()
        self._last = counted.count, counted.connected, counted.waiting, self._queued()
        self._count_at = self._now() + _SHARE * (process_time() - began)

    def sample(self) -> None:
        """Take one sample."""
        now, counts, latencies = self._now(), self._counted(), list(self._events.latencies)
        seconds = max(now - self._at, 0.001)
        rates = [(after - before) / seconds for before, after in zip(self._counts, counts, strict=True)]
        gauges = map(self._metrics.value, _GAUGES.values())
        took = [after - before for before, after in zip(self._latencies, latencies, strict=True)]
        shares = [percentile(took, share) for share in _SHARES.values()]
        self._samples.append((time() * 1000, *rates, *gauges, *self._last, *shares))
        self._at, self._counts, self._latencies = now, counts, latencies
        self._lost.append(self._metrics.lost)

    @property
    def lost(self) -> int:
        """How many messages were dropped in the last hour for want of room, and are in no dead letter."""
        return self._metrics.lost - self._lost[0]

    @property
    def newest_ms(self) -> float:
        """When the newest sample was taken: milliseconds since 1970; 0 without any."""
        return self._samples[-1][0] if self._samples else 0.0

    def since(self, after_ms: float) -> dict[str, list[float]]:
        """The samples that are newer than this, by column, the oldest first."""
        found = [sample for sample in self._samples if sample[0] > after_ms]
        columns = zip(*found, strict=True) if found else ([] for _ in COLUMNS)
        return {name: list(values) for name, values in zip(COLUMNS, columns, strict=True)}

    def _counted(self) -> list[float]:
        return [read(self._metrics) for read in _RATES.values()]


def percentile(buckets: Sequence[int], share: float) -> float:
    """The time in milliseconds within which this share of what the buckets count lies, as far as buckets tell: within one, all
    are taken to be spread evenly. From a minute on, the lower bound of the bucket: "at least". NaN if they count nothing."""
    wanted = share * sum(buckets)
    if not wanted:
        return nan
    passed, low = 0, 0
    for high, count in zip((*BUCKETS_MS, BUCKETS_MS[-1]), buckets, strict=True):
        if count and passed + count >= wanted:
            return low if low >= WIDE_MS else low + (high - low) * (wanted - passed) / count
        passed, low = passed + count, high
    return float(low)
