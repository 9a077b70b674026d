"""The bodies of messages that the store still has, wherever they are: read by id, or searched for a text in the log and in the
shared queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from heapq import nlargest
from itertools import count as count_from
from typing import Any, Final, NamedTuple

from crewel.delivery.records import Logged, LogId
from crewel.event_loop import in_turns
from crewel.storage.dead_letter_matching import has_field
from crewel.storage.log import logged, unpacked
from crewel.storage.sight import WHOLE, Sight
from crewel.storage.store import Store
from crewel.storage.stream_walk import Walk

_PORTION: Final = 200
_MOST_QUEUES: Final = 1000
"""Shared queues that one search reads, those that got something last."""
_MOST_READ: Final = 5000
_MOST_BYTES: Final = 8 * 1024 * 1024
"""Messages that one search reads, and their bytes, nearly."""


async def message_body(
    store: Store, log_id: LogId, channel: str, sessions: Iterable[str], queues: Iterable[str]
) -> Logged | None:
    """Return the message from the log, the history of its channel, or where it waits for one of these sessions or in one of
    these shared queues. None if the store no longer has it. Raises StoreError."""
    k, text = store.keys, str(log_id)
    pipeline = store.reader.pipeline(transaction=False)
    for stream in (k.log, k.history(channel)):
        pipeline.xrange(stream, f"{text}-0", f"{text}-0")
    for name in sessions:
        pipeline.hget(k.inbox(name), text)
    for queue in queues:
        pipeline.hget(k.queue_bodies(queue), text)
    in_log, in_history, *packed = await pipeline.execute()
    for _, fields in (*in_log, *in_history):
        return logged(log_id, fields)
    found = next(filter(None, packed), None)
    return None if found is None else logged(log_id, unpacked(found))


class InQueues(NamedTuple):
    """Messages of shared queues, which the log need not have any more."""

    messages: list[Logged]
    """The newest first, each once."""
    is_partial: bool
    """Whether there are more messages in the queues than one call reads."""


async def search_queues(
    store: Store, text: str, count: int = 100, *, field: str = "", sight: Sight = WHOLE
) -> InQueues:
    """Return at most so many messages that wait for subjects and groups, with this text in body, options or sender, in any case
    (ASCII). Their data have this `field`, such as `order=100`, unless it is empty. One call reads a bounded number. Raises
    StoreError."""
    needle = text.encode().lower()
    found: dict[LogId, Logged] = {}
    read = size = 0
    async for name in _queues_of(store, sight):
        bodies = store.keys.queue_bodies(name)
        cursor: int | None = None
        while cursor != 0:
            answer: Any = await store.reader.hscan(bodies, cursor or 0, count=_PORTION)
            cursor, entries = answer
            async for log_id, packed in in_turns(entries.items()):
                fields = unpacked(packed)
                if sight.has(fields[b"c"].decode()):
                    size += len(packed)
                    if _has(fields, needle, field):
                        found[LogId(int(log_id))] = logged(LogId(int(log_id)), fields)
            read += len(entries)
            if sight.is_spent(read, _MOST_READ) or size >= _MOST_BYTES:
                return InQueues(_newest(found, count), is_partial=True)
    return InQueues(_newest(found, count), is_partial=len(found) > count)


async def _queues_of(store: Store, sight: Sight) -> AsyncIterator[str]:
    """The shared queues that got something last, the latest first: a bounded number for a reader who sees all. Those that move
    between two portions, because they get something, may come twice."""
    for start in range(0, _MOST_QUEUES, _PORTION) if sight.is_whole else count_from(0, _PORTION):
        names: Any = await store.reader.zrevrange(store.keys.queues, start, start + _PORTION - 1)
        for name in names:
            yield name.decode()
        if len(names) < _PORTION:
            return


def _newest(found: dict[LogId, Logged], count: int) -> list[Logged]:
    return [found[log_id] for log_id in nlargest(count, found)]


def _has(fields: Mapping[bytes, bytes], needle: bytes, field: str) -> bool:
    """Whether body, options or sender have the text, and the data has the field."""
    is_there = any(needle in fields.get(name, b"").lower() for name in (b"b", b"q", b"s"))
    return is_there and (not field or has_field(fields.get(b"b", b""), field))


class Found(NamedTuple):
    """Some messages, and where the next page begins."""

    messages: list[Logged]
    """The newest first."""
    next: str
    """To be passed as `before`; empty if there are no more."""


async def search(
    store: Store, text: str, before: str = "", count: int = 100, *, field: str = "", sight: Sight = WHOLE
) -> Found:
    """Return messages of the log with this text in body, options or sender, in any case (ASCII), and with this `field` of the
    data, such as `order=100`. They are older than the place where the page before ended. A page may come back short, or empty,
    and yet say where the next begins. One call reads a bounded number, or for a bounded time with a sight of some channels.
    Raises StoreError."""
    needle, found, size = text.encode().lower(), list[Logged](), 0
    entries = Walk(
        store,
        store.keys.log,
        after=before and f"{before}-0",
        newest_first=True,
        portion=_PORTION,
        most=_MOST_READ,
        sight=sight,
    )
    async for log_id, fields in entries:
        # What has a `k` is a note of nodes for each other.
        if b"k" not in fields and sight.has(fields[b"c"].decode()):
            size += len(fields[b"b"])
            if _has(fields, needle, field):
                found.append(logged(LogId(log_id), fields))
            if len(found) == count or size >= _MOST_BYTES:
                return Found(found, str(log_id))
    return Found(found, "" if entries.is_whole else entries.after.removesuffix("-0"))
