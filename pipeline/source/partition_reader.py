"""What one task of Spark does: read its part, in batches of Arrow. It runs in a process of its own, without any state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from crewel.pipeline.connection import Address, patiently
from crewel.pipeline.source.arrow import batch_of, gap_row, shared_texts, with_texts
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.losses import EntriesLost, Gap
from crewel.pipeline.source.pages import Entry, Part, pages
from crewel.pipeline.source.positions import BEGIN, EntryId, Extent, Position, slices

_WORTH_A_TASK = 50_000  # entries; a task costs about as much as reading a third of these


@dataclass(repr=False)
class Task(InputPartition):
    """What one task reads, or a gap that it reports."""

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
    # A reader of the oldest ones does not miss those that go before it comes.
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
                entries = _whole(address, page, patience_s) if what.stream == "dead" else page
                if entries:
                    yield batch_of(what.stream, entries)
            elif fails_on_loss:
                raise EntriesLost(page)
            else:
                yield gap_row(page)
    finally:
        extents.close()


def _whole(address: Address, page: Sequence[Entry], patience_s: float) -> Sequence[Entry]:
    """The dead letters of a page, with the texts that they share."""
    names = shared_texts(page)
    if not names:
        return page

    def texts() -> list[bytes | None]:
        with address.client() as client:
            return cast("list[bytes | None]", client.hmget(address.keys.letter_texts, names))

    found = patiently(texts, patience_s)
    return with_texts(page, {name: text for name, text in zip(names, found, strict=True) if text is not None})
