"""The log: persistent messages in their order, what is read back of them, and the commits that say which are still open.

`append`, `commit` and `trim` make steps, done as a whole or not at all; the other functions read, and raise StoreError. A
message is delivered with its log id as its `id`, so that a receiver recognises a redelivery.

A commit is applied once, in the order of its number: cursor, changes, dead letters and facts together. So the invariant of the
engine holds at every moment: what lies at or below a session's cursor has ended or is open in its record.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import (
    Change,
    Commit,
    Disposition,
    EndReason,
    Logged,
    LogId,
    PendingMessage,
    SessionName,
    Submission,
)
from crewel.qos.publish import NORMAL
from crewel.storage import dead_letter_store
from crewel.storage.facts import ends
from crewel.storage.keys import Keys
from crewel.storage.script_step import REMEMBERED_MS, Step, scripts
from crewel.storage.store import Store

TRIMMED_AT_ONCE: Final = 5000
"""Entries that one step trims at most, about: the store takes up to ten milliseconds for so many, and does nothing else."""

_READ_AT_ONCE: Final = 200  # with their bodies, which are read in one turn
_OPENED_AT_ONCE: Final = 2000  # ids that one step opens at most; so many take the store about a millisecond

_Arguments = list[bytes | str | int]
_NOTHING: Final[tuple[_Arguments, ...]] = ([], [], [], [], [])
_DUE: Final = 4  # the kind of a message that was scheduled
_SHORT: Final = 32  # bytes: there is nothing to be gained below


class PublishOutcome(StrEnum):
    """What happened to one publish."""

    NEW = "new"
    """It lies in the log."""
    REPEATED = "repeated"
    """Its key had been published before: the id is that of the first time, and nothing was done."""
    UNCHANGED = "unchanged"
    """It says the same as the newest of its topic's history, and lies there alone: it is not delivered."""
    REFUSED = "refused"
    """Its topic takes no second message; it has no id."""
    GONE = "gone"
    """It is not scheduled any more: it was published before, or cancelled. It has no id."""


class Appended(NamedTuple):
    """What happened to a group of publishes."""

    prev: LogId
    """The newest id before this group. A reader whose cursor it is has missed nothing."""
    ids: list[LogId]
    """One a message, in the order in which they were given; 0 if it was refused, or is gone."""
    outcomes: list[PublishOutcome]
    """One a message."""


def append(
    k: Keys,
    token: str,
    submissions: Sequence[Submission],
    facts_max: int,
    once_ms: int = REMEMBERED_MS,
    history_max_bytes: int = 0,
    node: str = "",
    now: int = 0,
) -> Step[Appended]:
    """Put messages into the log, all or none, with a fact of that. In the same step they go into the histories of their topics
    and the queues of groups, as far as they ask for that. A key is remembered for `once_ms` milliseconds. The oldest messages
    of a history go when it has more than `history_max_bytes`; 0: it may have any number. `node` is noted with each message as
    the one that accepted it, unless it is empty. A message says nothing new if the newest of its history says the same, and has
    not expired by `now`. That is in microseconds since 1970, by the clock that its expiry is of.

    Raises Fenced if the server with this token has been superseded. After an unknown outcome it must not be repeated, but for
    messages that all have a key.
    """
    keys = [k.node(token), k.last, k.log, k.facts]
    arguments: list[bytes | str | int] = [k.base, facts_max, once_ms, history_max_bytes, now]
    for each in submissions:
        further: list[bytes | str | int] = []
        if each.sender:
            further += ("s", each.sender)
        if each.excluded:
            further += ("x", each.excluded)
        if each.qos:
            further += ("q", each.qos)
        if node:
            further += ("o", node)
        if each.account:
            further += ("p", each.account)
        kind = 0
        if each.key:
            if each.is_due:
                arguments += _due(each, further)
                continue
            keys.append(k.once(each.key))
            kind = 1
            further.insert(0, orjson.dumps(each.publisher_key))
        if each.history_max or each.is_only or each.groups:
            arguments += (kind + 2, len(further) - kind, each.channel, each.body, *further, *_asked(each))
        else:
            arguments += (kind, len(further) - kind, each.channel, each.body, *further)
    return Step("publish", tuple(keys), tuple(arguments), _appended)


def _due(submission: Submission, further: Sequence[bytes | str | int]) -> tuple[bytes | str | int, ...]:
    """The arguments about a message that was scheduled."""
    asked = _asked(submission) if submission.history_max or submission.is_only or submission.groups else ()
    kind = _DUE + 2 if asked else _DUE
    return (kind, len(further), submission.channel, submission.body, submission.key, *further, *asked)


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


def _appended(answer: Any) -> Appended:
    prev, *ids = answer
    if ids and bytes not in map(type, ids) and min(ids) > 0:  # as nearly all groups
        return Appended(prev, ids, [PublishOutcome.NEW] * len(ids))
    return Appended(prev, [LogId(abs(int(each or 0))) for each in ids], [_outcome(each) for each in ids])


def _outcome(answer: int | bytes) -> PublishOutcome:
    if isinstance(answer, bytes):
        return PublishOutcome.UNCHANGED if answer else PublishOutcome.GONE
    if answer > 0:
        return PublishOutcome.NEW
    return PublishOutcome.REPEATED if answer else PublishOutcome.REFUSED


@dataclass(frozen=True, slots=True)
class Committed:
    """What happened to a commit, or of a part of it."""

    fenced: list[SessionName]
    """Sessions that another server owns; nothing of theirs was applied."""
    letters: list[str]
    """The dead ids of the dead letters that were stored, rising, which is session by session; none if the commit had been
    applied before."""


def commit(
    k: Keys, token: str, commit: Commit, facts_max: int, letters_max: int, letters_max_bytes: int = 0
) -> list[Step[Committed]]:
    """Apply a commit: usually one step; more if it opens very much, and then all but the last only open messages ahead.

    The steps are done in order. Each may be repeated as it is: what has been applied is not applied again. Raises Fenced if the
    server has been superseded, and Behind if the store has lost a commit of it. Raises StoreUnavailable (nothing was done) for
    a step whose predecessor has not been done.
    """
    opens = sum(len(change.opened) for change in commit.changes)
    parts = _parts(k, token, commit) if opens > _OPENED_AT_ONCE else []
    arguments: _Arguments = [
        k.base,
        token,
        commit.number,
        len(parts),
        commit.cursor,
        commit.low,
        facts_max,
        letters_max,
        letters_max_bytes,
    ]
    changes = {change.name: change for change in commit.changes}
    settled, others = _settled(commit, changes)
    arguments += (len(settled), *settled)
    ended = ends(others, commit.dead_letters)
    letters = dead_letter_store.described(commit.dead_letters)
    bodies: dict[bytes, int] = {}
    for name in dict.fromkeys([*changes, *ended, *letters]):
        change = changes.get(name)
        changed = _changed(change, opens=not parts) if change is not None else _NOTHING
        described = letters.get(name, [])
        groups: tuple[_Arguments, ...] = (*changed, list(ended.get(name, [])), described)
        arguments += (name, (change is not None and change.batch) or 0)
        arguments.extend([len(group) for group in groups])
        for group in groups[:-1]:
            arguments.extend(group)
        if described:
            _name_bodies(described, len(arguments) + 1, bodies)
            arguments.extend(described)
    keys = (k.node(token), k.log, k.dead, k.facts)
    return [*parts, Step("commit", keys, tuple(arguments), _committed)]


def _name_bodies(described: _Arguments, first: int, bodies: dict[bytes, int]) -> None:
    """Say each body once: where another argument has it, its number stands instead. `first` is the number of the first of these
    arguments, and `bodies` has the numbers of those that were said."""
    for at in range(dead_letter_store.BODY, len(described), dead_letter_store.WORDS):
        body = described[at]
        if isinstance(body, bytes) and len(body) >= _SHORT:
            number = bodies.setdefault(body, first + at)
            if number != first + at:
                described[at] = f"@{number}"


def _settled(commit: Commit, changes: Container[SessionName]) -> tuple[_Arguments, list[Disposition]]:
    """The arguments about messages taken and settled since the last commit, by sessions that settled the same; and the
    other ends."""
    sessions_of: dict[tuple[LogId, ...], list[SessionName]] = {each.ids: [*each.sessions] for each in commit.settled}
    others = []
    for each in commit.ended:
        if each.reason is not EndReason.SETTLED or each.session in changes:
            others.append(each)
        elif each.ids in sessions_of:
            sessions_of[each.ids].append(each.session)
        else:
            sessions_of[each.ids] = [each.session]
    arguments: _Arguments = []
    for ids, names in sessions_of.items():
        arguments += (orjson.dumps(ids), len(names), *names)
    return arguments, others


def _parts(k: Keys, token: str, commit: Commit) -> list[Step[Committed]]:
    """The steps that go ahead: what is opened, in portions, and nothing else."""
    opened = [
        (change.name, f"o:{log_id}", text_of(waiting))
        for change in commit.changes
        for log_id, waiting in change.opened.items()
    ]
    steps = []
    for number, start in enumerate(range(0, len(opened), _OPENED_AT_ONCE), 1):
        arguments: _Arguments = [k.base, token, commit.number, number]
        for name, group in groupby(opened[start : start + _OPENED_AT_ONCE], lambda each: each[0]):
            fields = [text for _, log_id, waiting in group for text in (log_id, waiting)]
            arguments += (name, len(fields), *fields)
        steps.append(Step("open", (k.node(token),), tuple(arguments), _opened))
    return steps


def _changed(change: Change, *, opens: bool) -> tuple[_Arguments, ...]:
    """What changes in one session: fields to set, fields that are settled, further fields to delete, ids to delete in the
    inbox, intervals to forget."""
    opened: _Arguments = []
    if opens:
        for log_id, waiting in change.opened.items():
            opened += (f"o:{log_id}", text_of(waiting))
    deleted: _Arguments = [f"i:{log_id}" for log_id in change.removed]
    deleted += [f"n:{channel}" for channel in change.noticed]
    if change.caught_up:
        deleted.append("at")
    settled: _Arguments = [f"o:{log_id}" for log_id in change.settled]
    forgotten: _Arguments = [f"c:{pattern} {since}" for pattern, since in change.forgotten]
    return opened, settled, deleted, list(change.removed), forgotten


def _opened(answer: Any) -> Committed:
    return Committed([SessionName(name.decode()) for name in answer], [])


def _committed(answer: Any) -> Committed:
    fenced, letters = answer
    return Committed([SessionName(name.decode()) for name in fenced], [each.decode() for each in letters])


def text_of(waiting: PendingMessage) -> str:
    """Return what a session's record says of a message that waits for it:
    `<attempts>:<bytes>:<channel>:<priority>:<expires>:<source>`, less the defaults at its end. Channels have no colons. The
    scripts read and write such texts too (shared/waiting.lua)."""
    attempts, size, channel, priority, expires, source = waiting
    if source:
        return f"{attempts}:{size}:{channel}:{priority}:{expires}:{source}"
    if expires:
        return f"{attempts}:{size}:{channel}:{priority}:{expires}"
    if priority != NORMAL:
        return f"{attempts}:{size}:{channel}:{priority}"
    return f"{attempts}:{size}:{channel}" if channel else f"{attempts}:{size}"


def waiting_of(text: bytes) -> PendingMessage:
    """Return what such a text says."""
    words = text.decode().split(":", 5)
    if len(words) == 3:  # as nearly all of them
        return PendingMessage(int(words[0]), int(words[1]), words[2])
    attempts, size, channel, priority, expires, source = [*words, "", "", "", ""][:6]
    return PendingMessage(int(attempts), int(size), channel, int(priority or NORMAL), int(expires or 0), source)


def trim(k: Keys, token: str, most: int = 0) -> Step[int]:
    """Remove what no server needs any more, about `most` entries at a time (0: `TRIMMED_AT_ONCE`); returns how many. If that is
    more than half of them, there may be more. Raises Fenced if the server has been superseded."""
    return Step("trim", (k.node(token), k.nodes, k.log), (k.base, most or TRIMMED_AT_ONCE), int)


async def read(store: Store, after: LogId, count: int) -> list[Logged]:
    """Return the next entries after this id, at most so many, oldest first."""
    entries: Any = await store.reader.xrange(store.keys.log, f"({after}-0", "+", count)
    return [logged(_id(entry), fields) for entry, fields in entries]


async def fetch(store: Store, ids: Sequence[LogId]) -> dict[LogId, Logged]:
    """Return these entries, in one round trip; those that the log does not have (any more) are left out."""
    if not ids:
        return {}
    script = scripts()["fetch"].text
    found: Any = await store.reader.eval(script.decode(), 1, store.keys.log, *[f"{each}-0" for each in ids])
    entries = ((_id(entry), dict(zip(fields[::2], fields[1::2], strict=True))) for entry, fields in found)
    return {log_id: logged(log_id, fields) for log_id, fields in entries}


async def fetch_inbox(store: Store, name: str, ids: Sequence[LogId]) -> dict[LogId, Logged]:
    """Return these messages from a session's inbox; those that are not there are left out."""
    if not ids:
        return {}
    found: Any = await store.reader.hmget(store.keys.inbox(name), [str(each) for each in ids])
    pairs = zip(ids, found, strict=True)
    return {log_id: logged(log_id, unpacked(packed)) for log_id, packed in pairs if packed is not None}


async def oldest_tenth(store: Store) -> LogId:
    """Return the id of the last entry of the oldest tenth; 0 if the log has fewer than ten. Entries have no number in the
    store, so they are counted: some a round trip."""
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
    redrive_of, qos = fields.get(b"r", b"").decode(), fields.get(b"q", b"")
    to, addressed = fields.get(b"t", b"").decode(), fields.get(b"w", b"")
    node, changed_by = fields.get(b"o", b"").decode(), fields.get(b"k", b"").decode()
    return Logged(
        log_id,
        fields[b"c"].decode(),
        fields[b"b"],
        sender,
        excluded,
        qos,
        redrive_of,
        to,
        addressed,
        node,
        changed_by,
    )


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
