"""The histories of topics: the newest messages of a channel, under the ids that they have in the log; and what was configured
for it.

A history has an epoch: a reader that has seen one of its ids, and finds the same epoch, knows that nothing has been removed or
numbered again since. `topics` reads, and raises StoreError; all else are steps, in order with publishes. Steps raise Fenced if
the server has been superseded, and may be repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import Logged, LogId
from crewel.storage.keys import Keys
from crewel.storage.log import logged
from crewel.storage.script_step import Step
from crewel.storage.store import Store

_TOGETHER: Final = 500  # topics whose particulars are read in one round trip
_NONE: Final = -1
_FACTS_MAX: Final = 1_000_000  # unless the caller says how many; the next step that does removes the rest


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """What the store knows of a topic."""

    channel: str
    settings: dict[str, Any]
    """As they were configured: JSON, opaque to the store; empty if they never were."""
    epoch: str
    entries: int
    """How many messages its history has, expired ones that are not removed yet among them."""
    newest: LogId
    """Id of the newest of them; 0 if there is none."""
    is_erased: bool = False
    """Whether it was erased while messages of it may have waited, and was not made again."""


@dataclass(frozen=True, slots=True)
class History:
    """Messages of a topic, as they were at one instant."""

    epoch: str
    """Empty if the topic has never had a history or settings, or has been erased."""
    last: LogId
    """The newest id of the log at that instant."""
    entries: list[Logged]
    """Those that were asked for and have not expired, oldest first."""
    total: int
    """How many the history has, expired ones that are not removed yet among them."""


class Way(StrEnum):
    """What is wanted of a history for the begin of a subscription."""

    NEWEST = "newest"
    """The newest messages, as far as there is room for them beside those of the other histories that are read like this."""
    SINCE = "since"
    """All that came after one entry; where that is more than there is room for, one message more than that."""
    ALONE = "alone"
    """The newest messages, whatever is read of others."""


class Wanted(NamedTuple):
    """What is wanted of one history."""

    channel: str
    way: Way
    entries: int = 0
    """How many messages at most; does not count for `SINCE`."""
    since: LogId = LogId(0)
    """The entry after which it begins, for `SINCE`; 0: before the first."""


class Past(NamedTuple):
    """What a history has of what is wanted."""

    epoch: str
    """Empty if the topic has never had a history or settings, or has been erased."""
    entries: list[Logged]
    """Those that were wanted and have not expired, oldest first."""
    newest: LogId
    """The id of the newest message that the history has; 0 if it is empty."""
    before: LogId
    """The id of the newest one that had been taken when the store was asked."""
    reaches: bool
    """Whether `since` is the id of an entry that is still there; so nothing that came after it is missing, unless it has
    expired. 0 counts as there as long as nothing has left the history in its epoch. False for other ways."""


class Pasts(NamedTuple):
    """Several histories, as they were at one instant."""

    last: LogId
    """The newest id of the log at that instant."""
    found: list[Past]
    """One for each that was wanted, in their order."""


class Shortened(NamedTuple):
    """A history or a shared queue that has lost messages because their life had ended."""

    name: str
    """Of the channel or the queue; only a channel's begins with a slash."""
    removed: int
    left: int
    """How many messages it still has."""


class Expired(NamedTuple):
    """What a step has removed."""

    looked_at: int
    """How many messages; if as many as it may, there may be more."""
    shortened: list[Shortened]


class ChangeKind(StrEnum):
    """What has changed of a topic."""

    CONFIGURED = "configured"
    """Its settings, its epoch, or how much its history may hold."""
    CLEARED = "cleared"
    """Its history was removed."""
    ERASED = "erased"
    """It was erased, and its queued messages are delivered."""
    FORCED = "forced"
    """It was erased with its queued messages."""
    ENDED = "ended"
    """Nothing referred to it for as long as its `destroyDelay`."""


class TopicChange(NamedTuple):
    """A change of a topic, as the log has it."""

    id: LogId
    channel: str
    kind: str
    """A `ChangeKind`, or one that this version does not know."""
    settings: dict[str, Any]
    epoch: str
    by: str
    """The token of the node that made it."""


def change_of(entry: Logged) -> TopicChange:
    """Return the change that this entry of the log notes."""
    said = orjson.loads(entry.body)
    return TopicChange(entry.id, entry.channel, said["kind"], said["settings"], said["epoch"], entry.changed_by)


def new_epoch() -> str:
    """Return an epoch that no history has had."""
    return secrets.token_hex(6)


def history(
    k: Keys, token: str, channel: str, *, newest: int | None, max_bytes: int | None = None, now: int = 0
) -> Step[History]:
    """Read the newest so many messages, or all (None). Where their bodies are more than `max_bytes`, those that fit, and one
    more. What has expired by `now` is left out: microseconds since 1970, by the clock that its expiry is of."""
    keys = (k.node(token), k.history(channel), k.topic(channel), k.last)
    return Step("history", keys, (_or_none(newest), _or_none(max_bytes), now), _history)


def _or_none(number: int | None) -> int:
    return _NONE if number is None else number


def _history(answer: Any) -> History:
    epoch, last, entries, total = answer
    return History(epoch.decode(), LogId(last), [_entry(*each) for each in entries], total)


def pasts(
    k: Keys, token: str, wanted: Iterable[Wanted], *, room: int, max_bytes: int | None, taken: LogId, now: int = 0
) -> Step[Pasts]:
    """Read how subscriptions to these topics begin, where there is room for so many messages. Where the bodies of those of one
    way are more than `max_bytes`, those that fit, and one more. `taken`: up to where the log has been taken. `now` as of
    `history`."""
    keys = [k.node(token), k.last]
    arguments: list[str | int] = [_or_none(max_bytes), taken, room, now]
    for each in wanted:
        keys += [k.history(each.channel), k.topic(each.channel)]
        arguments += each[1:]
    return Step("histories", tuple(keys), tuple(arguments), _pasts)


def _pasts(answer: Any) -> Pasts:
    last, *found = answer
    return Pasts(LogId(last), [_past(*each) for each in found])


def _past(epoch: bytes, entries: Any, newest: int, before: int, reaches: int) -> Past:
    return Past(epoch.decode(), [_entry(*each) for each in entries], LogId(newest), LogId(before), bool(reaches))


def _entry(place: bytes, flat: list[bytes]) -> Logged:
    fields = iter(flat)
    return logged(LogId(int(place.partition(b"-")[0])), dict(zip(fields, fields, strict=True)))


def configure(
    k: Keys, token: str, channel: str, settings: bytes, epoch: str, author: str = "", *, renews: bool = False
) -> Step[str]:
    """Keep the settings of a topic, a JSON object; if they have `historyMax`, the history keeps so many messages from now on.
    Returns the epoch that holds: the one that there was, or this one if there was none. Raises StoreFull.

    `renews`: this one holds in any case, because the store may have lost something; empty settings stay as they are.
    `author`: the node that changes this, which the log notes for the others; without one it notes nothing.
    """
    most = orjson.loads(settings).get("historyMax", _NONE) if settings else _NONE
    keys = (k.node(token), k.topics, k.topic(channel), k.history(channel), k.last, k.log)
    arguments = (channel, settings, epoch, int(renews), most, author)
    return Step("configure", keys, arguments, _text)


def erase(
    k: Keys, token: str, channel: str, facts_max: int, kind: ChangeKind = ChangeKind.FORCED, author: str = ""
) -> Step[int]:
    """Remove a topic: its history, settings and epoch. Returns how many messages the history had. `ERASED`: messages of it may
    still wait, and until `forget` the store knows that it was erased. `author` as of `configure`."""
    arguments = (channel, facts_max, "", int(kind is ChangeKind.ERASED), author, kind)
    return Step("erase", _all_keys(k, token, channel), arguments, int)


def forget(k: Keys, token: str, channel: str) -> Step[int]:
    """Take away the mark of a topic that was erased. Returns whether there was one."""
    return Step("forget", (k.node(token), k.topics, k.topic(channel)), (channel,), int)


def clear(k: Keys, token: str, channel: str, epoch: str = "", author: str = "") -> Step[int]:
    """Remove the history of a topic, and begin a new epoch: this one, if it is given. Returns how many messages there were.
    `author` as of `configure`."""
    arguments = (channel, 0, epoch or new_epoch(), 0, author, ChangeKind.CLEARED)
    return Step("erase", _all_keys(k, token, channel), arguments, int)


def _all_keys(k: Keys, token: str, channel: str) -> tuple[str, ...]:
    return (k.node(token), k.topics, k.topic(channel), k.history(channel), k.expiry, k.facts, k.last, k.log)


def expire(k: Keys, token: str, now_ms: int, count: int, facts_max: int = _FACTS_MAX) -> Step[Expired]:
    """Remove messages from histories, and from shared queues, whose time has ended at `now_ms` (since 1970), at most so many.
    Returns the channels and queues that have lost some."""
    return Step("expire", (k.node(token), k.expiry, k.facts), (k.base, now_ms, count, facts_max), _expired)


async def topics(store: Store) -> list[StoredTopic]:
    """Return all topics that have settings or a history, by name."""
    keys, reader = store.keys, store.reader
    members: Any = await reader.smembers(keys.topics)
    channels = sorted(member.decode() for member in members)
    found = []
    for start in range(0, len(channels), _TOGETHER):
        pipeline = reader.pipeline(transaction=False)
        for channel in channels[start : start + _TOGETHER]:
            pipeline.hmget(keys.topic(channel), "settings", "epoch", "erased")
            pipeline.xlen(keys.history(channel))
            pipeline.xrevrange(keys.history(channel), count=1)
        answers = iter(await pipeline.execute())
        for channel in channels[start : start + _TOGETHER]:
            about, entries, newest = next(answers), next(answers), next(answers)
            found.append(_topic(channel, about, entries, newest))
    return found


def _topic(channel: str, about: list[bytes | None], entries: int, newest: Any) -> StoredTopic:
    settings, epoch, erased = about
    newest_id = LogId(int(newest[0][0].partition(b"-")[0])) if newest else LogId(0)
    is_erased = erased is not None
    return StoredTopic(channel, orjson.loads(settings or b"{}"), (epoch or b"").decode(), entries, newest_id, is_erased)


def _text(answer: Any) -> str:
    return str(answer.decode())


def _expired(answer: Any) -> Expired:
    words = iter(answer)
    looked_at = next(words)
    shortened = [Shortened(name.decode(), *counts) for name, *counts in zip(words, words, words, strict=True)]
    return Expired(looked_at, shortened)
