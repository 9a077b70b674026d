"""Parts: what one step of a job has added to a table, a directory `part=<name>` below the day. Pure.

A batch of the live job is `live.<version>.<number>`: the version of its checkpoint, and Spark's number of the batch. A batch
that is repeated after a crash has the same name and takes the place of what it wrote before. Batches that were put together
are `live.<version>.<first>-<last>`: such a part hides those whose numbers it holds, so that a reader sees each row once at any
moment, though both are there for a while. A backfill is `fill.<milliseconds since 1970>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_LIVE: Final = re.compile(r"live\.(\d+)\.(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class Live:
    """Batches of the live job that follow one another, in one part."""

    version: int
    first: int
    last: int

    @classmethod
    def parse(cls, name: str) -> Live | None:
        """Return what a name says; None if it is not of the live job."""
        matched = _LIVE.fullmatch(name)
        if matched is None:
            return None
        version, first = int(matched[1]), int(matched[2])
        return cls(version, first, int(matched[3] or first))

    def holds(self, other: Live) -> bool:
        """Whether the batches of another part are all in this one, and more."""
        return self != other and self.version == other.version and self.first <= other.first and other.last <= self.last

    def __str__(self) -> str:
        return f"live.{self.version}.{self.first}" + ("" if self.first == self.last else f"-{self.last}")


def live(version: int, number: int) -> str:
    """Return the name of a batch of the live job."""
    return str(Live(version, number, number))


def fill(at_ms: int) -> str:
    """Return the name of a backfill that began then."""
    return f"fill.{at_ms}"


def visible(names: Iterable[str]) -> list[str]:
    """Return the parts of one day that a reader takes, in their order: those that no other holds."""
    others, shown = [], []
    found: list[Live] = []
    for name in names:
        part = Live.parse(name)
        if part is None:
            others.append(name)
        else:
            found.append(part)
    widest: Live | None = None  # of those before, the one that goes furthest: in this order only it can hold the next
    for part in sorted(found, key=lambda each: (each.version, each.first, -each.last)):
        if widest is None or not widest.holds(part):
            shown.append(str(part))
        if widest is None or part.version > widest.version or part.last > widest.last:
            widest = part
    return [*sorted(others), *shown]


def finished(names: Iterable[str], newest: Live | None) -> list[Live]:
    """Return the parts of one day that no batch can write any more, in their order: those before the newest batch of all. A
    batch begins when the one before it has been noted as done."""
    if newest is None:
        return []
    found = (Live.parse(name) for name in visible(names))
    return [part for part in found if part and (part.version, part.last) < (newest.version, newest.first)]
