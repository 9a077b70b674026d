"""Reading the dead letters: one by one, and page by page through a filter.

A page takes the store and the server little, however many letters there are: it walks the smallest index that fits, looks at
the letters in portions, and stops when it has looked at enough, with less than was asked for and the place to go on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final, NamedTuple

from crewel.storage.store import Store
from crewel.storage.stored_letters import (
    LetterFilter,
    StoredLetter,
    beginning,
    fits,
    is_dead_id,
    letter_of,
    shared_texts,
)

_PORTION: Final = 200  # letters in one round trip
_MOST_LOOKED: Final = 1000  # letters that one page looks at, which takes 50 ms
_MOST_BYTES: Final = 8 * 1024 * 1024  # of the letters that one page looks at, nearly
_FEW: Final = 50  # indexes that are walked together
_VALUES: Final = 1000  # of an index, in one round trip
_IDS: Final = 5000  # that are counted in one round trip

_Place = tuple[int, int]
_Entry = tuple[bytes, dict[bytes, bytes]]


class Page(NamedTuple):
    """Some letters, and where to go on."""

    letters: list[StoredLetter]
    next: str
    """To be passed as `after`; empty if there are no more."""


class _Range(NamedTuple):
    """Which part of a stream is walked, and in which direction."""

    low: str
    high: str
    newest_first: bool

    def command(self, key: str, count: int) -> tuple[str | int, ...]:
        if self.newest_first:
            return ("XREVRANGE", key, self.high, self.low, "COUNT", count)
        return ("XRANGE", key, self.low, self.high, "COUNT", count)

    def beyond(self, dead_id: str) -> _Range:
        return self._replace(high=f"({dead_id}") if self.newest_first else self._replace(low=f"({dead_id}")


async def page(
    store: Store, wanted: LetterFilter, after: str = "", count: int = 100, *, newest_first: bool = False
) -> Page:
    """Return the next letters that are wanted, `count` at most, after the place where the page before ended. A page may come
    back short, or empty, and yet say where to go on: then so many were looked at that it was enough for one call.

    Raises StoreError, and ValueError if `after` or `wanted.until` is no dead id.
    """
    found: list[StoredLetter] = []
    portions = _portions(store, wanted, _range(wanted, after, newest_first=newest_first), min(count + 1, _PORTION))
    looked = size = 0
    async for letters, place in portions:
        for letter in letters:
            size += len(letter.body)
            if wanted.has(letter):
                found.append(letter)
                if len(found) > count:
                    return Page(found[:count], found[count - 1].dead_id)
        looked += len(letters)
        if place and (looked >= _MOST_LOOKED or size >= _MOST_BYTES):
            return Page(found, place)
    return Page(found, "")


async def count(store: Store, wanted: LetterFilter) -> int:
    """Return how many letters are wanted. One index tells that at once, or in some seconds for each million if times are asked
    for; where several are asked for, all letters of the smallest are looked at. Raises as `page` does."""
    span = _range(wanted, "", newest_first=False)
    kinds = wanted.kinds
    if len(kinds) > 1:
        return await _looked_through(store, wanted)
    kind, text = next(iter(kinds.items()), ("code", ""))
    if not text and span == ("-", "+", False):
        return int(await store.reader.xlen(store.keys.dead))
    total = 0
    async for values in _values(store, kind, text):
        keys = [store.keys.letters_by(kind, value) for value in values]
        if span == ("-", "+", False):
            total += sum(await _lengths(store, keys))
        else:
            for key in keys:
                total += await _length(store, key, span)
    return total


async def get(store: Store, dead_ids: Sequence[str]) -> list[StoredLetter]:
    """Return those of these letters that there are, in the order asked for. Raises StoreError."""
    pipeline = store.reader.pipeline(transaction=False)
    for dead_id in filter(is_dead_id, dead_ids):
        pipeline.execute_command("XRANGE", store.keys.dead, dead_id, dead_id)
    return await _whole(store, [entry for answer in await pipeline.execute() for entry in answer])


async def _whole(store: Store, entries: Sequence[_Entry]) -> list[StoredLetter]:
    """The letters that these entries hold, with their texts. One that has gone meanwhile is left out."""
    names = list(dict.fromkeys(name for _, fields in entries for name in shared_texts(fields)))
    found: Any = await store.reader.hmget(store.keys.letter_texts, names) if names else []
    texts = {name: text for name, text in zip(names, found, strict=True) if text is not None}
    return [
        letter_of(place, fields, texts)
        for place, fields in entries
        if all(name in texts for name in shared_texts(fields))
    ]


def _range(wanted: LetterFilter, after: str, *, newest_first: bool) -> _Range:
    for name, text in (("after", after), ("until", wanted.until)):
        if text and not is_dead_id(text):
            raise ValueError(f"{name}: expected a dead id such as 1795179106957-0, not {text!r}")
    span = _Range(f"{wanted.since_ms}-0" if wanted.since_ms > 0 else "-", wanted.until or "+", newest_first)
    return span.beyond(after) if after else span


async def _portions(
    store: Store, wanted: LetterFilter, span: _Range, count: int
) -> AsyncIterator[tuple[list[StoredLetter], str]]:
    """Letters among which are all that are wanted, in their order, and the place after them; empty if those were the last."""
    keys = await _smallest(store, wanted)
    if keys is not None and not keys:
        return
    if wanted.kinds:
        count = _PORTION
    while True:
        if keys is None:
            entries = await _ask(store, span.command(store.keys.dead, count))
            letters = await _whole(store, entries)
            place = entries[-1][0].decode() if len(entries) == count else ""
        else:
            ids, place = await _merged(store, keys, span, count)
            letters = await get(store, ids)
        yield letters, place
        if not place:
            return
        span = span.beyond(place)


async def _merged(store: Store, keys: Sequence[str], span: _Range, count: int) -> tuple[list[str], str]:
    """The next ids of several indexes in one order, and the last of them; empty if nothing comes after it."""
    each = max(count // len(keys), min(count, 16))
    pipeline = store.reader.pipeline(transaction=False)
    for key in keys:
        pipeline.execute_command(*span.command(key, each))
    answers = [[_place(dead_id) for dead_id, _ in answer] for answer in await pipeline.execute()]
    places = sorted((place for answer in answers for place in answer), reverse=span.newest_first)
    # Beyond the nearest end of an answer that is not the index's own, something may be missing.
    ends = [answer[-1] for answer in answers if len(answer) == each]
    if not ends:
        return list(map(_text, places)), ""
    end = max(ends) if span.newest_first else min(ends)
    return [_text(place) for place in places if (place >= end if span.newest_first else place <= end)], _text(end)


async def _smallest(store: Store, wanted: LetterFilter) -> list[str] | None:
    """The keys of the smallest index that knows all that is wanted; none at all if nothing is; None if it is cheaper to look
    at all letters."""
    size = await store.reader.xlen(store.keys.dead) // 2
    smallest: list[str] | None = None
    for kind, text in wanted.kinds.items():
        values = [value async for some in _values(store, kind, text, _FEW + 1) for value in some]
        if not values:
            return []
        if len(values) > _FEW:
            continue
        keys = [store.keys.letters_by(kind, value) for value in values]
        total = sum(await _lengths(store, keys))
        if total <= size:
            smallest, size = keys, total
    return smallest


async def _values(store: Store, kind: str, text: str, most: int = 0) -> AsyncIterator[list[str]]:
    """The values of an index that are asked for. `most`: of so many it is enough to know that they are too many."""
    key = store.keys.letter_values(kind)
    exact, start = beginning(kind, text)
    if exact and await store.reader.zscore(key, exact) is not None:
        yield [exact]
    if exact == start != "":
        return
    # The first text after all that begin so is the one whose last character is the next.
    low, high = (f"[{start}", f"({start[:-1]}{chr(ord(start[-1]) + 1)}") if start else ("-", "+")
    limit = most or _VALUES
    while True:
        found: Any = await store.reader.zrangebylex(key, low, high, start=0, num=limit)
        values = [value.decode() for value in found]
        yield values if len(values) == most else [value for value in values if fits(kind, text, value)]
        if most or len(values) < limit:
            return
        low = f"({values[-1]}"


async def _ask(store: Store, command: tuple[str | int, ...]) -> Any:
    return await store.reader.execute_command(*command)  # type: ignore[no-untyped-call]


async def _lengths(store: Store, keys: Iterable[str]) -> list[int]:
    pipeline = store.reader.pipeline(transaction=False)
    for key in keys:
        pipeline.xlen(key)
    return list(await pipeline.execute())


async def _length(store: Store, key: str, span: _Range) -> int:
    """How many ids a part of an index has; the store does not count those."""
    total = 0
    while True:
        ids = await _ask(store, span.command(key, _IDS))
        total += len(ids)
        if len(ids) < _IDS:
            return total
        span = span.beyond(ids[-1][0].decode())


async def _looked_through(store: Store, wanted: LetterFilter) -> int:
    total, place = 0, ""
    while True:
        letters, place = await page(store, wanted, place, _MOST_LOOKED)
        total += len(letters)
        if not place:
            return total


def _place(dead_id: bytes) -> _Place:
    milliseconds, _, number = dead_id.partition(b"-")
    return int(milliseconds), int(number)


def _text(place: _Place) -> str:
    return f"{place[0]}-{place[1]}"
