"""Notices when the store has let go facts or events that the data pipeline had not read.

The streams are kept to their hard bounds, whoever reads them: what the store can hold comes before the pipeline. So what was
missed is told, in the log and in a figure, while there is time to give the streams more room or the pipeline more hands.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from crewel.storage import pipeline
from crewel.storage.pipeline import Progress

if TYPE_CHECKING:
    from crewel.broker.durability.durability import Durability
    from crewel.metrics import Metrics

log = logging.getLogger(__name__)

_EVERY: Final = 5  # looks of the upkeep; what is counted is exact however seldom it is looked
_BOUNDS: Final = {"facts": "storage.facts_max_entries and storage.facts_max_bytes", "events": "events.max_bytes"}


class Unread:
    """Compares what was trimmed with how far the pipeline has told that it is."""

    def __init__(self, durability: Durability, metrics: Metrics) -> None:
        self._durability = durability
        self._metrics = metrics
        self._known: dict[str, int] = {}  # by stream: up to which entry what was missed has been told
        self._looks = 0

    async def look(self) -> None:
        """Look, once in a while. Raises StoreError."""
        self._looks += 1
        if self._looks % _EVERY == 1:
            durability = self._durability
            self.compare(await durability.writing.ask(pipeline.progress(durability.store.keys)))

    def compare(self, found: Iterable[Progress]) -> None:
        """Count and tell what is missed by now and was not before."""
        for each in found:
            known = self._known.get(each.stream, 0)
            if known > each.trimmed:  # another store, or one that was set back, counts anew
                known = 0
            missed = each.trimmed - max(each.read, known)
            self._known[each.stream] = each.trimmed
            if missed > 0:
                self._metrics.trimmed_unread[each.stream] += missed
                log.warning(
                    "%d entries of %s were trimmed that the pipeline had not read; %d before them it has: see %s",
                    missed,
                    each.stream,
                    each.read,
                    _BOUNDS[each.stream],
                )
