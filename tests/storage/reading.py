"""What lies in the store, read for the tests: facts, events, shared queues, the newest log id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from crewel.delivery.records import Logged, LogId
from crewel.storage.log import logged, unpacked
from crewel.storage.store import Store


@dataclass(frozen=True, slots=True)
class Fact:
    """One entry of the facts."""

    place: str
    type: str
    fields: dict[str, Any]


async def read_facts(store: Store, after: str = "0-0", count: int = 1000) -> list[Fact]:
    entries: Any = await store.reader.xrange(store.keys.facts, f"({after}", "+", count)
    return [Fact(place.decode(), fields[b"t"].decode(), orjson.loads(fields[b"d"])) for place, fields in entries]


@dataclass(frozen=True, slots=True)
class EventGroup:
    """One entry of the events."""

    place: str
    fields: dict[str, Any]


async def read_events(store: Store, after: str = "0-0", count: int = 100) -> list[EventGroup]:
    entries: Any = await store.reader.xrange(store.keys.events, f"({after}", "+", count)
    return [EventGroup(place.decode(), orjson.loads(fields[b"d"])) for place, fields in entries]


async def last_id(store: Store) -> LogId:
    return LogId(int(await store.reader.get(store.keys.last) or 0))


async def queue_size(store: Store, queue: str) -> int:
    return int(await store.reader.zcard(store.keys.queue(queue)))


class Queued(NamedTuple):
    """A message of a shared queue."""

    logged: Logged
    priority: int
    attempts: int
    expires: int
    failed: tuple[str, ...]


async def read_queue(store: Store, queue: str, count: int, start: int = 0) -> list[Queued]:
    places: Any = await store.reader.zrange(store.keys.queue(queue), start, start + count - 1)
    return [await _queued(store, queue, place) for place in places]


async def _queued(store: Store, queue: str, place: bytes) -> Queued:
    rank, _, log_id = place.partition(b":")
    text: Any = await store.reader.hget(store.keys.queue_bodies(queue), log_id.decode())
    fields = unpacked(text)
    failed = tuple(fields.get(b"f", b"").decode().split())
    message = logged(LogId(int(log_id)), fields)
    return Queued(message, 9 - int(rank), int(fields.get(b"a", 0)), int(fields.get(b"e", 0)), failed)
