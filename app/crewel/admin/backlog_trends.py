"""How fast the queues of receivers grow, and so when they will be full.

Samples are taken when sessions are counted, of queues that are filled to some part: few receivers have such a one. The queues
of subjects and groups have theirs under their own names, as the store has them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Final, NamedTuple

MOST_RECEIVERS: Final = 2000
"""Receivers with samples; of more, those sampled least recently are forgotten."""
FILLED: Final = 0.1
"""The part of its bound from which on the growth of a queue is of interest."""
EVERY_MS: Final = 10_000
"""Samples of one queue are at least so far apart."""
SAMPLES: Final = 13
"""Two minutes, at that distance."""
LEAST_MS: Final = 30_000
"""What is known of a shorter time says nothing."""
_OLD_MS: Final = 1_800_000
"""How long the newest sample holds; a server with very many sessions counts them seldom."""


class Trend(NamedTuple):
    """A queue that grows."""

    full_at: int
    """When it will be full, if it continues to grow so: milliseconds since 1970."""
    per_minute: float
    """Messages that come more than leave."""


class _Sample(NamedTuple):
    at: int
    share: float
    waiting: int


@dataclass(slots=True)
class _Series:
    round: int
    """The count that noted it last."""
    samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))


class BacklogTrends:
    """Those of one server. `clock` tells seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._series: OrderedDict[str, _Series] = OrderedDict()
        self._round = 0

    def begin(self) -> None:
        """A count begins: it notes all queues in which something waits. One that it does not note begins again later."""
        self._round += 1

    def note(self, name: str, share: float, waiting: int) -> None:
        """So many messages wait for this receiver, and its queue is filled to this part."""
        if share < FILLED:
            self._series.pop(name, None)
            return
        now = int(self._clock() * 1000)
        series = self._series.setdefault(name, _Series(self._round))
        self._series.move_to_end(name)
        if series.round < self._round - 1:
            series.samples.clear()  # it was empty in between
        series.round = self._round
        if series.samples and now - series.samples[-1].at < EVERY_MS:
            return
        series.samples.append(_Sample(now, share, waiting))
        if len(self._series) > MOST_RECEIVERS:
            self._series.popitem(last=False)

    def of(self, name: str) -> Trend | None:
        """How the queue of this receiver grows; None if it does not, or that is not known."""
        series = self._series.get(name)
        known: Sequence[_Sample] = () if series is None else series.samples
        if len(known) < 3 or int(self._clock() * 1000) - known[-1].at > _OLD_MS:
            return None
        first, middle, last = known[0], known[len(known) // 2], known[-1]
        took = last.at - first.at
        # A queue that is emptied now and then grows in between.
        if took < LEAST_MS or last.share <= first.share or last.share <= middle.share:
            return None
        left = (1 - last.share) * took / (last.share - first.share)
        return Trend(int(last.at + left), (last.waiting - first.waiting) * 60_000 / took)
