"""What a redrive does about receivers without room: it continues with the others, and comes back to them until there is room,
or until its patience ends.

Pure: what each call has found in, where the next one begins out. A first walk over the dead letters leaves those of receivers
that have no room. Each further walk is about these receivers alone, and begins at the first dead letter that was left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from crewel.storage.dead_letter_store import RedriveOutcome

MOST: Final = 200
"""Receivers that are waited for. The dead letters of further ones stay, as those of all did before."""


@dataclass(slots=True)
class Room:
    """The walks of one redrive. Times are seconds of one clock."""

    patience_s: float
    """How long it waits while nothing is moved."""
    only: dict[str, None] | None = None
    """The receivers that this walk is about; None: all, for it is the first."""
    full: dict[str, str] = field(default_factory=dict)
    """Those of which this walk has left dead letters: the place before the first of them."""
    is_last: bool = False
    """Whether the patience has ended: what has no room now stays."""
    idle_since: float | None = None

    def passes_over(self, receiver: str) -> bool:
        """Whether this walk leaves the dead letters of this receiver, without asking: it is about others, or has found no room
        for an earlier one, which is to arrive first."""
        return receiver in self.full or (self.only is not None and receiver not in self.only)

    @property
    def may_leave(self) -> bool:
        """Whether what has no room is left for a later walk; else it stays for good."""
        return not self.is_last and len(self.full) < MOST

    def is_about(self, outcome: RedriveOutcome) -> bool:
        """Whether a later walk may end otherwise: a receiver that is waited for may also go, and come back."""
        gone = self.only is not None and outcome is RedriveOutcome.NO_RECEIVER
        return outcome is RedriveOutcome.FULL or gone

    def leave(self, receiver: str, before: str) -> None:
        """Leave a dead letter of this receiver, behind this place, for a later walk; those of one call in their order."""
        self.full.setdefault(receiver, before)

    def next_walk(self, moved: int, now: float, *, is_at_end: bool) -> str | None:
        """A call has moved so many dead letters. The place behind which the next walk begins; None if this one continues, or
        all is done that can be."""
        if moved or self.idle_since is None:
            self.idle_since = now
        is_in_vain = self.only is not None and not self.is_last and self.only.keys() <= self.full.keys()
        if not (is_at_end or is_in_vain) or not self.full:
            return None
        self.is_last = now - self.idle_since >= self.patience_s
        first = next(iter(self.full.values()))
        self.only, self.full = dict.fromkeys(self.full), {}
        return first

    @property
    def waits_for(self) -> list[str]:
        """The receivers for whose room it waits."""
        return list(self.only or ())

    def as_json(self) -> dict[str, Any]:
        """What another server needs to continue, with patience from the beginning."""
        return {"only": None if self.only is None else list(self.only), "full": self.full}


def room_of(patience_s: float, told: Mapping[str, Any]) -> Room:
    """What `as_json` made; of nothing, the beginning."""
    only = told.get("only")
    return Room(patience_s, None if only is None else dict.fromkeys(only), dict(told.get("full", {})))
