"""What one task of Spark does: read its part, in batches of Arrow. It runs in a process of its own, without any state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from crewel.pipeline.connection import Address
from crewel.pipeline.source.batches import batch_of, gap_row
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.losses import EntriesLost, Gap
from crewel.pipeline.source.pages import Part, pages
from crewel.pipeline.source.positions import BEGIN, EntryId, Extent, Position, slices

__all__ = ["Task", "planned", "read"]

_WORTH_A_TASK = 50_000  # entries; a task costs about as much as reading a third of these


@dataclass(repr=False)
class Task(InputPartition):
    """What one task reads, or a gap that it tells of."""

    what: Part | Gap

    def __repr__(self) -> str:
        return f"{self.what}"


def planned(stream: str, start: Position, until: EntryId, extent: Extent, number: int, *, watched: bool) -> list[Task]:
    """Return at most `number` tasks that together read a stream after a position up to an id; `watched` ones notice what is
    trimmed before they come to it."""
    after = max(start.id, EntryId.before(extent.oldest.ms)) if extent.length else extent.newest
    if after >= until or not extent.length:
        return []
    seconds_share = max(until.ms - after.ms, 1) / max(extent.newest.ms - extent.oldest.ms, 1)
    expected = extent.length * min(seconds_share, 1)
    parts = slices(after, min(until, extent.newest), max(min(number, round(expected / _WORTH_A_TASK)), 1))
    trimmed = extent.trimmed if watched else None
    tasks = [Task(Part(stream, begin, end, watched, trimmed)) for begin, end in parts[1:]]
    # Whoever wants the oldest that are there does not miss those that go before he comes.
    trimmed = None if start.id == BEGIN else trimmed
    return [Task(Part(stream, *parts[0], watched, trimmed, start.count if start.id == after else None)), *tasks]


def read(address: Address, task: Task, patience_s: float, *, fails_on_loss: bool) -> Iterator[pa.RecordBatch]:
    """Yield what a task reads. Raises StoreUnavailable, and EntriesLost if that is wanted."""
    what = task.what
    if isinstance(what, Gap):
        yield gap_row(what)
        return
    extents = Extents(address, patience_s)
    try:
        for page in pages(address, what, lambda: extents.look([what.stream])[what.stream], patience_s):
            if not isinstance(page, Gap):
                yield batch_of(what.stream, page)
            elif fails_on_loss:
                raise EntriesLost(page)
            else:
                yield gap_row(page)
    finally:
        extents.close()
