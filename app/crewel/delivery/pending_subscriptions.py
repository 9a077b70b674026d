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


class SubscriptionRequest:
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
        """What was taken while it was under way."""

    def meets(self, patterns: Collection[str]) -> bool:
        """Whether it is about one of these patterns."""
        return any(pattern in patterns for pattern in self.patterns)


class PendingSubscriptions(ABC):
    """The subscriptions of a log consumer that wait for the store: what it was asked, and what was taken meanwhile.

    The base of `LogConsumer` and of nothing else. It is a class of its own because one can read it alone, and a base
    because each entry that is taken asks it: a part would cost each of them a call more.
    """

    def __init__(self, cursor: LogId) -> None:
        self.cursor = cursor
        """The last entry that was taken."""
        self.fan_out = FanOutBuffer()
        """What was taken for many at once since the last commit."""
        self._requests: dict[
            DurableSession, list[SubscriptionRequest]
        ] = {}  # in the order in which the store was asked
        self.closing: dict[DurableSession, None] = {}
        """Sessions with intervals that the index of subscriptions does not show."""

    @abstractmethod
    def mark_dirty(self, durable: DurableSession) -> None:
        """The next commit looks at this session: something about it has changed."""

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
