"""Times of the Python API: seconds, where the wire counts milliseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
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


def in_milliseconds(given: Mapping[str, Any]) -> dict[str, Any]:
    """These options by the names that the tables of `crewel.qos` have. Raises ValueError, which names the argument."""
    return {
        TIMES.get(name, name): milliseconds(name, value) if name in TIMES and value is not None else value
        for name, value in given.items()
    }
