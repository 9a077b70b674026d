"""How long a bar or a point of a plot stands for: longer, as the range grows, so that each can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

MOST_BARS: Final = 72
"""Columns of a plot that are still broad enough to point at."""
MOST_POINTS: Final = 1440
"""Points of a line: the minutes of a day."""


class Slot(NamedTuple):
    """A length of time, in seconds, and its name."""

    seconds: int
    name: str


WEEK_S: Final = 7 * 86400
"""Weeks begin on Mondays; all others are counted from 1970 on."""
ALL: Final = (
    Slot(60, "minute"),
    Slot(300, "5 minutes"),
    Slot(900, "15 minutes"),
    Slot(3600, "hour"),
    Slot(6 * 3600, "6 hours"),
    Slot(86400, "day"),
    Slot(WEEK_S, "week"),
)
"""From the shortest to the longest."""
_WHOLE: Final = tuple(each for each in ALL if each.name in ("hour", "day", "week"))


def of_bars(since: datetime, until: datetime) -> Slot:
    """Return the slot of the bars of some time, from a minute on."""
    return _shortest(ALL, since, until, MOST_BARS)


def of_hours(since: datetime, until: datetime) -> Slot:
    """Return the slot of the bars of what is known by hour: hours, days or weeks."""
    return _shortest(_WHOLE, since, until, MOST_BARS)


def of_points(since: datetime, until: datetime) -> Slot:
    """Return the slot of the points of a line, from a minute on."""
    return _shortest(ALL, since, until, MOST_POINTS)


def _shortest(slots: Sequence[Slot], since: datetime, until: datetime, most: int) -> Slot:
    length = (until - since).total_seconds()
    return next((each for each in slots if length <= each.seconds * most), slots[-1])
