"""The log consumer of a node: it takes entries strictly in order, and says in commits what has happened to them.

What it refuses to know: how entries are read, where bodies are, who is connected. `take` gets the sessions that receive an
entry by their subscriptions; it adds those that an index does not show: subscribes that are not answered yet, intervals that
have ended but are not passed, sessions that are ending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.fan_out_buffer import (
    MAX_PENDING_DELIVERIES,
    NO_RECIPIENTS,
    FanOutBuffer,
    FanOutRecord,
    SubscriberSet,
)
from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST
from crewel.delivery.pending_subscriptions import PendingSubscriptions
from crewel.delivery.records import (
    Change,
    Commit,
    Disposition,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
    Settled,
)

MAX_CHANGES: Final = 500
"""Sessions of which one commit tells something, if it can be divided: some milliseconds of the event loop."""
_MAX_OPENED: Final = 2000
"""Messages that one commit opens, if it can be divided: they take about the time of that many sessions."""
_MAX_APPLIED: Final = 10_000
"""Pending deliveries that one step applies: they take about the time of that many sessions."""

_Found = tuple[list[Change], list[Disposition], list[PendingDeadLetter]]
"""What a commit says of some sessions."""


class LogConsumer(PendingSubscriptions):
    """The sessions of one node, and how far it has read."""

    def __init__(self, cursor: LogId, last: LogId | None = None) -> None:
        """`last`: the newest entry that was there before the node. Who had its sessions then may have sent it."""
        super().__init__(cursor)
        self._inherited = cursor if last is None else last
        self.sessions: dict[SessionName, DurableSession] = {}
        self._committed = self._low_watermark = cursor
        self._number = 0
        self.max_changes, self.max_opened = MAX_CHANGES, _MAX_OPENED
        self.max_dead_letters = MAX_DEAD_LETTER_COST
        self.max_pending, self.max_applied = MAX_PENDING_DELIVERIES, _MAX_APPLIED
        self.has_more = False
        """Whether another commit should follow the last one at once."""
        # A commit that is divided: where the cursor will be, the sessions to be looked at before, and with the last part.
        self._target: LogId | None = None
        self._todo: deque[DurableSession] = deque()
        self._last: list[DurableSession] = []
        self._settled: tuple[Settled, ...] = ()  # goes into the commit that moves the cursor
        self._withholds = False  # whether the dead letters that it finds are stored later
        self._withholding: dict[DurableSession, None] = {}  # sessions with dead letters that are stored later
        self._dead_letters_are_next = False
        self.has_withheld_only = False
        """Whether the last commit has only dead letters that were withheld: what has ended since follows with a later one."""
        self._is_applying = False  # in steps
        self._discarded: list[Settled] = []  # of sessions that did not apply it: for the commit that moves the cursor
        self._dirty: dict[DurableSession, None] = {}
        # Sessions with something open, and their `low` when they were looked at last.
        self._first_needed: dict[DurableSession, LogId] = {}
        self._lagging: dict[DurableSession, None] = {}  # adopted sessions whose own cursor the store still has
        # Sessions whose end is on its way to the store, and what it needs.
        self._leaving: dict[DurableSession, LogId] = {}
        # Sessions for which something has ended beyond the cursor that is stored.
        self._uncommitted: dict[DurableSession, None] = {}
        self._expiring: dict[DurableSession, None] = {}  # sessions with something open that will go out of all queues

    # Sessions

    def add(self, durable: DurableSession) -> None:
        """The node owns this session. One that was adopted must come before anything beyond its `floor` is taken."""
        self.sessions[durable.name] = durable
        durable.attach(self.fan_out)
        if durable.was_adopted:
            self._lagging[durable] = None
            self._low_watermark = min(self._low_watermark, durable.floor)
        if durable.first_needed is not None:
            self._low_watermark = min(self._low_watermark, LogId(durable.first_needed - 1))
        if durable.closing or durable.ending is not None:
            self.closing[durable] = None
        self.touch(durable)

    def drop(self, durable: DurableSession) -> None:
        """The node has this session no more: it has ended in the store, or another node has taken it. Answers that are on
        their way to it hold nothing up."""
        durable.is_fenced = True
        durable.detach()
        if self.sessions.get(durable.name) is durable:
            del self.sessions[durable.name]
        self._leaving.pop(durable, None)
        self._pending.pop(durable, None)
        groups = (
            self._dirty,
            self._first_needed,
            self.closing,
            self._lagging,
            self._uncommitted,
            self._expiring,
            self._withholding,
        )
        for group in groups:
            group.pop(durable, None)

    def leave(self, durable: DurableSession) -> None:
        """The store is about to be asked to end this session: nothing of it is committed any more. What is open for it keeps
        the log until `drop` tells that the store has answered, for the dead letters are copied from there."""
        lows = [low for low in (durable.first_needed, self._first_needed.get(durable)) if low is not None]
        self.drop(durable)
        if lows:
            self._leaving[durable] = LogId(min(lows) - 1)

    def touch(self, durable: DurableSession) -> None:
        """Something about this session has changed: the next commit looks at it."""
        if not (durable.is_dirty or durable.is_fenced):
            durable.is_dirty = True
            self._dirty[durable] = None
        if durable.expiry and not durable.is_fenced:
            self._expiring[durable] = None

    @staticmethod
    def starting_cursor(records: Iterable[SessionRecord], last: LogId) -> LogId:
        """Where a node begins that adopts these sessions: at the lowest of their own cursors, so that it reads for all of
        them what is missing, once."""
        return min((record.at for record in records if record.at is not None), default=last)

    # Subscriptions

    def ending(self, durable: DurableSession, until: LogId) -> None:
        """The store has begun the end of this session: it receives nothing beyond this entry."""
        durable.ending = until
        self.fan_out.changes.note(durable)
        self.closing[durable] = None
        self.touch(durable)

    # Entries

    def spilled(self, durable: DurableSession, ids: Iterable[LogId]) -> None:
        """The store has copied these open messages into the session's inbox: the log may lose them."""
        durable.spilled(ids)
        self.touch(durable)

    def take(
        self, log_id: LogId, patterns: Collection[str], waiting: PendingMessage, receivers: Iterable[DurableSession]
    ) -> list[DurableSession]:
        """Take the next entry: it is open now for each session returned. `receivers` are the sessions that the index of
        subscriptions finds. An entry at or before the cursor was taken before, and no session gets it."""
        if log_id <= self.cursor:
            return []
        waiting = self._as_inherited(log_id, waiting)
        taken = self._open_for(receivers, log_id, patterns, waiting)
        if self.closing or self._pending:
            taken += self._take_hidden(log_id, patterns, waiting, set(taken))
        self.cursor = log_id
        return taken

    def take_in_steps(
        self,
        log_id: LogId,
        patterns: Collection[str],
        waiting: PendingMessage,
        receivers: Sequence[DurableSession],
        portion: int,
    ) -> Iterator[list[DurableSession]]:
        """Take the next entry for many receivers, so many at a step, which yields the sessions for which it has opened it. The
        last one moves the cursor. Between the steps no other entry is taken, and the store answers nothing else."""
        waiting = self._as_inherited(log_id, waiting)
        found: set[DurableSession] = set()
        for start in range(0, len(receivers) if log_id > self.cursor else 0, portion):
            chosen = [each for each in receivers[start : start + portion] if not each.is_fenced]
            taken = self._open_for(chosen, log_id, patterns, waiting)
            found.update(taken)
            yield taken
        if log_id > self.cursor:
            self.cursor = log_id
            yield self._take_hidden(log_id, patterns, waiting, found)

    def _as_inherited(self, log_id: LogId, waiting: PendingMessage) -> PendingMessage:
        return waiting._replace(attempts=1) if log_id <= self._inherited else waiting

    def _open_for(
        self, receivers: Iterable[DurableSession], log_id: LogId, patterns: Collection[str], waiting: PendingMessage
    ) -> list[DurableSession]:
        taken = []
        for durable in receivers:
            if durable.wants(patterns, log_id):
                durable.take(log_id, waiting)
                if not durable.is_dirty or waiting.expires:
                    self.touch(durable)
                taken.append(durable)
        return taken

    @property
    def is_stable(self) -> bool:
        """Whether all subscribes and unsubscribes are answered: no commit stops before what is taken now."""
        return not self._pending

    def receives_all(self, durable: DurableSession, patterns: Collection[str]) -> bool:
        """Whether the session, which the index of subscriptions finds for these patterns, receives all that is taken from now
        on, until `fan_out.changes` has it."""
        return durable.receives_all(patterns, self.cursor)

    def take_for(self, subscribers: SubscriberSet, log_id: LogId, waiting: PendingMessage) -> FanOutRecord | None:
        """Take the next entry, which never expires, at the cost of one for all: it is open now for all of these. None if it
        was taken before. Only while this `is_stable`; and while there are sessions in `closing`, `take_closing` follows."""
        if log_id <= self.cursor:
            return None
        if self.fan_out.deliveries >= self.max_pending:
            self._apply_pending(self.fan_out.sessions())
            self.fan_out.clear()
        self.cursor = log_id
        if log_id <= self._inherited:
            waiting = waiting._replace(attempts=1)
        return self.fan_out.take(log_id, waiting, subscribers) if subscribers.sessions else NO_RECIPIENTS

    def take_closing(
        self, subscribers: SubscriberSet, log_id: LogId, patterns: Collection[str], waiting: PendingMessage
    ) -> list[DurableSession]:
        """Open the entry, which `take_for` has just taken, also for sessions that the index does not show."""
        return self._take_hidden(log_id, patterns, self._as_inherited(log_id, waiting), subscribers.sessions.keys())

    def acknowledged(self, durable: DurableSession, log_id: LogId, record: FanOutRecord | None) -> None:
        """The client of a session has acknowledged a message, with its fan-out record if it has one. The next commit looks at
        each session that has applied something since the last one, and at others only if they are touched."""
        if record is not None and durable.upto < record.number:
            record.unacknowledged.discard(durable)  # the session has not applied it: this suffices
        else:
            durable.acknowledged.append(log_id)
            if durable.needs_touch:
                self.touch(durable)

    def _apply_pending(self, durables: Iterable[DurableSession]) -> None:
        upto = self.fan_out.upto
        for durable in durables:
            if durable.upto != upto or durable.acknowledged or not durable.is_dirty:
                durable.apply_pending()
                self.touch(durable)

    def apply_in_steps(self) -> Iterator[None]:
        """Apply what is recorded by now to the sessions that need it, a few at a step, so that the next commit has little to
        apply at once. Anything may happen between the steps; a commit ends them, for it applies all. While others are under
        way, these are none."""
        if self._is_applying:
            return
        self._is_applying = True
        try:
            yield from self._apply_portions(self.fan_out, self.fan_out.upto)
        finally:
            self._is_applying = False

    def _apply_portions(self, fan_out: FanOutBuffer, upto: int) -> Iterator[None]:
        portion = max(1, self.max_applied // (1 + len(fan_out.records)))
        applied: dict[DurableSession, None] = {}
        for sessions in (*(record.unacknowledged for record in fan_out.records), fan_out.applied):
            durables = list(sessions)
            for start in range(0, len(durables), portion):
                if not fan_out.records or fan_out.records[0].number > upto:
                    return
                chosen = [each for each in durables[start : start + portion] if not each.is_fenced]
                self._apply_pending(chosen)
                applied.update(dict.fromkeys(chosen))
                if fan_out.upto == upto:  # else they have applied something that is still recorded
                    for each in chosen:
                        fan_out.applied.pop(each, None)
                yield
        self._discarded += fan_out.discard(upto, applied.keys())

    def _bulk_acknowledgements(self) -> tuple[Settled, ...]:
        """Apply what is recorded to the sessions that have more to commit. Returns what all other sessions have settled, which
        need not apply it."""
        settled, self._discarded = self._discarded, []
        others = self.fan_out.sessions_to_apply()
        if self.fan_out.records:
            others |= self._dirty
        self._apply_pending(others)
        settled += self.fan_out.discard(self.fan_out.upto, others.keys())
        self.fan_out.clear()
        return tuple(settled)

    def skip(self, log_id: LogId) -> None:
        """This id was given, and nothing lies there in the log."""
        self.cursor = max(self.cursor, log_id)

    def expiring(self, now: int) -> list[DurableSession]:
        """The sessions that may have something open which has to go out of all queues by now, microseconds since 1970."""
        over = [durable for durable in self._expiring if durable.expiry <= now]
        for durable in over:
            if not durable.expiry:
                del self._expiring[durable]
        return [durable for durable in over if durable.expiry]

    # Commits

    def commit(self) -> Commit | None:
        """The next commit; None if there is nothing to say. It must be applied before the next one is asked for: repeat it
        while its outcome is unknown, and when it is applied, call `committed`.

        A large one is divided. Where the cursor is to be is fixed first; then some parts tell what is open up to there, and
        what is at hand otherwise, and the last one moves the cursor. Many dead letters are withheld, and follow in turn with
        all else, so that neither waits for long."""
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
        while not self._is_small(self._todo):
            commit = self._part()
            if commit is not None:
                return commit
        return self._last_part()

    def _begin(self) -> bool:
        """Fix where the cursor is to be, and the sessions to be looked at before. False: there is nothing to say."""
        cursor = min([self.cursor, *(each.cursor for group in self._pending.values() for each in group)])
        if cursor > self._committed:
            for durable in self._uncommitted:
                self.touch(durable)
        self._settled = self._bulk_acknowledgements()
        found = self._dirty
        found.update(dict.fromkeys(self._in_step(cursor)))
        if cursor == self._committed and not found:
            return False
        self._target = cursor
        self._todo.extend(found)
        self._dirty = {}
        costs = (each.dead_letters.cost for each in found if each.dead_letters is not None)
        self._withholds = bool(self._withholding) or len(found) > self.max_changes or sum(costs) > self.max_dead_letters
        return True

    def _in_step(self, cursor: LogId) -> Iterable[DurableSession]:
        """Sessions of which a commit has more to say than they know, when the cursor is there."""
        yield from (durable for durable in self._lagging if cursor >= durable.floor)
        yield from (durable for durable in self.closing if _has_passed(durable, self._committed))

    def _is_small(self, durables: Collection[DurableSession]) -> bool:
        """Whether one commit has room for what there is to say of these sessions."""
        return len(durables) <= self.max_changes and sum(each.news for each in durables) <= self.max_opened

    def _part(self) -> Commit | None:
        """The next part, which moves no cursor: so it may be the last one that the store ever gets."""
        chosen: list[DurableSession] = []
        news = 0
        while self._todo and len(chosen) < self.max_changes and news < self.max_opened:
            durable = self._todo.popleft()
            if durable.ending is not None:
                self._last.append(durable)
            else:
                news += durable.news
                chosen.append(durable)
        return self._commit_of(self._committed, self._low_watermark, *self._changes(self._committed, chosen))

    def _last_part(self) -> Commit | None:
        """The part that moves the cursor. What was taken since the first part is left to the next commit, so that this is no
        longer than it was then."""
        assert self._target is not None
        cursor, self._target = self._target, None
        looked_at = dict.fromkeys([*self._todo, *self._last, *self._in_step(cursor)])
        if cursor > self._committed:
            looked_at |= self._uncommitted  # also of the parts before
        self._todo.clear()
        self._last = []
        found = self._changes(cursor, looked_at)
        low = min([cursor, *self._low_watermarks()])
        settled, self._settled = self._settled, ()
        is_news = settled or (cursor, low) != (self._committed, self._low_watermark)
        is_ending = any(durable.ending is not None for durable in looked_at)  # it is passed by this
        self._low_watermark = low
        return self._commit_of(cursor, low, *found, settled, is_news=bool(is_news or is_ending))

    def _withheld_dead_letters(self) -> Commit | None:
        """The next of the withheld dead letters: their messages are open for the store, and the cursor has passed them."""
        found: _Found = [], [], []
        room = self.max_dead_letters
        for durable in list(islice(self._withholding, self.max_changes)):
            assert durable.dead_letters is not None
            pending = durable.dead_letters
            changes, ended, letters = self._changes(self._committed, [durable], room)
            found[0].extend(changes)
            found[1].extend(ended)
            found[2].extend(letters)
            room -= pending.spent
            if room <= 0:
                break
        if not self._withholding:
            self._low_watermark = min([self._committed, *self._low_watermarks()])
        return self._commit_of(self._committed, self._low_watermark, *found)

    def _commit_of(
        self,
        cursor: LogId,
        low: LogId,
        changes: list[Change],
        ended: list[Disposition],
        letters: list[PendingDeadLetter],
        settled: tuple[Settled, ...] = (),
        *,
        is_news: bool = False,
    ) -> Commit | None:
        if not (is_news or changes or ended or letters):
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
            how, dead = durable.take_ended(durable.through(cursor), released)
            ended += how
            letters += dead
            change = durable.take_change(cursor, self._committed)
            if change is not None:
                changes.append(change)
            self._regroup(durable)
        return changes, ended, letters

    def _regroup(self, durable: DurableSession) -> None:
        durable.needs_touch = bool(durable.applied or durable.applied_inbox)
        low = durable.first_needed
        if low is not None:
            self._first_needed[durable] = low
        elif durable in self._first_needed:
            del self._first_needed[durable]
        if self._lagging and not durable.was_adopted:
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
        # As they were looked at: what has ended since then is open for the store until a later commit says otherwise.
        if self._first_needed:
            yield LogId(min(self._first_needed.values()) - 1)
        for durable in self._lagging:
            yield durable.floor
        yield from self._leaving.values()

    def committed(self, commit: Commit) -> list[DurableSession]:
        """The store has applied the commit. Returns the sessions that are ending and have been passed: `end` may take
        them out of the store."""
        self._committed = commit.cursor
        passed = [each for each in self.closing if each.ending is not None and each.ending <= commit.cursor]
        return [each for each in passed if not each.withholds]  # the others end with the last of their dead letters


def _has_passed(durable: DurableSession, committed: LogId) -> bool:
    return any(until <= committed for _, _, until in durable.closing)
