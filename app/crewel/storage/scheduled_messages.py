"""Scheduled messages: the list in the store of those that are to be published later.

Nothing is delivered from it. The step that publishes a message (`log.append`, of a submission that is due) takes it out of the
list, or does nothing if it is not there. So each is published once, or cancelled, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from crewel.bayeux.channel import parse
from crewel.delivery.records import LogId
from crewel.storage.keys import Keys
from crewel.storage.log import unpacked
from crewel.storage.script_step import REMEMBERED_MS, Step
from crewel.storage.sight import WHOLE, Sight
from crewel.storage.store import Store

_PORTION: Final = 200
_MOST_READ: Final = 2000
_MOST_DIGITS: Final = 16


class Waiting(NamedTuple):
    """A message that is to be published later."""

    due_ms: int
    """When: milliseconds since 1970."""
    channel: str
    body: bytes
    """The message as its receivers get it, JSON, less the id."""
    sender: str
    """Public name of the session that published it; empty for the server itself."""
    excluded: str
    """Name of the session that must not receive it; empty if there is none."""
    asked: bytes
    """What its publisher asked for in `ext.publish`, JSON, less when, and the key."""
    account: str
    """The account that is charged for it; empty for the server itself."""


class ScheduledMessage(NamedTuple):
    """One that the store has."""

    id: str
    message: Waiting
    next_ms: int
    """When it is published, or tried again: milliseconds since 1970."""
    refusal: str
    """Why it could not be published when it was due; empty if it is not due, or was not tried."""


class Scheduled(NamedTuple):
    """What happened to a message that is to be published later."""

    prev: LogId
    """The newest id before this step."""
    id: LogId
    """0: its account has too many scheduled messages."""
    is_repeated: bool
    """Whether its key is remembered: nothing was done, and the id is that of the first time."""


class SchedulePage(NamedTuple):
    """Some scheduled messages, those that are due first, first; and where the next page begins."""

    messages: list[ScheduledMessage]
    next: str
    """To be passed as `after`; empty if there are no more."""


def schedule(
    k: Keys, token: str, message: Waiting, most: int, facts_max: int, key: str = "", publisher_key: str = ""
) -> Step[Scheduled]:
    """Keep a message. Its account may have `most` (0: any number). With a key (scope and key in one text), a repeat within two
    minutes does nothing. Without one it must not be repeated after an unknown outcome. Raises Fenced if the server has been
    superseded, StoreFull."""
    keys = [k.node(token), k.last, k.facts, k.scheduled, k.scheduled_messages, k.scheduled_held]
    keys += [k.once(key)] if key else []
    arguments: list[bytes | str | int] = [facts_max, REMEMBERED_MS, message.due_ms, most]
    arguments += (orjson.dumps(publisher_key) if key else b"", message.account, message.channel, "b", message.body)
    fields: dict[str, bytes | str] = {"s": message.sender, "x": message.excluded, "q": message.asked}
    for name, value in fields.items():
        if value:
            arguments += (name, value)
    arguments += ("d", message.due_ms)
    return Step("schedule", tuple(keys), tuple(arguments), _scheduled)


def _scheduled(answer: Any) -> Scheduled:
    prev, log_id, is_repeated = answer
    return Scheduled(LogId(prev), LogId(log_id), bool(is_repeated))


def postpone(k: Keys, token: str, message_id: str, next_ms: int, reason: str) -> Step[int]:
    """Try a message again at this time (milliseconds since 1970) that could not be published for this reason. Returns whether
    it is there. May be repeated."""
    keys = (k.node(token), k.scheduled, k.scheduled_refused)
    return Step("postpone", keys, (message_id, next_ms, reason), int)


def cancel(k: Keys, token: str, ids: Sequence[str], facts_max: int, who: str = "", account: str = "") -> Step[int]:
    """Take messages out of the list for good, with an account only those that it is charged for; returns how many were there.
    Raises Fenced if the server has been superseded."""
    return Step("cancel", (k.node(token), k.facts), (k.base, facts_max, who, account, *ids), int)


async def due(store: Store, now_ms: int, count: int) -> list[ScheduledMessage]:
    """Return the messages whose time has come, at most so many, in the order of their times and then of their ids. Raises
    StoreError."""
    found: Any = await store.reader.zrangebyscore(
        store.keys.scheduled, "-inf", now_ms, start=0, num=count, withscores=True
    )
    return await _read(store, found)


async def count(store: Store) -> int:
    """Return how many messages are scheduled. Raises StoreError."""
    return int(await store.reader.zcard(store.keys.scheduled))


async def get(store: Store, ids: Sequence[str]) -> list[ScheduledMessage]:
    """Return those of these messages that are scheduled. Raises StoreError."""
    known = [each for each in dict.fromkeys(ids) if is_id(each)]
    if not known:
        return []
    scores: Any = await store.reader.zmscore(store.keys.scheduled, known)
    return await _read(store, [(each.encode(), at) for each, at in zip(known, scores, strict=True) if at is not None])


async def page(
    store: Store, pattern: str = "", after: str = "", count: int = 100, sight: Sight = WHOLE
) -> SchedulePage:
    """Return the next scheduled messages on channels that this channel or pattern covers (empty: on all), after the place where
    the page before ended, `count` at most. A page may come back short, and yet say where the next begins. Raises StoreError,
    ValueError for a place that is none."""
    found: list[ScheduledMessage] = []
    read, place = 0, after
    while not sight.is_spent(read, _MOST_READ):
        start = await _start(store, place)
        places: Any = await store.reader.zrange(store.keys.scheduled, start, start + _PORTION - 1, withscores=True)
        for each in await _read(store, places):
            if sight.has(each.message.channel) and _is_on(each, pattern):
                found.append(each)
                if len(found) > count:
                    return SchedulePage(found[:count], _place(found[count - 1].next_ms, found[count - 1].id))
        if len(places) < _PORTION:
            return SchedulePage(found, "")
        read += len(places)
        place = _place(int(places[-1][1]), places[-1][0].decode())
    return SchedulePage(found, place)


def _is_on(scheduled: ScheduledMessage, pattern: str) -> bool:
    channel = parse(scheduled.message.channel) if pattern else None
    return channel is None or pattern in channel.patterns


async def _start(store: Store, place: str) -> int:
    """How many messages come up to this place. If its message has gone or was postponed, those of the same time come once
    more."""
    if not place:
        return 0
    at_ms, message_id = place_of(place)
    pipeline = store.reader.pipeline(transaction=False)
    pipeline.zrank(store.keys.scheduled, message_id)
    pipeline.zscore(store.keys.scheduled, message_id)  # after the rank: a postponement in between shows in it
    rank, score = await pipeline.execute()
    if score != at_ms:
        return int(await store.reader.zcount(store.keys.scheduled, "-inf", f"({at_ms}"))
    return int(rank) + 1


def _place(at_ms: int, message_id: str) -> str:
    return f"{at_ms}-{message_id}"


def place_of(place: str) -> tuple[int, str]:
    """The time and the id that a place names. Raises ValueError."""
    at_ms, separator, message_id = place.partition("-")
    if not (separator and at_ms.isascii() and at_ms.isdecimal() and len(at_ms) <= _MOST_DIGITS and is_id(message_id)):
        raise ValueError("`next` of the previous page")
    return int(at_ms), message_id


def is_id(text: str) -> bool:
    """Whether it can be the id of a scheduled message."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


async def _read(store: Store, places: Sequence[tuple[bytes, float]]) -> list[ScheduledMessage]:
    """These messages, by id and next time. What has gone meanwhile is left out."""
    if not places:
        return []
    ids = [each for each, _ in places]
    kept: Any = await store.reader.hmget(store.keys.scheduled_messages, ids)
    refusals: Any = await store.reader.hmget(store.keys.scheduled_refused, ids)
    return [
        ScheduledMessage(message_id.decode(), _waiting(unpacked(packed)), int(at), (refusal or b"").decode())
        for (message_id, at), packed, refusal in zip(places, kept, refusals, strict=True)
        if packed is not None
    ]


def _waiting(fields: dict[bytes, bytes]) -> Waiting:
    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    return Waiting(
        int(fields[b"d"]), text(b"c"), fields[b"b"], text(b"s"), text(b"x"), fields.get(b"q", b""), text(b"p")
    )
