"""The bin: dead letters that were discarded, kept for a while, so that an operator can restore them.

They are no dead letters: no list, count or index of those has them. The room for dead letters is theirs only as long as no dead
letter needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, NamedTuple

from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter, is_dead_id
from crewel.storage.dead_letter_store import whole
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.sight import READING_S
from crewel.storage.store import Store

MOST_MOVED: Final = 500
"""Dead letters that one step restores, or removes, at most."""
_PORTION: Final = 200
_MOST_READ: Final = 2000


@dataclass(frozen=True, slots=True)
class DiscardedDeadLetter:
    """A dead letter in the bin."""

    letter: StoredDeadLetter
    place: str
    """Its place in the bin: when it was discarded, in microseconds since 1970."""
    who: str
    """The operator; empty if unknown."""
    job: str
    """Id of the job that discarded it; empty if none did."""
    edited_as: str
    """New log id of the message, if it was edited and sent again, and this is the original, also one that was restored and
    discarded again; empty otherwise."""

    @property
    def at_ms(self) -> int:
        """When it was discarded: milliseconds since 1970."""
        return int(self.place) // 1000


class BinPage(NamedTuple):
    """Some dead letters of the bin, and where the next page begins."""

    letters: list[DiscardedDeadLetter]
    next: str
    """To be passed as `after`; empty if there are no more."""


async def count(store: Store) -> int:
    """Return how many dead letters are in the bin. Raises StoreError."""
    return int(await store.reader.hlen(store.keys.bin))


async def page(
    store: Store,
    wanted: DeadLetterFilter,
    after: str = "",
    count: int = 100,
    job: str = "",
    *,
    oldest_first: bool = False,
) -> BinPage:
    """Return the next dead letters of the bin that are wanted, `count` at most, after the place where the page before ended.
    The last discarded come first, or with `oldest_first` those that were discarded first. `wanted.since_ms` is about when they
    were discarded. A page may come back short, and yet say where the next begins. Raises StoreError."""
    found: list[DiscardedDeadLetter] = []
    low = str(wanted.since_ms * 1000) if wanted.since_ms > 0 else "-inf"
    start, end = (low, "+inf") if oldest_first else ("+inf", low)
    start = f"({after}" if after else start
    by_place = store.reader.zrangebyscore if oldest_first else store.reader.zrevrangebyscore
    read, until = 0, perf_counter() + READING_S
    while perf_counter() < until if wanted.within else read < _MOST_READ:
        places: Any = await by_place(store.keys.binned_at, start, end, start=0, num=_PORTION, withscores=True)
        ids = {dead_id.decode(): f"{at:.0f}" for dead_id, at in places}
        for each in await _read(store, ids):
            if wanted.has(each.letter) and (not job or each.job == job):
                found.append(each)
                if len(found) > count:
                    return BinPage(found[:count], found[count - 1].place)
        read += len(ids)
        if len(ids) < _PORTION:
            return BinPage(found, "")
        start = f"({places[-1][1]:.0f}"
    return BinPage(found, start[1:])


async def get(store: Store, dead_ids: Sequence[str]) -> list[DiscardedDeadLetter]:
    """Return those of these dead letters that are in the bin. Raises StoreError."""
    known = [each for each in dict.fromkeys(dead_ids) if is_dead_id(each)]
    if not known:
        return []
    scores: Any = await store.reader.zmscore(store.keys.binned_at, known)
    return await _read(store, {each: f"{at:.0f}" for each, at in zip(known, scores, strict=True) if at is not None})


async def _read(store: Store, places: dict[str, str]) -> list[DiscardedDeadLetter]:
    """These dead letters, by id with their places. What has gone meanwhile is left out."""
    if not places:
        return []
    kept: Any = await store.reader.hmget(store.keys.bin, list(places))
    entries = {each: _fields(text) for each, text in zip(places, kept, strict=True) if text is not None}
    letters = await whole(store, [(each.encode(), fields) for each, fields in entries.items()])
    return [_discarded(letter, places[letter.dead_id], entries[letter.dead_id]) for letter in letters]


def _discarded(letter: StoredDeadLetter, place: str, fields: Mapping[bytes, bytes]) -> DiscardedDeadLetter:
    return DiscardedDeadLetter(
        letter,
        place,
        fields.get(b"b:who", b"").decode(),
        fields.get(b"b:job", b"").decode(),
        fields.get(b"b:as", fields.get(b"a", b"")).decode(),
    )


def _fields(text: bytes) -> dict[bytes, bytes]:
    """What the scripts have written: name and value in turn, each as `<length>:<text>`."""
    texts = list(_texts(text))
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _texts(text: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        colon = text.index(b":", at)
        size = int(text[at:colon])
        yield text[colon + 1 : colon + 1 + size]
        at = colon + 1 + size


def restore(k: Keys, token: str, dead_ids: Sequence[str], facts_max: int, who: str = "") -> Step[dict[str, str]]:
    """Make dead letters again of these in the bin, at most `MOST_MOVED`; returns the new id of each by the old one. Repeated,
    it finds fewer. Raises Fenced if the server has been superseded, StoreFull."""
    known = filter(is_dead_id, dead_ids)
    return Step("restore", (k.node(token), k.dead, k.facts), (k.base, facts_max, who, *known), _pairs)


def _pairs(answer: Any) -> dict[str, str]:
    texts = [each.decode() for each in answer]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def empty(k: Keys, token: str, kept_ms: int) -> Step[int]:
    """Remove for good what was discarded longer ago than this, at most `MOST_MOVED` dead letters; returns how many. Raises
    Fenced if the server has been superseded."""
    return Step("empty_bin", (k.node(token), k.dead), (k.base, kept_ms, MOST_MOVED), int)
