"""Entries of the log, taken strictly in order for the sessions of a node, and acknowledged by these.

`take` gets the sessions that receive an entry by their subscriptions; it adds those that an index does not show: subscribes
that are not answered yet, intervals that have ended but are not passed, sessions that are ending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.fan_out_buffer import (
    MAX_PENDING_DELIVERIES,
    NO_RECIPIENTS,
    FanOutBuffer,
    FanOutRecord,
    SubscriberSet,
)
from crewel.delivery.pending_subscriptions import PendingSubscriptions
from crewel.delivery.records import LogId, PendingMessage, Settled

_MAX_APPLIED: Final = 10_000
"""Pending deliveries that are applied in one step: they take about as long as the changes of 500 sessions in a commit."""


class LogEntries(PendingSubscriptions):
    """How far a node has read, and the sessions that have changed by that."""

    def __init__(self, cursor: LogId, last: LogId | None = None) -> None:
        """`last`: the newest entry that was there before the node. The former owner of its sessions may have sent it."""
        super().__init__(cursor)
        self._inherited = cursor if last is None else last  # entries up to here may have been sent before
        self._dirty: dict[DurableSession, None] = {}  # sessions that the next commit looks at
        self._expiring: dict[DurableSession, None] = {}  # those with pending messages that expire
        self.max_pending, self.max_applied = MAX_PENDING_DELIVERIES, _MAX_APPLIED
        self._is_applying = False  # whether fan-out records are being applied, a few sessions at a step
        self._discarded: list[Settled] = []  # bulk acknowledgements of records that were applied in steps

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

    def take_for(self, subscribers: SubscriberSet, log_id: LogId, message: PendingMessage) -> FanOutRecord | None:
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
        self, subscribers: SubscriberSet, log_id: LogId, patterns: Collection[str], message: PendingMessage
    ) -> list[DurableSession]:
        """Open the entry, which `take_for` has just taken, also for sessions that the index does not show."""
        return self._take_hidden(log_id, patterns, self._as_inherited(log_id, message), subscribers.sessions.keys())

    def acknowledged(self, durable: DurableSession, log_id: LogId, record: FanOutRecord | None) -> None:
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
        apply at once. Anything may happen between the steps; a commit ends them, for it applies all. While others are under
        way, these are none."""
        if self._is_applying:
            return
        self._is_applying = True
        try:
            yield from self._apply_portions(self.fan_out, self.fan_out.last_number)
        finally:
            self._is_applying = False

    def _apply_portions(self, fan_out: FanOutBuffer, number: int) -> Iterator[None]:
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
