"""How the open messages of sessions reach the store: commits, and the end of a session.

A commit is applied once, in the order of its number, cursor and changes and letters and facts together. So the invariant of
the engine holds at every moment: what lies at or below a session's cursor has ended or is open in its record.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import orjson

from crewel.delivery.records import Change, Commit, Ended, EndReason, Letter, LogId, SessionName
from crewel.storage.answers import unless_refused
from crewel.storage.facts import ends
from crewel.storage.keys import Keys
from crewel.storage.steps import Step
from crewel.storage.waiting import text as waiting_text

_AT_ONCE: Final = 2000  # ids that one step opens at most; so many take the store about a millisecond

_Arguments = list[bytes | str | int]
_NOTHING: Final[tuple[_Arguments, ...]] = ([], [], [], [], [])
_NOTHING_RETURNS: Final[Mapping[LogId, int]] = {}
_WORDS: Final = 9  # arguments that describe a letter
_BODY: Final = 5  # which of them is the body
_SHORT: Final = 32  # bytes: there is nothing to be gained below
_STORED: Final = ("", "", "", "", "")  # stands for the message of a letter that the store copies itself


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a commit, or of a part of it."""

    fenced: list[SessionName]
    """Sessions that another server owns; nothing of theirs was applied."""
    letters: list[str]
    """The dead ids of the letters that were stored, rising, which is session by session; none if the commit had been applied
    before."""


def commit(
    k: Keys, token: str, commit: Commit, facts_max: int, letters_max: int, letters_max_bytes: int = 0
) -> list[Step[Committed]]:
    """Apply a commit: usually one step; more if it opens very much, and then all but the last only open messages ahead.

    The steps are done in order. Each may be repeated as it is: what has been applied is not applied again. Raises Fenced if
    the server has been superseded, Behind if the store has lost a commit of it, and StoreUnavailable (nothing was done) for a
    step whose predecessor has not been done.
    """
    opens = sum(len(change.opened) for change in commit.changes)
    parts = _parts(k, token, commit) if opens > _AT_ONCE else []
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
    ended = ends(others, commit.letters)
    letters = _letters(commit.letters)
    bodies: dict[bytes, int] = {}
    for name in dict.fromkeys([*changes, *ended, *letters]):
        change = changes.get(name)
        kept = _kept(change, opens=not parts) if change is not None else _NOTHING
        described = letters.get(name, [])
        groups: tuple[_Arguments, ...] = (*kept, list(ended.get(name, [])), described)
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
    for at in range(_BODY, len(described), _WORDS):
        body = described[at]
        if isinstance(body, bytes) and len(body) >= _SHORT:
            number = bodies.setdefault(body, first + at)
            if number != first + at:
                described[at] = f"@{number}"


def _settled(commit: Commit, changes: Container[SessionName]) -> tuple[_Arguments, list[Ended]]:
    """The arguments that tell what was taken and settled since the last commit, by sessions that tell the same; and the
    other ends."""
    told: dict[tuple[LogId, ...], list[SessionName]] = {each.ids: [*each.sessions] for each in commit.settled}
    others = []
    for each in commit.ended:
        if each.reason is not EndReason.SETTLED or each.session in changes:
            others.append(each)
        elif each.ids in told:
            told[each.ids].append(each.session)
        else:
            told[each.ids] = [each.session]
    arguments: _Arguments = []
    for ids, names in told.items():
        arguments += (orjson.dumps(ids), len(names), *names)
    return arguments, others


def _parts(k: Keys, token: str, commit: Commit) -> list[Step[Committed]]:
    """The steps that go ahead: what is opened, in portions, and nothing else."""
    opened = [
        (change.name, f"o:{log_id}", waiting_text(waiting))
        for change in commit.changes
        for log_id, waiting in change.opened.items()
    ]
    steps = []
    for number, start in enumerate(range(0, len(opened), _AT_ONCE), 1):
        arguments: _Arguments = [k.base, token, commit.number, number]
        for name, group in groupby(opened[start : start + _AT_ONCE], lambda each: each[0]):
            fields = [text for _, log_id, waiting in group for text in (log_id, waiting)]
            arguments += (name, len(fields), *fields)
        steps.append(Step("open", (k.node(token),), tuple(arguments), _opened))
    return steps


def _kept(change: Change, *, opens: bool) -> tuple[_Arguments, ...]:
    """What changes in one session: fields to set, fields that are settled, further fields to delete, ids to delete in the
    inbox, intervals to forget."""
    opened: _Arguments = []
    if opens:
        for log_id, waiting in change.opened.items():
            opened += (f"o:{log_id}", waiting_text(waiting))
    deleted: _Arguments = [f"i:{log_id}" for log_id in change.unboxed]
    deleted += [f"n:{channel}" for channel in change.noticed]
    if change.in_step:
        deleted.append("at")
    settled: _Arguments = [f"o:{log_id}" for log_id in change.settled]
    forgotten: _Arguments = [f"c:{pattern} {since}" for pattern, since in change.forgotten]
    return opened, settled, deleted, list(change.unboxed), forgotten


def _letters(letters: Sequence[Letter]) -> dict[SessionName, _Arguments]:
    """The arguments that describe the letters, by session."""
    described: dict[SessionName, _Arguments] = {}
    for each in letters:
        words = described.setdefault(each.session, [])
        message = each.message
        if message is None:
            words += (each.id, each.code, each.reason, each.attempts, *_STORED)
        else:
            words += (message.id, each.code, each.reason, each.attempts)
            words += (message.channel, message.body, message.sender, message.qos, message.received)
    return described


@unless_refused
def _opened(answer: Any) -> Committed:
    return Committed([SessionName(name.decode()) for name in answer], [])


@unless_refused
def _committed(answer: Any) -> Committed:
    fenced, letters = answer
    return Committed([SessionName(name.decode()) for name in fenced], [each.decode() for each in letters])


@dataclass(frozen=True, slots=True)
class Left:
    """What became of the messages of a session that has left the store."""

    letters: list[str]
    """The dead ids of the letters in their order, less those of messages that have not died; and then those of what had not
    reached the owner."""
    returned: list[LogId]
    """What went back to the shared queue that it came from, or is open for other sessions of the subject, or settled by one."""
    lapsed: list[LogId]
    """What could not go back and has no letter, or came from a group that has no members any more."""


def end(
    k: Keys,
    token: str,
    name: SessionName,
    ended: Sequence[Ended],
    letters: Sequence[Letter],
    facts_max: int,
    letters_max: int,
    returning: Mapping[LogId, int] = _NOTHING_RETURNS,
    letters_max_bytes: int = 0,
) -> Step[Left]:
    """Take a session out of the store, the second step of its end: to be done when a commit has passed what `close` answered.
    What is still open for it ends as `ended` and `letters` say. Its memberships of groups end; with the last member goes what
    waits for the group. Repeated, it changes nothing and tells nothing. Raises Fenced if another server owns the session.

    `returning` are messages of the inbox that came from shared queues, and how often each may have been sent: they go back
    there. A subject's message that another of its sessions has open, or has settled, ends without a letter, as one that went
    back. The facts tell this by themselves: what `ended` says of these messages is left out.
    """
    facts = ends(_less(ended, returning), letters).get(name, [])
    described = _letters(letters).get(name, [])
    back = [text for log_id, attempts in returning.items() for text in (log_id, attempts)]
    subject = name.split("/")[1]
    keys = (k.session(name), k.inbox(name), k.own(token), k.subject(subject), k.log, k.dead, k.facts)
    counts = (letters_max_bytes, len(facts), len(returning))
    arguments = (k.base, token, name, facts_max, letters_max, *counts, *facts, *back, *described)
    return Step("end", keys, arguments, _left)


def _less(ended: Sequence[Ended], returning: Mapping[LogId, int]) -> Iterator[Ended]:
    for each in ended:
        ids = tuple(log_id for log_id in each.ids if log_id not in returning)
        if ids or not each.ids:
            yield each._replace(ids=ids)


@unless_refused
def _left(answer: Any) -> Left:
    letters, returned, lapsed = answer
    return Left(
        [each.decode() for each in letters],
        [LogId(int(each)) for each in returned],
        [LogId(int(each)) for each in lapsed],
    )
