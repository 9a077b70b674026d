"""Subscribes and unsubscribes whose answers from the store are on their way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Set
from operator import itemgetter

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.fan_out_buffer import FanOutBuffer
from crewel.delivery.records import LogId, PendingMessage

Interval = tuple[LogId, LogId | None]
"""From after this entry, until this one or (None) until further notice."""

Seen = tuple[LogId, Collection[str], PendingMessage]
"""An entry: its id, the patterns of its channel, what is known of it."""


class Pending:
    """A subscribe or unsubscribe whose answer from the store is on its way. Entries that are taken meanwhile are
    remembered: the store decides where the interval begins or ends, and no commit moves the cursor past where it was
    asked."""

    __slots__ = ("cursor", "durable", "ends", "patterns", "seen", "since")

    def __init__(self, durable: DurableSession, patterns: Collection[str], cursor: LogId) -> None:
        self.durable = durable
        self.patterns = patterns
        self.cursor = cursor
        self.ends = False
        """Whether it is an unsubscribe."""
        self.since: dict[str, LogId] = {}
        """What held before an unsubscribe, to be put back if it fails."""
        self.seen: list[Seen] = []
        """What was taken while it was pending."""

    def meets(self, patterns: Collection[str]) -> bool:
        """Whether it is about one of these patterns."""
        return any(pattern in patterns for pattern in self.patterns)


class PendingSubscriptions(ABC):
    """The part of a node that knows what the store was asked about subscriptions, and what was taken meanwhile."""

    def __init__(self, cursor: LogId) -> None:
        self.cursor = cursor
        """The last entry that was taken."""
        self.fan_out = FanOutBuffer()
        """What was taken for many at once since the last commit."""
        self._pending: dict[DurableSession, list[Pending]] = {}  # in the order in which the store was asked
        self.closing: dict[DurableSession, None] = {}
        """Sessions with intervals that the index of subscriptions does not show."""

    @abstractmethod
    def touch(self, durable: DurableSession) -> None:
        """Something about this session has changed: the next commit looks at it."""

    def subscribing(self, durable: DurableSession, patterns: Collection[str]) -> Pending:
        """The store is about to be asked for these subscriptions."""
        pending = Pending(durable, patterns, self.cursor)
        self.fan_out.changes.note(durable)
        self._pending.setdefault(durable, []).append(pending)
        return pending

    def unsubscribing(self, durable: DurableSession, patterns: Collection[str]) -> Pending:
        """The store is about to be asked to end these subscriptions, also such that it was asked for just now."""
        pending = self.subscribing(durable, patterns)
        pending.ends = True
        pending.since = {each: durable.since.pop(each) for each in patterns if each in durable.since}
        return pending

    def patterns(self, durable: DurableSession) -> list[str]:
        """What the session is subscribed to, or may be when all answers are there."""
        asked = [each for pending in self._pending.get(durable, ()) for each in pending.patterns]
        return list(dict.fromkeys([*durable.since, *asked]))

    def answered(self, pending: Pending, intervals: Mapping[str, Interval]) -> list[LogId]:
        """The store has answered: pattern -> (from, until); `until` None: the subscription holds. What it refused is not
        named. Returns the entries that were taken meanwhile and that the session missed, oldest first; they are open
        now. Answers about one pattern of a session must come in the order in which the store was asked."""
        durable = pending.durable
        self._done(pending)
        if durable.is_fenced:
            return []
        self.fan_out.changes.note(durable)
        durable.apply_pending()
        for pattern, (since, until) in intervals.items():
            if until is not None:
                durable.unsubscribed(pattern, since, until)
                self.closing[durable] = None
            elif not self._ends_soon(pending, pattern, since):
                durable.subscribed(pattern, since)
        missed = []
        for log_id, patterns, waiting in pending.seen:
            if durable.wants(patterns, log_id):
                durable.take(log_id, waiting)
                missed.append(log_id)
        self._forget_seen(durable, missed)
        self.touch(durable)
        return missed

    def _take_hidden(
        self, log_id: LogId, patterns: Collection[str], waiting: PendingMessage, found: Set[DurableSession]
    ) -> list[DurableSession]:
        """Open an entry for the sessions in `closing` that want it, and remember it for those with something pending; less
        those that the index of subscriptions has found. Returns for which it was opened."""
        taken = []
        for durable in self.closing:
            if durable not in found and durable.wants(patterns, log_id):
                durable.take(log_id, waiting)
                self.touch(durable)
                taken.append(durable)
        for asking in self._pending.keys() - found - set(taken):
            for pending in self._pending[asking]:
                if pending.meets(patterns):
                    pending.seen.append((log_id, patterns, waiting))
        return taken

    def _done(self, pending: Pending) -> None:
        group = self._pending.get(pending.durable, [])
        others = [each for each in group if each is not pending]
        if others:
            self._pending[pending.durable] = others
        else:
            self._pending.pop(pending.durable, None)

    def _ends_soon(self, pending: Pending, pattern: str, since: LogId) -> bool:
        """If an unsubscribe is under way, it decides for how long what has just begun holds."""
        for later in self._pending.get(pending.durable, ()):
            if later.ends and pattern in later.patterns:
                later.since.setdefault(pattern, since)
                later.cursor = min(later.cursor, pending.cursor)
                later.seen = sorted(
                    {each[0]: each for each in (*pending.seen, *later.seen)}.values(), key=itemgetter(0)
                )
                return True
        return False

    def _forget_seen(self, durable: DurableSession, missed: Collection[LogId]) -> None:
        """What the session has got by one subscription it must not get again by another that is still pending: it may
        have settled it by then."""
        for pending in self._pending.get(durable, ()):
            pending.seen = [each for each in pending.seen if each[0] not in missed]

    def unanswered(self, pending: Pending) -> list[LogId]:
        """The answer to an unsubscribe will never come: what held continues to hold. Returns what `answered` does."""
        return self.answered(pending, {pattern: (since, None) for pattern, since in pending.since.items()})
