"""Points in time, and how long something takes: as operators write them, and as they are shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from time import time
from typing import Final

EXPECTED: Final = "a date such as 2026-11-20 or 2026-11-20T15:30:00Z, how long ago (90s, 30m, 2h, 7d), or milliseconds"
"""What `parse_timestamp` takes."""

_AGO: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)", re.ASCII)
_MILLISECONDS: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""Milliseconds of the units in which operators write times."""
_SPANS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def parse_timestamp(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. A date without a zone is UTC. Raises ValueError, with what was expected."""
    text = text.strip()
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * UNITS_MS[ago[2]])
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(EXPECTED) from None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0, int(date.timestamp() * 1000))


def since(value: object) -> int:
    """The field `since` of a request, as milliseconds since 1970. Raises ValueError, with what was expected."""
    if type(value) is int and value >= 0:
        return value
    if not isinstance(value, str):
        raise ValueError(EXPECTED)  # noqa: TRY004 - one error for all that does not fit
    return parse_timestamp(value, int(time() * 1000))


def format_timestamp(milliseconds: float) -> str:
    """The moment as ISO 8601 in UTC, to the millisecond."""
    date = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_span(seconds: float) -> str:
    """How long that is, in its two largest units: "2 h 5 min"; "1.5 s" below a minute."""
    if seconds < 60:
        return f"{seconds:g} s"
    rest, parts = int(seconds), []
    for unit, size in _SPANS:
        number, rest = divmod(rest, size)
        parts.append((number, unit))
    first = next(place for place, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)
