"""Hours as numbers: how many whole hours lie between 1970 and their beginning, by UTC. Of these gold is made again, as far as
something came to them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from datetime import UTC, date, datetime
from typing import Final

HOUR_MS: Final = 3_600_000
A_DAY: Final = 24


def of_days(days: Iterable[date]) -> set[int]:
    """Return all hours of these days."""
    return {first + hour for first in map(_first_of, days) for hour in range(A_DAY)}


def of_part(day: date, first_ms: int | None, last_ms: int | None) -> set[int]:
    """Return the hours of a day from one millisecond since 1970 to another, both inclusive; all of them if one is not known."""
    whole = range(_first_of(day), _first_of(day) + A_DAY)
    if first_ms is None or last_ms is None:
        return {*whole}
    return {hour for hour in whole if first_ms // HOUR_MS <= hour <= last_ms // HOUR_MS}


def days_of(hours: Iterable[int]) -> set[date]:
    """Return the days that these hours are of."""
    return {datetime.fromtimestamp(hour * HOUR_MS // 1000, UTC).date() for hour in hours}


def ranges(hours: Set[int]) -> list[tuple[int, int]]:
    """Return (first, last + 1) in milliseconds since 1970 for each run of hours without a gap."""
    firsts = sorted(hour for hour in hours if hour - 1 not in hours)
    ends = sorted(hour + 1 for hour in hours if hour + 1 not in hours)
    return [(first * HOUR_MS, end * HOUR_MS) for first, end in zip(firsts, ends, strict=True)]


def condition(hours: Collection[int], ms: str = "ms") -> str:
    """Return a condition in SQL: whether this expression, in milliseconds since 1970, lies within these hours."""
    within = " OR ".join(f"({ms} >= {first} AND {ms} < {end})" for first, end in ranges({*hours}))
    return f"({within or 'false'})"


def _first_of(day: date) -> int:
    return (day - date(1970, 1, 1)).days * A_DAY
