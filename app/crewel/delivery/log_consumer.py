"""The log consumer of a node: it takes entries strictly in order, and says in commits what has happened to them.

What it refuses to know: how entries are read, where bodies are, who is connected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Final

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.log_entries import LogEntries
from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST, Payers
from crewel.delivery.records import (
    Change,
    Commit,
    Disposition,
    LogId,
    PendingDeadLetter,
    SessionName,
    SessionRecord,
    Settled,
)

MAX_CHANGES: Final = 500
"""Changed sessions in one part of a divided commit: some milliseconds of the event loop."""
_MAX_OPENED: Final = 2000
"""Newly pending messages in one part of a divided commit: they take about as long as `MAX_CHANGES` sessions."""

_Found = tuple[list[Change], list[Disposition], list[PendingDeadLetter]]
"""What a commit reports of some sessions."""


class LogConsumer(LogEntries):
    """The sessions of one node, and how far it has read.

    Inherited: `cursor` (the last entry that was taken), `fan_out` (entries taken for many sessions at once),
    `closing` (sessions that the index of subscriptions may not find), `_requests` (subscribes that the store has not answered).
    """

    def __init__(self, cursor: LogId, last: LogId | None = None) -> None:
        """`last`: the newest entry that was there before the node. The former owner of its sessions may have sent it."""
        super().__init__(cursor, last)
        self.sessions: dict[SessionName, DurableSession] = {}
        self._first_needed: dict[DurableSession, LogId] = {}
        """Sessions with something pending, and the first entry that each needed when a commit looked at it last."""
        self._outside_log: dict[DurableSession, None] = {}  # with messages in the inbox, or notices, when that was
        self._lagging: dict[DurableSession, None] = {}  # adopted sessions whose own cursor the store still has
        self._leaving: dict[DurableSession, LogId] = {}  # whose end is on its way to the store: where they need the log
        self._uncommitted: dict[DurableSession, None] = {}  # those with ends beyond the cursor that is stored
        self._withholding: dict[DurableSession, None] = {}  # sessions with dead letters that are stored later
        self._served: set[Payers] = set()  # the accounts that have had their turn of those

        # Commits
        self.max_changes, self.max_opened = MAX_CHANGES, _MAX_OPENED
        self.max_dead_letters = MAX_DEAD_LETTER_COST
        self._committed = self._low_watermark = cursor
        """The cursor that the store has, and the last entry before it that no session needs."""
        self._number = 0  # of the last commit
        self.has_more = False  # whether another commit should follow the last one at once
        self.has_withheld_only = False
        """Whether the last commit has only dead letters that were withheld, and none of what has ended since."""
        self._dead_letters_are_next = False
        self._settled: tuple[Settled, ...] = ()  # bulk acknowledgements, for the commit that moves the cursor

        # A commit that is divided
        self._target: LogId | None = None  # where the last part will move the cursor; None: no commit is divided
        self._todo: deque[DurableSession] = deque()  # sessions whose changes go into the parts before that
        self._tells_end = False  # whether one of its sessions is ending
        self._withholds = False  # whether the dead letters of these sessions are stored later

    # Sessions

    def add(self, durable: DurableSession) -> None:
        """The node owns this session. One that was adopted must come before anything beyond its `own_cursor` is taken."""
        self.sessions[durable.name] = durable
        durable.attach(self.fan_out)
        if durable.has_own_cursor:
            self._lagging[durable] = None
            self._low_watermark = min(self._low_watermark, durable.own_cursor)
        if durable.first_needed is not None:
            self._low_watermark = min(self._low_watermark, LogId(durable.first_needed - 1))
        if durable.closing or durable.ending is not None:
            self.closing[durable] = None
        self.mark_dirty(durable)

    def drop(self, durable: DurableSession) -> None:
        """The session has ended in the store, or another node has taken it. Its requests under way are forgotten."""
        durable.is_fenced = True
        durable.detach()
        if self.sessions.get(durable.name) is durable:
            del self.sessions[durable.name]
        self._leaving.pop(durable, None)
        self._requests.pop(durable, None)
        groups = (
            self._dirty,
            self._first_needed,
            self._outside_log,
            self.closing,
            self._lagging,
            self._uncommitted,
            self._expiring,
            self._withholding,
        )
        for group in groups:
            group.pop(durable, None)

    def leave(self, durable: DurableSession) -> None:
        """The store is about to be asked to end this session: nothing of it is committed any more. What is pending for it keeps
        the log until `drop` tells that the store has answered, for the dead letters are copied from there."""
        lows = [low for low in (durable.first_needed, self._first_needed.get(durable)) if low is not None]
        self.drop(durable)
        if lows:
            self._leaving[durable] = LogId(min(lows) - 1)

    def holders(self, log_id: LogId) -> Iterator[DurableSession]:
        """The sessions that may have this message pending, some of them twice: each that had it when the first was asked for,
        and others that only `find` tells apart. Of most sessions the last commit knows that they need nothing so old. Other
        work may be done between two of them."""
        needing, others = list(self._first_needed), list(self._outside_log)
        for changed in (self._dirty, self._todo, self.fan_out.applied):
            others += changed
        for record in self.fan_out.records:
            if record.id == log_id:
                others += record.unacknowledged
        first_needed = self._first_needed
        yield from (durable for durable in needing if first_needed.get(durable, log_id) <= log_id)
        yield from others

    @staticmethod
    def starting_cursor(records: Iterable[SessionRecord], last: LogId) -> LogId:
        """Where a node begins that adopts these sessions: at the lowest of their own cursors, so that it reads for all of
        them what is missing, once."""
        return min((record.own_cursor for record in records if record.own_cursor is not None), default=last)

    # Subscriptions

    def ending(self, durable: DurableSession, until: LogId) -> None:
        """The store has begun the end of this session: it receives nothing beyond this entry."""
        durable.ending = until
        self.fan_out.changes.note(durable)
        self.closing[durable] = None
        self.mark_dirty(durable)

    # Commits

    def commit(self) -> Commit | None:
        """The next commit; None if there is nothing to say, or, if it `is_divided`, in a part of it: then ask again. It must
        be applied before the next one is asked for: repeat it while its outcome is unknown, and then call `committed`.

        A large one is divided. Where the cursor is to be is fixed first; then some parts tell what is pending up to there, and
        what is at hand otherwise, and the last one moves the cursor. Many dead letters are withheld, and follow in turn with
        all else, so that neither waits for long. There can be other work between two parts."""
        self.has_more, self.has_withheld_only = True, False
        if self._dead_letters_are_next and self._target is None:
            self._dead_letters_are_next = False
            commit = self._withheld_dead_letters()
            if commit is not None:
                self.has_withheld_only = True
                return commit
        commit = self._next_part()
        if self._target is None:
            if commit is None:
                commit = self._withheld_dead_letters()
            else:
                self._dead_letters_are_next = bool(self._withholding)
            self.has_more = bool(self._withholding) and commit is not None
        return commit

    @property
    def is_divided(self) -> bool:
        """Whether some parts of a commit are made, and others not: what ends now is not in these."""
        return self._target is not None

    def _next_part(self) -> Commit | None:
        if self._target is None and not self._begin():
            return None
        return self._last_part() if self._is_small(self._todo) else self._part()

    def _begin(self) -> bool:
        """Fix where the cursor is to be, and the sessions to be looked at before. False: there is nothing to say."""
        cursor = min([self.cursor, *(each.cursor for group in self._requests.values() for each in group)])
        if cursor > self._committed:
            for durable in self._uncommitted:
                self.mark_dirty(durable)
        self._settled = self._bulk_acknowledgements()
        found = self._dirty
        found.update(dict.fromkeys(self._changed_by_cursor(cursor)))
        if cursor == self._committed and not found:
            return False
        self._target = cursor
        self._todo.extend(found)
        self._dirty = {}
        costs = (each.dead_letters.cost for each in found if each.dead_letters is not None)
        self._withholds = bool(self._withholding) or len(found) > self.max_changes or sum(costs) > self.max_dead_letters
        return True

    def _changed_by_cursor(self, cursor: LogId) -> Iterable[DurableSession]:
        """Sessions of which a commit has more to say than they know, when the cursor is there."""
        yield from (durable for durable in self._lagging if cursor >= durable.own_cursor)
        yield from (durable for durable in self.closing if _has_passed(durable, self._committed))

    def _is_small(self, durables: Collection[DurableSession]) -> bool:
        """Whether one commit has room for what there is to say of these sessions."""
        return len(durables) <= self.max_changes and sum(each.change_size for each in durables) <= self.max_opened

    def _part(self) -> Commit | None:
        """The next part, which moves no cursor: so it may be the last one that the store ever gets."""
        chosen: list[DurableSession] = []
        size = 0
        while self._todo and len(chosen) < self.max_changes and size < self.max_opened:
            durable = self._todo.popleft()
            self._tells_end = self._tells_end or durable.ending is not None
            size += durable.change_size
            chosen.append(durable)
        return self._commit_of(self._committed, self._low_watermark, *self._changes(self._committed, chosen))

    def _last_part(self) -> Commit | None:
        """The part that moves the cursor. What was taken since the first part is left to the next commit, so that this is no
        longer than it was then."""
        assert self._target is not None
        cursor, self._target = self._target, None
        looked_at = dict.fromkeys([*self._todo, *self._changed_by_cursor(cursor)])
        if cursor > self._committed:
            looked_at |= self._uncommitted  # also of the parts before
        self._todo.clear()
        found = self._changes(cursor, looked_at)
        low = min([cursor, *self._low_watermarks()])
        settled, self._settled = self._settled, ()
        # A session that is ending is passed by this, also if one of the parts had what there is to say of it.
        must_tell = settled or (cursor, low) != (self._committed, self._low_watermark)
        is_ending, self._tells_end = self._tells_end or any(each.ending is not None for each in looked_at), False
        self._low_watermark = low
        return self._commit_of(cursor, low, *found, settled, must_tell=bool(must_tell or is_ending))

    def _withheld_dead_letters(self) -> Commit | None:
        """The next of the withheld dead letters: their messages are pending for the store, and the cursor has passed them."""
        found: _Found = [], [], []
        room = self.max_dead_letters
        for durable in self._next_withholding():
            assert durable.dead_letters is not None
            pending = durable.dead_letters
            changes, ended, letters = self._changes(self._committed, [durable], room)
            found[0].extend(changes)
            found[1].extend(ended)
            found[2].extend(letters)
            room -= pending.spent
            if durable in self._withholding:
                self._withholding[durable] = self._withholding.pop(durable)  # another of its account is next
            if room <= 0:
                break
        if not self._withholding:
            self._low_watermark = min([self._committed, *self._low_watermarks()])
        return self._commit_of(self._committed, self._low_watermark, *found)

    def _next_withholding(self) -> list[DurableSession]:
        """Sessions with withheld dead letters, first those of the account whose turn it is: each commit is another one's."""
        by_payers: dict[Payers, list[DurableSession]] = {}
        for durable in self._withholding:
            by_payers.setdefault(durable.payers, []).append(durable)
        payers = next((each for each in by_payers if each not in self._served), None)
        if payers is None:
            self._served.clear()
            payers = next(iter(by_payers), ())
        self._served.add(payers)
        chosen = [*by_payers.pop(payers, ()), *chain.from_iterable(by_payers.values())]
        return chosen[: self.max_changes]

    def _commit_of(
        self,
        cursor: LogId,
        low: LogId,
        changes: list[Change],
        ended: list[Disposition],
        letters: list[PendingDeadLetter],
        settled: tuple[Settled, ...] = (),
        *,
        must_tell: bool = False,
    ) -> Commit | None:
        if not (must_tell or changes or ended or letters):
            return None
        self._number += 1
        return Commit(self._number, cursor, low, tuple(changes), tuple(ended), tuple(letters), settled)

    def _changes(self, cursor: LogId, durables: Iterable[DurableSession], released: int = 0) -> _Found:
        """What the store has to learn of these sessions. `released`: what withheld dead letters may cost that go with it."""
        changes, ended, letters = [], [], []
        for durable in durables:
            if durable.is_fenced:
                continue  # it has gone since it was chosen
            durable.is_dirty = False
            self._dirty.pop(durable, None)
            if self._withholds and durable.dead_letters is not None:
                durable.dead_letters.withhold()
            how, dead = durable.take_ended(durable.last_reportable(cursor), released)
            ended += how
            letters += dead
            change = durable.take_change(cursor, self._committed)
            if change is not None:
                changes.append(change)
            self._regroup(durable)
        return changes, ended, letters

    def _regroup(self, durable: DurableSession) -> None:
        durable.dirty_on_acknowledge = bool(durable.applied or durable.applied_inbox)
        low = durable.first_needed
        if low is not None:
            self._first_needed[durable] = low
        elif durable in self._first_needed:
            del self._first_needed[durable]
        if durable.applied_inbox or durable.notices:
            self._outside_log[durable] = None
        elif self._outside_log:
            self._outside_log.pop(durable, None)
        if self._lagging and not durable.has_own_cursor:
            self._lagging.pop(durable, None)
        if self.closing and not durable.closing and durable.ending is None:
            self.closing.pop(durable, None)
        if durable.has_uncommitted_ends:
            self._uncommitted[durable] = None
        elif self._uncommitted:
            self._uncommitted.pop(durable, None)
        if durable.withholds:
            self._withholding[durable] = None
        elif self._withholding:
            self._withholding.pop(durable, None)

    def _low_watermarks(self) -> Iterable[LogId]:
        """The places in the log that sessions still need, each less one."""
        # As they were looked at: what has ended since then is pending for the store until a later commit says otherwise.
        if self._first_needed:
            yield LogId(min(self._first_needed.values()) - 1)
        for durable in self._lagging:
            yield durable.own_cursor
        yield from self._leaving.values()

    def committed(self, commit: Commit) -> list[DurableSession]:
        """The store has applied the commit. Returns the sessions that are ending and have been passed: `end` may take
        them out of the store."""
        self._committed = commit.cursor
        passed = [each for each in self.closing if each.ending is not None and each.ending <= commit.cursor]
        return [each for each in passed if not each.withholds]  # the others end with the last of their dead letters


def _has_passed(durable: DurableSession, committed: LogId) -> bool:
    return any(until <= committed for _, _, until in durable.closing)
