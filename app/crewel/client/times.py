"""Times of the Python API: seconds, where the wire counts milliseconds. The names that end in `_ms` are the ones of version
0.1, and are accepted until 0.3."""

from __future__ import annotations

import math
import warnings
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
"""The options that are times, in seconds, and the names of the same in milliseconds."""
_OLD: Final = {old: new for new, old in TIMES.items()}


def milliseconds(name: str, seconds: object) -> int:
    """This time as the wire has it. Raises ValueError, which names the argument."""
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        if seconds in (NO_LIMIT, math.inf):
            return NO_LIMIT
        if seconds >= 0:  # which NaN is not
            return round(seconds * 1000)
    raise ValueError(f"{name} is a number of seconds, or -1 for no limit, not {seconds!r}")


def in_seconds(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options in which the times that have old names have their new ones, with a DeprecationWarning for each. Raises
    TypeError if both are given."""
    told: dict[str, Any] = {}
    for name, value in given.items():
        new = _OLD.get(name, name)
        if new in told or (new != name and new in given):
            raise TypeError(f"{new} and {name} mean the same: give only {new}")
        if new != name:
            warnings.warn(f"{name} is deprecated: use {new}, in seconds", DeprecationWarning, stacklevel=4)
            told[new] = value / 1000 if isinstance(value, int | float) and value > 0 else value
        else:
            told[new] = value
    return told


def in_milliseconds(given: Mapping[str, Any]) -> dict[str, Any]:
    """These options by the names that the tables of `crewel.qos` have. Raises ValueError, which names the argument."""
    return {
        TIMES.get(name, name): milliseconds(name, value) if name in TIMES and value is not None else value
        for name, value in in_seconds(given).items()
    }
