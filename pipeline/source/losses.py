"""Entries that were trimmed before they were read: an error with figures, or a row that reports the gap. Pure.

What is lost is never taken for what did not happen: the audit says of such a time that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass

from crewel.errors import CrewelError
from crewel.pipeline.source.positions import BEGIN, EntryId, Extent, Position


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries of a stream that were there and cannot be read any more."""

    stream: str
    after: EntryId
    """What was read last before it."""
    before: EntryId | None
    """The first entry after it; None if there is none."""
    lost: int | None
    """How many; None if no one knows."""

    def __str__(self) -> str:
        lost = "an unknown number of entries" if self.lost is None else f"{self.lost} entries"
        return f"{self.stream}: {lost} after {self.after} and before {self.before or 'the end'}"


class EntriesLost(CrewelError):
    """Entries were trimmed before they were read, and that must not happen."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(
            f"entries were trimmed before they were read ({gap}). What happened then is unknown. Let the store keep more"
            " (storage.facts_max_entries, events.max_bytes) or read more often; with the option failOnDataLoss=false the gap is"
            " counted and reading continues."
        )


def gap_between(stream: str, start: Position, end: Position, extent: Extent) -> Gap | None:
    """Return what was lost of the entries after `start` up to `end`, by what is there now."""
    if start.count is None or end.count is None or start.id >= end.id:
        return None
    before = extent.oldest if extent.oldest > start.id else None
    if has_lost_its_place(start, end):
        return Gap(stream, start.id, before, None)
    lost = min(extent.trimmed, end.count) - start.count
    # What goes while its oldest entries are read was not waited for.
    is_first_look = start.id == BEGIN and start.count > 0
    return Gap(stream, start.id, before, lost) if lost > 0 and not is_first_look else None


def has_lost_its_place(start: Position, end: Position) -> bool:
    """Whether the stream is not the one that was read: it has more entries and has counted fewer. So is a store that a backup
    was written back to, or that a crash has set back."""
    return start.count is not None and end.count is not None and end.id > start.id and end.count <= start.count
