"""Times of the Python API: seconds, where the wire counts milliseconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

NO_LIMIT: Final = -1
"""What stands for "without limit" on the wire, and is accepted in Python beside `math.inf`."""
TIMES: Final = {
    "ack_wait": "ack_wait_ms",
    "delay": "delay_ms",
    "max_delay": "max_delay_ms",
    "ping_interval": "ping_interval_ms",
    "unclaimed_timeout": "unclaimed_ms",
    "life_time": "life_time_ms",
    "destroy_delay": "destroy_delay_ms",
    "deliver_at": "deliver_at_ms",
    "deliver_after": "deliver_after_ms",
}
"""The options that are times, in seconds, and the names that the tables of `crewel.qos` have for them."""


def milliseconds(name: str, seconds: object) -> int:
    """This time as the wire has it. Raises ValueError, which names the argument."""
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        if seconds in (NO_LIMIT, math.inf):
            return NO_LIMIT
        if seconds >= 0:  # which NaN is not
            return round(seconds * 1000)
    raise ValueError(f"{name} is a number of seconds, or -1 for no limit, not {seconds!r}")


def _instant(name: str, when: object) -> int:
    """Milliseconds since 1970, of seconds since 1970 or a datetime with a time zone."""
    seconds = when.timestamp() if isinstance(when, datetime) and when.tzinfo is not None else when
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < math.inf:
        return round(seconds * 1000)
    raise ValueError(f"{name} is a datetime with a time zone, or a number of seconds since 1970, not {when!r}")


def _pause(name: str, seconds: object) -> int:
    """Milliseconds, of a time that has to end."""
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < math.inf:
        return round(seconds * 1000)
    raise ValueError(f"{name} is a number of seconds from 0 on, not {seconds!r}")


_OTHERS: Final[Mapping[str, Callable[[str, object], int]]] = {"deliver_at": _instant, "deliver_after": _pause}
"""How those times are read that cannot be without limit."""


def in_milliseconds(given: Mapping[str, Any]) -> dict[str, Any]:
    """These options by the names that the tables of `crewel.qos` have. Raises ValueError, which names the argument."""
    return {
        TIMES.get(name, name): value
        if name not in TIMES or value is None
        else _OTHERS.get(name, milliseconds)(name, value)
        for name, value in given.items()
    }
