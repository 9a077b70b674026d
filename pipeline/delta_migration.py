"""Tables of before they had a log: their files become Delta tables where they are, once, and none is written again.

Which files counted was said by the names of directories then:

    date=2026-11-20/part=live.1.17       what a batch of the live job has added
    date=2026-11-20/part=live.1.3-9      batches that were put together: it hides the parts that it holds
    date=2026-11-20/part=fill.1790000    a backfill, which does not count while `unfinished/<part>` is there
    generation=1790000000000             a table that is rewritten as a whole; the newest counts
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from crewel.pipeline.delta import DeltaLog
from crewel.pipeline.files import Files
from crewel.pipeline.schemas import Table

_LIVE: Final = re.compile(r"live\.(\d+)\.(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class _Live:
    """Batches of the live job that follow one another, in one part."""

    version: int
    first: int
    last: int

    @classmethod
    def parse(cls, name: str) -> _Live | None:
        matched = _LIVE.fullmatch(name)
        if matched is None:
            return None
        version, first = int(matched[1]), int(matched[2])
        return cls(version, first, int(matched[3] or first))

    def holds(self, other: _Live) -> bool:
        return self != other and self.version == other.version and self.first <= other.first and other.last <= self.last


def visible(names: Iterable[str], unfinished: Collection[str], done: Mapping[int, int]) -> list[str]:
    """Return the parts of one day that count: finished, and held by no other. `done` says by the version of the live job which
    of its batches was noted as done last: a later one will be written again."""
    shown: list[str] = []
    widest: _Live | None = None  # of those before, the one that goes furthest: in this order only it can hold the next
    found = {name: _Live.parse(name) for name in names if name not in unfinished}
    shown += sorted(name for name, part in found.items() if part is None)
    live = {part: name for name, part in found.items() if part is not None}
    for part in sorted(live, key=lambda each: (each.version, each.first, -each.last)):
        is_done = part.last <= done.get(part.version, part.last)
        if is_done and (widest is None or not widest.holds(part)):
            shown.append(live[part])
        if widest is None or part.version > widest.version or part.last > widest.last:
            widest = part
    return shown


def convert(files: Files, root: str, tables: Iterable[Table]) -> int:
    """Give each table of earlier versions below a directory its log, and return how many these were. It may be repeated, also
    after it was killed."""
    waiting = [
        table
        for table in tables
        if files.names(f"{root}/{table.path}", "generation=*" if table.is_derived else "date=*")
        and not files.names(f"{root}/{table.path}", "_delta_log")
    ]
    if not waiting:
        return 0
    unfinished = set(files.names(f"{root}/unfinished"))
    done: dict[int, int] = {}
    for path in files.matching(f"{root}/checkpoints/live/v*/commits/*"):
        *_, version, _, number = path.split("/")
        if number.isdecimal():
            job_version = int(version.removeprefix("v"))
            done[job_version] = max(done.get(job_version, -1), int(number))
    for table in waiting:
        path = f"{root}/{table.path}"
        folders = _newest(files, path) if table.is_derived else _parts(files, path, unfinished, done)
        found = [f"{folder}/{name}" for folder in folders for name in files.names(f"{path}/{folder}", "*.parquet")]
        DeltaLog(table, path).begin_with(found)
    return len(waiting)


def _newest(files: Files, path: str) -> list[str]:
    generations = files.names(path, "generation=*")
    return sorted(generations, key=lambda name: int(name.partition("=")[2]))[-1:]


def _parts(files: Files, path: str, unfinished: Collection[str], done: Mapping[int, int]) -> list[str]:
    found: list[str] = []
    for day in files.names(path, "date=*"):
        parts = [name.removeprefix("part=") for name in files.names(f"{path}/{day}", "part=*")]
        found += [f"{day}/part={name}" for name in visible(parts, unfinished, done)]
    return found
