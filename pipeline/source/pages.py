"""Reads a part of a stream, page by page, over a connection that comes back when it was lost.

While one page is dealt with, the store prepares the next. Each page but the first begins with the last entry of the page
before: if that is gone, the store has trimmed past it, and what came after it may be lost.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import redis

from crewel.pipeline.connection import PATIENCE_S, Address, is_away, patiently
from crewel.pipeline.source.losses import Gap
from crewel.pipeline.source.positions import EntryId, Extent

Entry = Sequence[Any]
"""As the store answers: the id, and a list of names and values, all bytes."""

_FIRST_PAGE: Final = 200
_LARGEST_PAGE: Final = 5000
_PAGE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads: the entries after one id up to another."""

    stream: str
    after: EntryId
    until: EntryId
    is_watched: bool = False
    """Whether it matters what is trimmed while this is read."""
    trimmed: int | None = None
    """How many entries the store had trimmed when this was planned; None if it does not matter what goes before the first
    page."""
    count: int | None = None
    """How many entries were ever added up to `after`; None if that is not known."""


def pages(
    address: Address, part: Part, look: Callable[[], Extent] | None = None, patience_s: float = PATIENCE_S
) -> Iterator[list[Entry] | Gap]:
    """Yield the entries of a part in lists that are not empty, and where some may be missing a gap.

    `look` tells how far the stream goes now, for a part that says how much had been trimmed. Raises
    StoreUnavailable if the store has been away for `patience_s`.
    """
    with _no_collections(), closing(_Reading(address, part, patience_s)) as reading:
        last = part.after
        is_first = True
        reading.ask(last)
        while True:
            page = reading.answer()
            gap = None
            if is_first and look is not None and part.trimmed is not None:
                gap = _gap_before(part, patiently(look, patience_s), page)
            elif not is_first and part.is_watched:
                if _first_id(page) == last:
                    page = page[1:]
                else:
                    gap = Gap(part.stream, last, _first_id(page), None)
            if gap is not None:
                yield gap
            if not page:
                return
            is_first = False
            last = EntryId.parse(page[-1][0])
            if last < part.until:
                reading.ask(last, page, includes_last=part.is_watched)
            yield page
            if last >= part.until:
                return


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keep Python from looking for garbage in circles: among millions of small lists that halves the speed,
    and there is none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _first_id(page: Sequence[Entry]) -> EntryId | None:
    return EntryId.parse(page[0][0]) if page else None


def _gap_before(part: Part, extent: Extent, page: Sequence[Entry]) -> Gap | None:
    """Return what may have been trimmed between the planning and the first page."""
    if part.trimmed is None or extent.trimmed <= part.trimmed or extent.oldest <= part.after:
        return None
    if part.count is None:
        return Gap(part.stream, part.after, _first_id(page), None)
    lost = extent.trimmed - max(part.count, part.trimmed)
    return Gap(part.stream, part.after, _first_id(page), lost) if lost > 0 else None


class _Reading:
    """One connection with at most one page under way, which is asked for again on another one if need be."""

    def __init__(self, address: Address, part: Part, patience_s: float) -> None:
        self._address = address
        self._patience_s = patience_s
        self._key = f"{address.keys.base}{part.stream}"
        self._until = str(part.until)
        self._from = ""
        self._connection: Any = None
        self._size = _FIRST_PAGE

    def ask(self, after: EntryId, page: Sequence[Entry] = (), *, includes_last: bool = False) -> None:
        """Ask for what follows an id, or begins with it. The sizes of the entries before tell how many are asked for."""
        self._from = str(after) if includes_last else f"({after}"
        if page:
            sample = page[:: max(len(page) // 20, 1)]
            mean = sum(len(value) for _, fields in sample for value in fields) // len(sample) + 1
            self._size = max(min(_PAGE_BYTES // mean, _LARGEST_PAGE, self._size * 8), 2)
        try:
            self._send()
        except (redis.RedisError, OSError) as error:
            if not is_away(error):
                raise
            self.close()  # the answer is waited for on another one

    def answer(self) -> list[Entry]:
        """Return what was asked for. Raises StoreUnavailable."""
        return patiently(self._receive, self._patience_s)

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _send(self) -> Any:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._address.connection()
        connection.send_command("XRANGE", self._key, self._from, self._until, "COUNT", self._size)
        return connection

    def _receive(self) -> list[Entry]:
        connection = self._connection or self._send()
        try:
            found: list[Entry] = connection.read_response(disable_decoding=True)
        except BaseException:
            self.close()
            raise
        return found
