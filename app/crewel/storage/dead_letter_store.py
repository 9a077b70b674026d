"""The dead letters: read one by one and page by page, redriven, discarded. A commit or the end of a session stores them.

Each is known by its dead id, its place in the stream `dead`. Each step takes whole dead letters from there, so that one is in
exactly one place whatever happens.

A page takes the store and the server little, however many dead letters there are. It walks the smallest index that fits and
reads in portions. It stops when it has read enough, with less than was asked for and the place to continue.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from enum import StrEnum
from time import perf_counter
from typing import Any, Final, NamedTuple

from crewel.delivery.records import LogId, PendingDeadLetter, SessionName
from crewel.event_loop import Turns
from crewel.storage.account_shares import Share, largest
from crewel.storage.dead_letter_matching import beginning, fits
from crewel.storage.dead_letter_records import (
    DeadLetterFilter,
    StoredDeadLetter,
    dead_letter_of,
    is_dead_id,
    place_of,
    shared_texts,
)
from crewel.storage.keys import Keys
from crewel.storage.script_step import REMEMBERED_MS, Step
from crewel.storage.sight import READING_S
from crewel.storage.store import Store

MOST_DISCARDED: Final = 1000
"""Dead letters that one step discards at most: more would hold up the store."""

_TO_RECEIVER, _TO_CHANNEL, _TO_DESTINATION = range(3)
_PORTION: Final = 200  # dead letters in one round trip
_MOST_READ: Final = 1000  # dead letters that one page reads, which takes 50 ms
_MOST_BYTES: Final = 8 * 1024 * 1024  # of the dead letters that one page reads, nearly
_FEW: Final = 50  # indexes that are walked together
_VALUES: Final = 1000  # of an index, in one round trip
_IDS: Final = 5000  # that are counted in one round trip
_LAST: Final = 10**15 - 1  # no dead letter of a millisecond has a higher number

WORDS: Final = 11
"""Arguments of a step that describe one dead letter."""
BODY: Final = 5
"""Which of them is the body."""
_STORED: Final = ("", "", "", "", "")  # stands for a message that the store copies itself

_Place = tuple[int, int]
Entry = tuple[bytes, dict[bytes, bytes]]
"""A dead letter as the store has it: its dead id, and its fields."""


def described(letters: Sequence[PendingDeadLetter]) -> dict[SessionName, list[bytes | str | int]]:
    """Return the arguments by which `commit` and `end` describe dead letters, by session: `WORDS` each, of which number `BODY`
    is the body."""
    arguments: dict[SessionName, list[bytes | str | int]] = {}
    for each in letters:
        words = arguments.setdefault(each.session, [])
        message = each.message
        if message is None:
            words += (each.id, each.code, each.reason, each.attempts, *_STORED, each.given, each.tries)
        else:
            words += (message.id, each.code, each.reason, each.attempts)
            words += (
                message.channel,
                message.body,
                message.sender,
                message.qos,
                message.received,
                each.given,
                each.tries,
            )
    return arguments


async def shares(store: Store, most: int = 100) -> list[Share]:
    """The accounts that hold most of the dead letters, by bytes, the largest first: a subject, as `client/joe`, or the queue of
    a group. A text counts once for each. Raises StoreError."""
    return await largest(store.reader, store.keys.letter_shares, most)


async def used_bytes(store: Store) -> int:
    """What all dead letters take, also those in the bin; about. Raises StoreError."""
    return int(await store.reader.get(store.keys.letter_bytes) or 0)


class RedriveOutcome(StrEnum):
    """The outcome of a redrive. Unless the dead letter was moved, or is gone, it stays where it is."""

    MOVED = "moved"
    """It waits for its receiver, or lies in the log, under a new id."""
    GONE = "gone"
    """It is no dead letter any more: another operator was faster."""
    NO_RECEIVER = "no receiver"
    """Its session is not in the store, or is ending."""
    FULL = "full"
    """Its receiver has as much waiting as it may have."""
    EMPTY = "empty"
    """Nothing is left of its message."""


class Redriven(NamedTuple):
    """The answer to a redrive; id and size are 0 unless the dead letter was moved."""

    outcome: RedriveOutcome
    id: LogId
    size: int
    """Bytes of the body."""


def redrive(
    k: Keys,
    token: str,
    letter: StoredDeadLetter,
    facts_max: int,
    *,
    to_channel: bool = False,
    max_entries: int = 0,
    max_bytes: int = 0,
    job_id: str = "",
    body: bytes = b"",
    who: str = "",
    is_elsewhere: bool = False,
    groups: Sequence[str] = (),
) -> Step[Redriven]:
    """Redrive a dead letter, to its receiver or, `to_channel`, to the subscribers of its channel and the `groups` on it, which
    are known by their queues. An addressed message goes to its destination then (`letter.to`), and to no other. A receiver that
    would have more than `max_entries` or `max_bytes` open gets nothing; 0 is no bound. What opens by other ways may be noticed
    a second late. To find a receiver full takes the store long if it has thousands waiting: redrive no more to that one. The
    job with `job_id` counts what is moved. With a `body` that one is sent, and the bin keeps the dead letter, discarded by
    `who`. `is_elsewhere`: this server does not know the receiver, which may be coming to it from another node; then the log has
    the message too.

    The step may be repeated when its outcome is unknown, for two minutes: it answers the same again. Another step for the
    same dead letter finds it gone. Raises Fenced if the server has been superseded, StoreFull.
    """
    once = k.once(f"redrive {secrets.token_hex(12)}")  # no publish has such a scope: those begin with the channel
    keys = (k.node(token), k.last, k.log, k.dead, k.facts, once, *([k.job(job_id)] if job_id else []))
    where = (_TO_DESTINATION if letter.to else _TO_CHANNEL) if to_channel else _TO_RECEIVER
    bounds = (max_entries, max_bytes)
    arguments: tuple[bytes | str | int, ...] = (
        k.base,
        letter.dead_id,
        facts_max,
        REMEMBERED_MS,
        where,
        *bounds,
        letter.to,
        body,
        who,
        int(is_elsewhere),
        *(groups if where == _TO_CHANNEL else ()),
    )
    return Step("redrive", keys, arguments, _redriven)


def _redriven(answer: Any) -> Redriven:
    outcome, log_id, size = (*answer, 0, 0)[:3]
    return Redriven(RedriveOutcome(outcome.decode()), LogId(log_id), size)


def discard(
    k: Keys,
    token: str,
    dead_ids: Sequence[str],
    facts_max: int,
    who: str = "",
    job_id: str = "",
    *,
    keeps: bool = False,
) -> Step[int]:
    """Discard dead letters, at most `MOST_DISCARDED`: the bin `keeps` them for a while, or they are removed for good, from the
    bin too. Returns how many of them there were, which the job with `job_id` counts. Repeated, it finds fewer. Raises Fenced if
    the server has been superseded; StoreFull if the bin would make a full store grow."""
    if len(dead_ids) > MOST_DISCARDED:
        raise ValueError(f"dead_ids: expected at most {MOST_DISCARDED}, not {len(dead_ids)}")
    known = filter(is_dead_id, dead_ids)
    keys = (k.node(token), k.dead, k.facts, *([k.job(job_id)] if job_id else []))
    return Step("bin" if keeps else "discard", keys, (k.base, facts_max, who, *known), int)


async def newest(store: Store) -> str:
    """Return the dead id of the newest dead letter, empty if there is none: the bound of work that must not meet what comes
    back meanwhile. Raises StoreError."""
    found: Any = await store.reader.xrevrange(store.keys.dead, count=1)
    return str(found[0][0].decode()) if found else ""


async def now(store: Store) -> str:
    """Return a dead id that no earlier dead letter has passed, and each later one has: a bound as `newest` is, but the id of no
    dead letter. Raises StoreError."""
    seconds, microseconds = await store.reader.time()
    newest_ms, _, _ = (await newest(store)).partition("-")
    # The clock of the store may have been set back.
    return f"{max(seconds * 1000 + microseconds // 1000, int(newest_ms or 0))}-{_LAST}"


async def dropped(store: Store) -> int:
    """Return how many dead letters were dropped because there were too many. Raises StoreError."""
    return int(await store.reader.get(store.keys.dropped) or 0)


async def returned(store: Store) -> int:
    """Return how many dead letters there have been whose message had been redriven. Raises StoreError."""
    return int(await store.reader.get(store.keys.returned) or 0)


class Page(NamedTuple):
    """Some dead letters, and where the next page begins."""

    letters: list[StoredDeadLetter]
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
    store: Store, wanted: DeadLetterFilter, after: str = "", count: int = 100, *, newest_first: bool = False
) -> Page:
    """Return the next dead letters that are wanted, `count` at most, after the place where the page before ended. A page may
    come back short, or empty, and yet say where the next begins. One call reads a bounded number, or for a bounded time if only
    those within some channels are wanted.

    Raises StoreError, and ValueError if `after` or `wanted.until` is no dead id.
    """
    found: list[StoredDeadLetter] = []
    portions = _portions(store, wanted, _range(wanted, after, newest_first=newest_first), min(count + 1, _PORTION))
    read = size = 0
    until = perf_counter() + READING_S
    async for letters, place in portions:
        for letter in filter(wanted.is_within, letters):
            size += len(letter.body)
            if wanted.has(letter):
                found.append(letter)
                if len(found) > count:
                    return Page(found[:count], found[count - 1].dead_id)
            if size >= _MOST_BYTES:
                return Page(found, letter.dead_id)
        read += len(letters)
        if place and (perf_counter() >= until if wanted.within else read >= _MOST_READ):
            return Page(found, place)
    return Page(found, "")


async def count(store: Store, wanted: DeadLetterFilter) -> int:
    """Return how many dead letters are wanted. One index has that number at once, or in some seconds for each million if times
    are asked for; of several indexes, all dead letters of the smallest are read. Raises as `page` does."""
    span = _range(wanted, "", newest_first=False)
    kinds = wanted.kinds
    if len(kinds) > 1 or wanted.is_read:
        return await _count_read(store, wanted)
    kind, text = next(iter(kinds.items()), ("code", ""))
    if not text and span == ("-", "+", False):
        return int(await store.reader.xlen(store.keys.dead))
    total = 0
    async for values in _values(store, kind, text):
        keys = [store.keys.dead_letters_by(kind, value) for value in values]
        if span == ("-", "+", False):
            total += sum(await _lengths(store, keys))
        else:
            for key in keys:
                total += await _length(store, key, span)
    return total


async def count_since(store: Store, key: str, since_ms: int) -> int:
    """Return how many ids of this index are from this time on (milliseconds since 1970). Raises StoreError."""
    return await _length(store, key, _Range(f"{since_ms}-0", "+", newest_first=False))


async def get(store: Store, dead_ids: Sequence[str]) -> list[StoredDeadLetter]:
    """Return those of these dead letters that there are, in the order asked for. Raises StoreError."""
    pipeline = store.reader.pipeline(transaction=False)
    for dead_id in filter(is_dead_id, dead_ids):
        pipeline.execute_command("XRANGE", store.keys.dead, dead_id, dead_id)
    return await whole(store, [entry for answer in await pipeline.execute() for entry in answer])


async def whole(store: Store, entries: Sequence[Entry]) -> list[StoredDeadLetter]:
    """Return the dead letters that these entries hold, with their texts. One that has gone meanwhile is left out. Raises
    StoreError."""
    names = list(dict.fromkeys(name for _, fields in entries for name in shared_texts(fields)))
    found: Any = await store.reader.hmget(store.keys.letter_texts, names) if names else []
    texts = {name: text for name, text in zip(names, found, strict=True) if text is not None}
    await Turns().end()  # the store answers many readers together
    return [
        dead_letter_of(place, fields, texts)
        for place, fields in entries
        if all(name in texts for name in shared_texts(fields))
    ]


def _range(wanted: DeadLetterFilter, after: str, *, newest_first: bool) -> _Range:
    for name, text in (("after", after), ("until", wanted.until)):
        if text and not is_dead_id(text):
            raise ValueError(f"{name}: expected a dead id such as 1795179106957-0, not {text!r}")
    span = _Range(f"{wanted.since_ms}-0" if wanted.since_ms > 0 else "-", wanted.until or "+", newest_first)
    return span.beyond(after) if after else span


async def _portions(
    store: Store, wanted: DeadLetterFilter, span: _Range, count: int
) -> AsyncIterator[tuple[list[StoredDeadLetter], str]]:
    """Dead letters among which are all that are wanted, in their order, and the place after them; empty if those were the
    last."""
    keys = await _smallest(store, wanted)
    if keys is not None and not keys:
        return
    if wanted.kinds:
        count = _PORTION
    while True:
        if keys is None:
            entries = await _ask(store, span.command(store.keys.dead, count))
            letters = await whole(store, entries)
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
    answers = [[place_of(dead_id.decode()) for dead_id, _ in answer] for answer in await pipeline.execute()]
    places = sorted((place for answer in answers for place in answer), reverse=span.newest_first)
    # Beyond the nearest end of an answer that is not the index's own, something may be missing.
    ends = [answer[-1] for answer in answers if len(answer) == each]
    if not ends:
        return list(map(_text, places)), ""
    end = max(ends) if span.newest_first else min(ends)
    return [_text(place) for place in places if (place >= end if span.newest_first else place <= end)], _text(end)


async def _smallest(store: Store, wanted: DeadLetterFilter) -> list[str] | None:
    """The keys of the smallest index that knows all that is wanted; none at all if nothing is; None if it is cheaper to look
    at all dead letters."""
    size = await store.reader.xlen(store.keys.dead) // 2
    smallest: list[str] | None = None
    asked = [[each] for each in wanted.kinds.items()]
    if wanted.within:
        asked.append([("channel", pattern) for pattern in wanted.within])
    for texts in asked:
        kind, values = texts[0][0], dict[str, None]()
        for _, text in texts:
            values |= {value: None async for some in _values(store, kind, text, _FEW + 1) for value in some}
        if not values:
            return []
        if len(values) > _FEW:
            continue
        keys = [store.keys.dead_letters_by(kind, value) for value in values]
        total = sum(await _lengths(store, keys))
        if total <= size:
            smallest, size = keys, total
    return smallest


async def _values(store: Store, kind: str, text: str, most: int = 0) -> AsyncIterator[list[str]]:
    """The values of an index that are asked for. `most`: of so many it is enough to know that they are too many."""
    key = store.keys.dead_letter_values(kind)
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


async def _count_read(store: Store, wanted: DeadLetterFilter) -> int:
    total, place = 0, ""
    while True:
        letters, place = await page(store, wanted, place, _MOST_READ)
        total += len(letters)
        if not place:
            return total


def _text(place: _Place) -> str:
    return f"{place[0]}-{place[1]}"
