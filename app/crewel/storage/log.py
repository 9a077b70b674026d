"""The log: persistent messages in their order, and what is read back of them.

`append` and `trim` are steps, done as a whole or not at all; the other functions read, and raise StoreError. A message is
delivered with its log id as its `id`, so that whoever gets it twice can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import NORMAL, Logged, LogId, Submission
from crewel.storage.answers import unless_refused
from crewel.storage.keys import Keys
from crewel.storage.steps import Step
from crewel.storage.store import Store

_READ_AT_ONCE: Final = 1000


class PublishOutcome(StrEnum):
    """What became of one publish."""

    NEW = "new"
    """It lies in the log."""
    REPEATED = "repeated"
    """Its key had been published before: the id is that of the first time, and nothing was done."""
    UNCHANGED = "unchanged"
    """It says the same as the newest of its topic's history, and lies there alone: nobody is told."""
    REFUSED = "refused"
    """Its topic takes no second message; it has no id."""


class Appended(NamedTuple):
    """What became of a group of publishes."""

    prev: LogId
    """The newest id before this group. A reader whose cursor it is has missed nothing."""
    ids: list[LogId]
    """One a message, in the order in which they were given; 0 if it was refused."""
    outcomes: list[PublishOutcome]
    """One a message."""


def append(
    k: Keys,
    token: str,
    submissions: Sequence[Submission],
    facts_max: int,
    once_ms: int = 120_000,
    history_max_bytes: int = 0,
) -> Step[Appended]:
    """Put messages into the log, all or none, with a fact that says so; and in the same step into the histories of their
    topics and the queues of groups, as far as they ask for that. A key is remembered for `once_ms` milliseconds. The oldest
    messages of a history go when it has more than `history_max_bytes`; 0: it may have any number.

    Raises Fenced if the server with this token has been superseded. After an unknown outcome it must not be repeated, but for
    messages that all have a key.
    """
    keys = [k.node(token), k.last, k.log, k.facts]
    arguments: list[bytes | str | int] = [k.base, facts_max, once_ms, history_max_bytes]
    for each in submissions:
        further: list[bytes | str | int] = []
        if each.sender:
            further += ("s", each.sender)
        if each.excluded:
            further += ("x", each.excluded)
        if each.qos:
            further += ("q", each.qos)
        kind = 0
        if each.key:
            keys.append(k.once(each.key))
            kind = 1
        if each.history_max or each.is_only or each.groups:
            arguments += (kind + 2, len(further), each.channel, each.body, *further, *_asked(each))
        else:
            arguments += (kind, len(further), each.channel, each.body, *further)
    return Step("publish", tuple(keys), tuple(arguments), _appended, appends=True)


def _asked(submission: Submission) -> tuple[str | int, ...]:
    """What a publish asks for its topic, and for the groups that get it too."""
    qos = orjson.loads(submission.qos) if submission.groups and submission.qos else {}
    return (
        submission.history_max,
        int(submission.forces_update),
        int(submission.is_only),
        submission.expires,
        submission.expires if qos.get("forceDestroy") else 0,
        qos.get("priority", NORMAL),
        len(submission.groups),
        *submission.groups,
    )


@unless_refused
def _appended(answer: Any) -> Appended:
    prev, *ids = answer
    if ids and bytes not in map(type, ids) and min(ids) > 0:  # as nearly all groups
        return Appended(prev, ids, [PublishOutcome.NEW] * len(ids))
    return Appended(prev, [LogId(abs(int(each))) for each in ids], [_outcome(each) for each in ids])


def _outcome(answer: int | bytes) -> PublishOutcome:
    if isinstance(answer, bytes):
        return PublishOutcome.UNCHANGED
    if answer > 0:
        return PublishOutcome.NEW
    return PublishOutcome.REPEATED if answer else PublishOutcome.REFUSED


def trim(k: Keys, token: str) -> Step[int]:
    """Remove what no server needs any more; returns how many entries. Raises Fenced if the server has been superseded."""
    return Step("trim", (k.node(token), k.nodes, k.log), (k.base,), _trimmed)


_trimmed = unless_refused(int)


async def read(store: Store, after: LogId, count: int) -> list[Logged]:
    """Return the next entries after this id, at most so many, oldest first."""
    entries: Any = await store.reader.xrange(store.keys.log, f"({after}-0", "+", count)
    return [logged(_id(entry), fields) for entry, fields in entries]


async def fetch(store: Store, ids: Iterable[LogId]) -> dict[LogId, Logged]:
    """Return these entries, in one round trip; those that the log does not have (any more) are left out."""
    pipeline = store.reader.pipeline(transaction=False)
    for each in ids:
        pipeline.xrange(store.keys.log, f"{each}-0", f"{each}-0")
    found = await pipeline.execute()
    return {(log_id := _id(entry)): logged(log_id, fields) for answer in found for entry, fields in answer}


async def fetch_inbox(store: Store, name: str, ids: Sequence[LogId]) -> dict[LogId, Logged]:
    """Return these messages from a session's inbox; those that are not there are left out."""
    if not ids:
        return {}
    found: Any = await store.reader.hmget(store.keys.inbox(name), [str(each) for each in ids])
    pairs = zip(ids, found, strict=True)
    return {log_id: logged(log_id, unpacked(packed)) for log_id, packed in pairs if packed is not None}


async def last(store: Store) -> LogId:
    """Return the newest id; 0 if there never was one."""
    return LogId(int(await store.reader.get(store.keys.last) or 0))


async def size(store: Store) -> int:
    """Return about how many bytes the log takes in the store's memory."""
    return int(await store.reader.memory_usage(store.keys.log) or 0)


async def oldest_tenth(store: Store) -> LogId:
    """Return the id of the last entry of the oldest tenth; 0 if the log has fewer than ten. Entries have no number in the
    store, so they are counted: a thousand a round trip."""
    left = await store.reader.xlen(store.keys.log) // 10
    border = LogId(0)
    while left:
        entries: Any = await store.reader.xrange(store.keys.log, f"({border}-0", "+", min(left, _READ_AT_ONCE))
        if not entries:
            break
        border = _id(entries[-1][0])
        left -= len(entries)
    return border


def _id(entry: bytes) -> LogId:
    return LogId(int(entry.partition(b"-")[0]))


def logged(log_id: LogId, fields: Mapping[bytes, bytes]) -> Logged:
    """The message that an entry of the log, of a history or of an inbox holds."""
    sender, excluded = fields.get(b"s", b"").decode(), fields.get(b"x", b"").decode()
    redrive_of, returns = fields.get(b"r", b"").decode(), int(fields.get(b"n", 0))
    qos, to = fields.get(b"q", b""), fields.get(b"t", b"").decode()
    return Logged(log_id, fields[b"c"].decode(), fields[b"b"], sender, excluded, qos, redrive_of, returns, to)


def unpacked(packed: bytes) -> dict[bytes, bytes]:
    """The fields of a message in an inbox, as shared/packed.lua writes them: name, length, colon, value, and so on."""
    fields = {}
    at = 0
    while at < len(packed):
        colon = packed.index(b":", at)
        end = colon + 1 + int(packed[at + 1 : colon])
        fields[packed[at : at + 1]] = packed[colon + 1 : end]
        at = end
    return fields
