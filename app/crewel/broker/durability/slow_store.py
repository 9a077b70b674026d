"""Notices a store that has become slow, and warns once until it has recovered."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

WELL_AFTER_S: Final = 30.0
"""Seconds without a slow commit after which the store counts as well."""


class SlowStore:
    """What the commits of one server have taken."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0

    def took(self, seconds: float, limit: float, now: float) -> None:
        """A commit has taken so many seconds. `limit`: from how many on it is slow; 0: none is."""
        if limit and seconds >= limit:
            if self._since is None:
                self._since = now
                log.warning(
                    "the store is slow: a commit took %.3f s, and persistent publishes wait as long. Check its disk and "
                    "memory, and run crewel doctor (storage.slow_ms)",
                    seconds,
                )
            self._last = now
        elif self._since is not None and now - self._last >= WELL_AFTER_S:
            log.warning("the store is fast again: it was slow for %.0f s", self._last - self._since)
            self._since = None
