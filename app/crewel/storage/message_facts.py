"""The facts about one message, about messages with an idempotency key, or about the outcome of a dead letter, found among those
that the store keeps."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import LogId
from crewel.event_loop import Turns
from crewel.storage.fact_index import FactIndex, Place, seconds_of
from crewel.storage.sight import WHOLE, Sight
from crewel.storage.store import Store
from crewel.storage.stream_walk import Walk

_PORTION: Final = 500
_AT_ONCE: Final = 100
"""Facts that the index knows as one portion: they may be of some 30 KB each."""
_MOST_READ: Final = 20_000
"""Facts that one call reads."""
EARLIER_MS: Final = 2000
"""How much older than the time in its id the first fact about a message may be: ids of a burst run ahead of the clock."""


_REMOVALS: Final = ("discarded", "redriven", "restored")
"""The facts of dead letters that operators took away."""


class Fact(NamedTuple):
    """One fact."""

    at_ms: int
    """When it was written, by the store's clock: milliseconds since 1970."""
    type: str
    fields: dict[str, Any]


class Found(NamedTuple):
    """What the store has about one message."""

    facts: list[Fact]
    """The oldest first."""
    is_partial: bool
    """Whether there are more facts than one call reads: then later ones may be missing."""


async def facts_of(store: Store, log_id: LogId, index: FactIndex, sight: Sight = WHOLE) -> Found:
    """Return the facts that name this message. Portions that the index knows to name others only are not read; what is read for
    the first time is added to it. Raises StoreError."""
    needle, turns, read = str(log_id).encode(), Turns(), 0
    found: list[Fact] = []
    generation = store.generation
    place, index = (max(log_id // 1000 - EARLIER_MS, 0), 0), index.of(generation)
    while not sight.is_spent(read, _MOST_READ):
        known = index.at(place)
        if known is not None and not known.may_name(log_id):
            place = known.last
            await turns.rest()
            continue
        bound = known.last if known is not None else index.next_start(place)
        high = "+" if bound is None else _text(bound)
        entries: Any = await store.reader.xrange(store.keys.facts, f"({_text(place)}", high, count=_AT_ONCE)
        end = _place(entries[-1][0]) if len(entries) == _AT_ONCE else bound
        seconds: set[int] = set()
        for entry_id, entry in entries:
            kind, text = entry[b"t"].decode(), entry[b"d"]
            is_named = needle in text or kind == "published"
            if is_named or known is None:
                fields = orjson.loads(text)
                if known is None:
                    seconds.update(seconds_of(kind, fields))
                if is_named and _is_about(log_id, kind, fields):
                    found.append(Fact(_place(entry_id)[0], kind, fields))
            await turns.rest()
        read += len(entries)
        if end is None:
            return Found(found, is_partial=False)
        if known is None and index.generation == generation:  # and not another, which another question has met
            index.add(place, end, seconds)
        place = end
    return Found(found, is_partial=True)


def _is_about(log_id: LogId, kind: str, fields: dict[str, Any]) -> bool:
    if kind != "published":
        return True
    is_its_own = fields["first"] <= log_id < fields["first"] + len(fields["channels"])
    return is_its_own or log_id in fields.get("scheduled", {}).values()


def _place(entry_id: bytes) -> Place:
    ms, _, number = entry_id.partition(b"-")
    return int(ms), int(number)


def _text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


async def removals_of(store: Store, name: str, since_ms: int, sight: Sight = WHOLE) -> list[Fact]:
    """Return the facts that this dead letter, or dead letters of this message, were discarded or redriven. These are found
    among the newest, and among those that came next after this time (milliseconds since 1970). The oldest is first. Raises
    StoreError."""
    newest, is_whole = await _removals(store, name, since_ms, sight, is_backward=True)
    if is_whole:
        return newest[::-1]
    first, _ = await _removals(store, name, since_ms, sight, is_backward=False)
    return first + [fact for fact in reversed(newest) if fact not in first]


async def _removals(
    store: Store, name: str, since_ms: int, sight: Sight, *, is_backward: bool
) -> tuple[list[Fact], bool]:
    """Those that one bounded walk finds, and whether it came to its end."""
    needle, found = f'"{name}"'.encode(), list[Fact]()
    facts = _walk(store, sight, f"{since_ms}-0", newest_first=is_backward)
    async for at_ms, entry in facts:
        kind, text = entry[b"t"].decode(), entry[b"d"]
        if kind in _REMOVALS and needle in text:
            found.append(Fact(at_ms, kind, orjson.loads(text)))
    return found, facts.is_whole


def _walk(
    store: Store, sight: Sight, low: str = "-", high: str = "+", *, after: str = "", newest_first: bool = False
) -> Walk:
    return Walk(store, store.keys.facts, low, high, after, newest_first, _PORTION, _MOST_READ, sight)


class Keyed(NamedTuple):
    """A message that was published with an idempotency key."""

    id: LogId
    channel: str
    at_ms: int
    """When it was stored, by the store's clock: milliseconds since 1970."""


class WithKey(NamedTuple):
    """Messages with one idempotency key, and where the next page begins."""

    messages: list[Keyed]
    """The newest first."""
    next: str
    """To be passed as `before`; empty if there are no more."""


async def messages_with_key(
    store: Store, key: str, before: str = "", count: int = 100, sight: Sight = WHOLE
) -> WithKey:
    """Return the messages that were published with this idempotency key, whatever their channel, older than the place where the
    page before ended; about `count` of them. A page may come back short, or empty, and yet say where the next begins. One call
    reads a bounded number, or for a bounded time with a sight of some channels. Raises StoreError."""
    needle, found = orjson.dumps(key), list[Keyed]()
    facts = _walk(store, sight, after=before, newest_first=True)
    async for at_ms, entry in facts:
        if needle in entry[b"d"]:
            keyed = _with_key(entry[b"t"], orjson.loads(entry[b"d"]), key, at_ms)
            found += [each for each in keyed if sight.has(each.channel)]
            if len(found) >= count:
                return WithKey(found, facts.after)
    return WithKey(found, "" if facts.is_whole else facts.after)


def _with_key(kind: bytes, fields: dict[str, Any], key: str, at_ms: int) -> list[Keyed]:
    """The messages with this key that the fact tells, the newest first."""
    if kind == b"addressed" and fields.get("key") == key:
        return [Keyed(LogId(fields["id"]), fields["channel"], at_ms)]
    if kind != b"published":
        return []
    ids = sorted((int(text) for text, each in fields.get("keys", {}).items() if each == key), reverse=True)
    return [Keyed(LogId(each), fields["channels"][each - fields["first"]], at_ms) for each in ids]


class OfJob(NamedTuple):
    """What a job did, and where the next page begins."""

    facts: list[Fact]
    """The oldest first."""
    next: str
    """To be passed as `after`; empty if there are no more."""


async def facts_of_job(
    store: Store, job_id: str, since_ms: int, after: str = "", count: int = 100, sight: Sight = WHOLE
) -> OfJob:
    """Return the facts of dead letters that this job redrove or discarded, about `count` dead letters of them, after the place
    where the page before ended. A page may come back short and yet say where the next begins. One call reads a bounded number.
    Raises StoreError."""
    needle, found, letters = f'"job":"{job_id}"'.encode(), list[Fact](), 0
    facts = _walk(store, sight, f"{since_ms}-0", after=after)
    async for at_ms, entry in facts:
        kind = entry[b"t"].decode()
        if kind in _REMOVALS and needle in entry[b"d"]:
            found.append(Fact(at_ms, kind, orjson.loads(entry[b"d"])))
            letters += len(found[-1].fields.get("letters", "1"))
            if letters >= count:
                return OfJob(found, facts.after)
    return OfJob(found, "" if facts.is_whole else facts.after)


async def earlier_id(store: Store, log_id: LogId, sight: Sight = WHOLE) -> str:
    """Return the id that this message had before it was redriven; empty if it was not, or that is no longer recorded. Raises
    StoreError."""
    at_ms, needle = log_id // 1000, str(log_id).encode()
    low, high = f"{max(at_ms - EARLIER_MS, 0)}-0", f"{at_ms + EARLIER_MS}-0"
    async for _, entry in _walk(store, sight, low, high):
        if entry[b"t"] == b"redriven" and needle in entry[b"d"]:
            fields = orjson.loads(entry[b"d"])
            if fields["id"] == log_id:
                return str(fields["message"])
    return ""
