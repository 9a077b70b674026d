"""How long one piece of work may keep the event loop, and how a timer notices that the loop was kept for longer.

All sessions wait while the loop is kept, so long work is cut into turns. If the loop stands still all the same, timers fire
late, and before what came meanwhile has been read from the sockets. A late timer therefore proves nothing: what it waits for
may be there already, and gets a little more time.
"""

from __future__ import annotations

from typing import Final

TURN_S: Final = 0.01
"""Seconds, by `perf_counter`, after which work that is not done leaves the rest for another turn of the loop."""
GRACE_S: Final = 0.25
"""Seconds that what was waited for still has after a stall: time enough to read it from a socket."""
_STALL_S: Final = 0.25


def has_stalled(due: float, now: float) -> bool:
    """Whether a timer that was due then (loop time, seconds) and fires now is so late that the loop must have stood still."""
    return now - due > _STALL_S
