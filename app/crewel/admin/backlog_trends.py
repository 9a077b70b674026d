"""How fast the queues of receivers grow or shrink, since when, and so when they will be full.

Samples are taken when sessions are counted, of queues in which much waits: few receivers have such a one. The queues of
subjects and groups have theirs under their own names, as the store has them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import time
from typing import Final, NamedTuple

MOST_RECEIVERS: Final = 2000
"""Receivers with samples; of more, those sampled least recently are forgotten."""
FILLED: Final = 0.1
"""The part of its bound from which on it is of interest when a queue will be full."""
LEAST_WAITING: Final = 20
"""Messages from which on the queue of a receiver that gets messages is of interest, however little of its bound they are."""
EVERY_MS: Final = 10_000
"""Samples of one queue are at least so far apart."""
SAMPLES: Final = 13
"""Two minutes, at that distance."""
LEAST_MS: Final = 30_000
"""What is known of a shorter time says nothing."""
_OLD_MS: Final = 1_800_000
"""How long the newest sample holds; a server with very many sessions counts them seldom."""


class Trend(NamedTuple):
    """A queue that grows or shrinks. Times are milliseconds since 1970."""

    full_at: int | None
    """When it will be full, if it continues to grow so; None if it shrinks, or has hardly anything of its bound."""
    per_minute: float
    """Messages that come more than leave; below 0, it shrinks."""
    since: int = 0
    """When it began to grow or to shrink, as far as is known."""


class _Sample(NamedTuple):
    at: int
    share: float
    waiting: int


@dataclass(slots=True)
class _Series:
    is_stopped: bool
    """Whether its receiver gets nothing: a queue grows otherwise then, and what it did before tells nothing."""
    round: int
    """The count that noted it last."""
    samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    trend: Trend | None = None
    """How it grows at present."""
    turn: Trend | None = None
    """How it grew or shrank when it was last known to, with the beginning of that."""

    def add(self, sample: _Sample) -> None:
        self.samples.append(sample)
        self.trend = self._shrinks() or self._grows()
        if self.trend is None:
            return
        if self.turn is not None and (self.turn.per_minute > 0) is (self.trend.per_minute > 0):
            self.trend = self.trend._replace(since=self.turn.since)
        self.turn = self.trend

    def _grows(self) -> Trend | None:
        first, middle, last = self.samples[0], self.samples[len(self.samples) // 2], self.samples[-1]
        took = last.at - first.at
        # A queue that is emptied now and then grows in between.
        if took < LEAST_MS or last.share <= first.share or last.share <= middle.share:
            return None
        left = (1 - last.share) * took / (last.share - first.share)
        full_at = int(last.at + left) if last.share >= FILLED else None
        return Trend(full_at, _per_minute(first, last), min(reversed(self.samples), key=_share).at)

    def _shrinks(self) -> Trend | None:
        """How it shrinks from its peak on, not from the first sample: an operator wants to see soon that a cure helps."""
        peak, last = max(reversed(self.samples), key=_share), self.samples[-1]
        later = [each for each in self.samples if each.at >= peak.at]
        if last.at - peak.at < LEAST_MS or last.share >= later[len(later) // 2].share:
            return None
        return Trend(None, _per_minute(peak, last), peak.at)


def _share(sample: _Sample) -> float:
    return sample.share


def _per_minute(first: _Sample, last: _Sample) -> float:
    return (last.waiting - first.waiting) * 60_000 / (last.at - first.at)


class BacklogTrends:
    """Those of one server. `clock` tells seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._series: OrderedDict[str, _Series] = OrderedDict()
        self._round = 0

    def begin(self) -> None:
        """A count begins: it notes all queues in which something waits. One that it does not note begins again later."""
        self._round += 1

    def note(self, name: str, share: float, waiting: int, *, is_stopped: bool = False) -> None:
        """So many messages wait for this receiver, which gets nothing at present if it is stopped, and its queue is filled to
        this part."""
        if share < FILLED and (is_stopped or waiting < LEAST_WAITING):
            self._series.pop(name, None)
            return
        now, series = int(self._clock() * 1000), self._series.get(name)
        if series is None or series.round < self._round - 1 or series.is_stopped is not is_stopped:
            series = self._series[name] = _Series(is_stopped, self._round)
        self._series.move_to_end(name)
        series.round = self._round
        if series.samples and now - series.samples[-1].at < EVERY_MS:
            return
        series.add(_Sample(now, share, waiting))
        if len(self._series) > MOST_RECEIVERS:
            self._series.popitem(last=False)

    def of(self, name: str, *, is_stopped: bool = False) -> Trend | None:
        """How the queue of this receiver grows or shrinks; None if it does neither, or that is not known."""
        series = self._series.get(name)
        if series is None or series.is_stopped is not is_stopped:
            return None
        return None if int(self._clock() * 1000) - series.samples[-1].at > _OLD_MS else series.trend
