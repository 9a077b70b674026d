"""The log consumer of a node: it takes entries strictly in order, and says in commits what has happened to them.

`take` gets the sessions that receive an entry by their subscriptions. It adds those that an index does not show: subscribes
that are not answered yet, intervals that have ended but are not passed, sessions that are ending.

What it refuses to know: how entries are read, where bodies are, who is connected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from operator import itemgetter
from typing import Final

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.fan_out_buffer import (
    MAX_PENDING_DELIVERIES,
    NO_RECIPIENTS,
    FanOutBuffer,
    FanOutRecord,
    SubscriberSet,
)
from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST, Payers
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
from crewel.delivery.subscription_request import Interval, SubscriptionRequest

MAX_CHANGES: Final = 500
"""Changed sessions in one part of a divided commit: some milliseconds of the event loop."""
_MAX_OPENED: Final = 2000
"""Newly pending messages in one part of a divided commit: they take about as long as `MAX_CHANGES` sessions."""
_MAX_APPLIED: Final = 10_000
"""Pending deliveries that are applied in one step: they take about as long as the changes of 500 sessions in a commit."""

_Found = tuple[list[Change], list[Disposition], list[PendingDeadLetter]]
"""What a commit reports of some sessions."""


class LogConsumer:
    """The sessions of one node, and how far it has read."""

    def __init__(self, last: LogId) -> None:
        """`last`: the newest entry that was there before the node. The former owner of its sessions may have sent it."""
        self.cursor = last
        """The last entry that was taken."""
        self.fan_out: FanOutBuffer[DurableSession] = FanOutBuffer()
        """What was taken for many at once since the last commit."""
        self._requests: dict[
            DurableSession, list[SubscriptionRequest]
        ] = {}  # in the order in which the store was asked
        self.closing: dict[DurableSession, None] = {}
        """Sessions with intervals that the index of subscriptions does not show."""
        self._inherited = last  # entries up to here may have been sent before
        self._dirty: dict[DurableSession, None] = {}  # sessions that the next commit looks at
        self._expiring: dict[DurableSession, None] = {}  # those with pending messages that expire
        self.max_pending, self.max_applied = MAX_PENDING_DELIVERIES, _MAX_APPLIED
        self._applying: Iterator[None] | None = None  # the steps of `apply_in_steps` that are under way
        self._discarded: list[Settled] = []  # bulk acknowledgements of records that were applied in steps
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
        self._committed = self._low_watermark = last
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

    def begin_at(self, cursor: LogId, stored: LogId | None = None) -> None:
        """Read from here on: no session that was added is further behind. Must come before anything is taken. `stored`: the
        cursor that the store has, if that is not the newest entry any more; nothing is committed before it is reached."""
        self.cursor = cursor
        self._committed = self._committed if stored is None else stored
        self._low_watermark = min(self._low_watermark, cursor)

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
        if durable.may_have_changes or durable.ending is not None:
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

    # Entries of the log

    def mark_dirty(self, durable: DurableSession) -> None:
        """Something about this session has changed: the next commit looks at it."""
        if not (durable.is_dirty or durable.is_fenced):
            durable.is_dirty = True
            self._dirty[durable] = None
        if durable.expiry and not durable.is_fenced:
            self._expiring[durable] = None

    def spilled(self, durable: DurableSession, ids: Iterable[LogId]) -> None:
        """The store has copied these pending messages into the session's inbox: the log may lose them."""
        durable.spilled(ids)
        self.mark_dirty(durable)

    def take(
        self, log_id: LogId, patterns: Collection[str], message: PendingMessage, receivers: Iterable[DurableSession]
    ) -> list[DurableSession]:
        """Take the next entry: it is pending now for each session returned. `receivers` are the sessions that the index of
        subscriptions finds. An entry at or before the cursor was taken before, and no session gets it."""
        if log_id <= self.cursor:
            return []
        message = self._as_inherited(log_id, message)
        taken = self._open_for(receivers, log_id, patterns, message)
        if self.closing or self._requests:
            taken += self._take_hidden(log_id, patterns, message, set(taken))
        self.cursor = log_id
        return taken

    def take_in_steps(
        self,
        log_id: LogId,
        patterns: Collection[str],
        message: PendingMessage,
        receivers: Sequence[DurableSession],
        portion: int,
    ) -> Iterator[list[DurableSession]]:
        """Take the next entry for many receivers, so many at a step, which yields the sessions for which it has opened it. The
        last one moves the cursor. Between the steps no other entry is taken, and the store answers nothing else."""
        message = self._as_inherited(log_id, message)
        found: set[DurableSession] = set()
        for start in range(0, len(receivers) if log_id > self.cursor else 0, portion):
            chosen = [each for each in receivers[start : start + portion] if not each.is_fenced]
            taken = self._open_for(chosen, log_id, patterns, message)
            found.update(taken)
            yield taken
        if log_id > self.cursor:
            self.cursor = log_id
            yield self._take_hidden(log_id, patterns, message, found)

    def _as_inherited(self, log_id: LogId, message: PendingMessage) -> PendingMessage:
        return message._replace(attempts=1) if log_id <= self._inherited else message

    def _open_for(
        self, receivers: Iterable[DurableSession], log_id: LogId, patterns: Collection[str], message: PendingMessage
    ) -> list[DurableSession]:
        taken = []
        for durable in receivers:
            if durable.wants(patterns, log_id):
                durable.take(log_id, message)
                if not durable.is_dirty or message.expires:
                    self.mark_dirty(durable)
                taken.append(durable)
        return taken

    @property
    def is_stable(self) -> bool:
        """Whether all subscribes and unsubscribes are answered: no commit stops before what is taken now."""
        return not self._requests

    def receives_all(self, durable: DurableSession, patterns: Collection[str]) -> bool:
        """Whether the session, which the index of subscriptions finds for these patterns, receives all that is taken from now
        on, until `fan_out.changes` has it."""
        return durable.receives_all(patterns, self.cursor)

    def take_for(
        self, subscribers: SubscriberSet[DurableSession], log_id: LogId, message: PendingMessage
    ) -> FanOutRecord[DurableSession] | None:
        """Take the next entry, which never expires, at the cost of one for all: it is pending now for all of these. None if it
        was taken before. Only while this `is_stable`; and while there are sessions in `closing`, `take_closing` follows."""
        if log_id <= self.cursor:
            return None
        if self.fan_out.deliveries >= self.max_pending:
            self._apply_pending(self.fan_out.sessions())
            self.fan_out.clear()
        self.cursor = log_id
        if log_id <= self._inherited:
            message = message._replace(attempts=1)
        return self.fan_out.take(log_id, message, subscribers) if subscribers.sessions else NO_RECIPIENTS

    def take_closing(
        self,
        subscribers: SubscriberSet[DurableSession],
        log_id: LogId,
        patterns: Collection[str],
        message: PendingMessage,
    ) -> list[DurableSession]:
        """Open the entry, which `take_for` has just taken, also for sessions that the index does not show."""
        return self._take_hidden(log_id, patterns, self._as_inherited(log_id, message), subscribers.sessions.keys())

    def acknowledged(self, durable: DurableSession, log_id: LogId, record: FanOutRecord[DurableSession] | None) -> None:
        """The client of a session has acknowledged a message, with its fan-out record if it has one. The next commit looks at
        each session that has applied something since the last one, and at others only if they are touched."""
        if record is not None and durable.applied_number < record.number:
            record.unacknowledged.discard(durable)  # the session has not applied it: this suffices
        else:
            durable.acknowledged.append(log_id)
            if durable.dirty_on_acknowledge:
                self.mark_dirty(durable)

    def _apply_pending(self, durables: Iterable[DurableSession]) -> None:
        number = self.fan_out.last_number
        for durable in durables:
            if durable.applied_number != number or durable.acknowledged or not durable.is_dirty:
                durable.apply_pending()
                self.mark_dirty(durable)

    def apply_in_steps(self) -> Iterator[None]:
        """Apply what is recorded by now to the sessions that need it, a few at a step, so that the next commit has little to
        apply at once. Anything may happen between the steps; a commit ends them, for it applies all. Where others are under
        way, these are the rest of them."""
        if self._applying is None:
            self._applying = self._apply_portions(self.fan_out, self.fan_out.last_number)
        steps = self._applying
        for _ in steps:
            yield
        if self._applying is steps:
            self._applying = None

    def _apply_portions(self, fan_out: FanOutBuffer[DurableSession], number: int) -> Iterator[None]:
        portion = max(1, self.max_applied // (1 + len(fan_out.records)))
        applied: dict[DurableSession, None] = {}
        for sessions in (*(record.unacknowledged for record in fan_out.records), fan_out.applied):
            durables = list(sessions)
            for start in range(0, len(durables), portion):
                if not fan_out.records or fan_out.records[0].number > number:
                    return
                chosen = [each for each in durables[start : start + portion] if not each.is_fenced]
                self._apply_pending(chosen)
                applied.update(dict.fromkeys(chosen))
                if fan_out.last_number == number:  # else they have applied something that is still recorded
                    for each in chosen:
                        fan_out.applied.pop(each, None)
                yield
        self._discarded += fan_out.discard(number, applied.keys())

    def _bulk_acknowledgements(self) -> tuple[Settled, ...]:
        """Apply what is recorded to the sessions that have more to commit. Returns what all other sessions have settled, which
        need not apply it."""
        settled, self._discarded = self._discarded, []
        others = self.fan_out.sessions_to_apply()
        if self.fan_out.records:
            others |= self._dirty
        self._apply_pending(others)
        settled += self.fan_out.discard(self.fan_out.last_number, others.keys())
        self.fan_out.clear()
        return tuple(settled)

    def skip(self, log_id: LogId) -> None:
        """This id was given, and nothing lies there in the log."""
        self.cursor = max(self.cursor, log_id)

    def expiring(self, now: int) -> list[DurableSession]:
        """The sessions that may have something pending which has to go out of all queues by now, microseconds since 1970."""
        over = [durable for durable in self._expiring if durable.expiry <= now]
        for durable in over:
            if not durable.expiry:
                del self._expiring[durable]
        return [durable for durable in over if durable.expiry]

    # Subscriptions. Of those whose answers are on their way is kept what the store was asked, and what was taken meanwhile.

    def ending(self, durable: DurableSession, until: LogId) -> None:
        """The store has begun the end of this session: it receives nothing beyond this entry."""
        durable.ending = until
        self.fan_out.changes.note(durable)
        self.closing[durable] = None
        self.mark_dirty(durable)

    def subscribing(self, durable: DurableSession, patterns: Collection[str]) -> SubscriptionRequest:
        """The store is about to be asked for these subscriptions."""
        request = SubscriptionRequest(durable, patterns, self.cursor)
        self.fan_out.changes.note(durable)
        self._requests.setdefault(durable, []).append(request)
        return request

    def unsubscribing(self, durable: DurableSession, patterns: Collection[str]) -> SubscriptionRequest:
        """The store is about to be asked to end these subscriptions, also such that it was asked for just now."""
        request = self.subscribing(durable, patterns)
        request.ends = True
        request.since = {each: durable.since.pop(each) for each in patterns if each in durable.since}
        return request

    def patterns(self, durable: DurableSession) -> list[str]:
        """What the session is subscribed to, or may be when all answers are there."""
        asked = [each for request in self._requests.get(durable, ()) for each in request.patterns]
        return list(dict.fromkeys([*durable.since, *asked]))

    def answered(self, request: SubscriptionRequest, intervals: Mapping[str, Interval]) -> list[LogId]:
        """The store has answered: pattern -> (from, until); `until` None: the subscription holds. What it refused is not
        named. Returns the entries that were taken meanwhile and that the session missed, oldest first; they are pending
        now. Answers about one pattern of a session must come in the order in which the store was asked."""
        durable = request.durable
        self._done(request)
        if durable.is_fenced:
            return []
        self.fan_out.changes.note(durable)
        durable.apply_pending()
        for pattern, (since, until) in intervals.items():
            if until is not None:
                durable.unsubscribed(pattern, since, until)
                self.closing[durable] = None
            elif not self._ends_soon(request, pattern, since):
                durable.subscribed(pattern, since)
        missed = []
        for log_id, patterns, message in request.seen:
            if durable.wants(patterns, log_id):
                durable.take(log_id, message)
                missed.append(log_id)
        self._forget_seen(durable, missed)
        self.mark_dirty(durable)
        return missed

    def _take_hidden(
        self, log_id: LogId, patterns: Collection[str], message: PendingMessage, found: Set[DurableSession]
    ) -> list[DurableSession]:
        """Open an entry for the sessions in `closing` that want it, and remember it for those with something pending; less
        those that the index of subscriptions has found. Returns for which it was opened."""
        taken = []
        for durable in self.closing:
            if durable not in found and durable.wants(patterns, log_id):
                durable.take(log_id, message)
                self.mark_dirty(durable)
                taken.append(durable)
        for asking in self._requests.keys() - found - set(taken):
            for request in self._requests[asking]:
                if request.meets(patterns):
                    request.seen.append((log_id, patterns, message))
        return taken

    def _done(self, request: SubscriptionRequest) -> None:
        group = self._requests.get(request.durable, [])
        others = [each for each in group if each is not request]
        if others:
            self._requests[request.durable] = others
        else:
            self._requests.pop(request.durable, None)

    def _ends_soon(self, request: SubscriptionRequest, pattern: str, since: LogId) -> bool:
        """If an unsubscribe is under way, it decides for how long what has just begun holds."""
        for later in self._requests.get(request.durable, ()):
            if later.ends and pattern in later.patterns:
                later.since.setdefault(pattern, since)
                later.cursor = min(later.cursor, request.cursor)
                later.seen = sorted(
                    {each[0]: each for each in (*request.seen, *later.seen)}.values(), key=itemgetter(0)
                )
                return True
        return False

    def _forget_seen(self, durable: DurableSession, missed: Collection[LogId]) -> None:
        """What the session has got by one subscription it must not get again by another that is still under way: it may
        have acknowledged it by then."""
        for request in self._requests.get(durable, ()):
            request.seen = [each for each in request.seen if each[0] not in missed]

    def unanswered(self, request: SubscriptionRequest) -> list[LogId]:
        """The answer to an unsubscribe will never come: what held continues to hold. Returns what `answered` does."""
        return self.answered(request, {pattern: (since, None) for pattern, since in request.since.items()})

    # Commits

    def commit(self) -> Commit | None:
        """The next commit; None if there is nothing to say, or, if it `is_divided`, in a part of it: then ask again. It must
        be applied before the next one is asked for: repeat it while its outcome is unknown, and then call `committed`.

        A large one is divided. Where the cursor is to be is fixed first. Then some parts tell what is pending up to there, and
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
        if cursor < self._committed:
            return False  # a commit never sets the cursor back: sessions in step with it have accounted for more
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
