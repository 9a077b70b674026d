"""One durable session in the engine: its subscriptions as intervals of the log, and the messages that are pending.

Invariant: each matching entry at or below the session's cursor has ended or is pending here. The cursor
is the node's, or the session's own `own_cursor` while the node, which took the session over, has not reached that yet.

A message whose body is not in memory is evicted: only its rank is kept, and the body is read when its turn comes. Notices
wait among the messages, and are none: each goes behind the messages that it is about.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from crewel.delivery.entry import place_of, priority_of, rank_of
from crewel.delivery.fan_out_buffer import FanOutBuffer
from crewel.delivery.pending_dead_letters import Payers, PendingDeadLetters
from crewel.delivery.records import (
    Change,
    Disposition,
    EndReason,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
)
from crewel.qos.publish import NORMAL

_LOOKED_AT: Final = 16
"""A commit looks at so many withheld dead letters, or messages that are stored, in the time that it takes to store one."""


class DurableSession:
    """One session, on the node that has it."""

    __slots__ = (
        "_ended",
        "_fan_out",
        "_newest",
        "_stored",
        "_stored_batch",
        "_stored_inbox",
        "_stored_notices",
        "acknowledged",
        "adopted_to",
        "applied",
        "applied_inbox",
        "applied_number",
        "applied_size",
        "batch",
        "closing",
        "connected",
        "dead_letters",
        "death",
        "dirty_on_acknowledge",
        "ending",
        "evicted",
        "expiry",
        "failed",
        "has_own_cursor",
        "in_both",
        "inbox_until",
        "is_dirty",
        "is_fenced",
        "name",
        "notices",
        "own_cursor",
        "payers",
        "since",
        "tries",
    )

    acknowledged: list[LogId]
    """What its client has acknowledged of the applied messages, until that is applied too."""
    applied_size: int
    """Bytes of all that is pending, without records that are not applied."""
    applied: dict[LogId, PendingMessage]
    """What is pending in the log, without records that are not applied."""
    applied_inbox: dict[LogId, PendingMessage]
    """What is pending in the inbox, outside the log."""
    in_both: int
    """How many messages are pending in both, for they came by the log and from a group: each is one, with the bytes that it
    has in the log."""
    notices: dict[LogId, PendingMessage]
    """Notices that topics were erased, which wait like messages and are none: by their places."""
    _newest: LogId
    """Nothing beyond this has been open here, or is accounted for; without records that are not applied."""
    adopted_to: LogId
    """What was open up to here when the session was taken over counts as sent once more, although it may not have been."""
    _ended: dict[EndReason, list[LogId]]
    _fan_out: FanOutBuffer[DurableSession] | None
    """The records of its node, while it has one."""
    applied_number: int
    """The number of the last record that is applied here, or was discarded."""
    evicted: list[int]
    """The ranks of the pending messages whose bodies are not in memory, sorted. It stays this list: the mailbox has it too."""
    _stored_notices: dict[str, LogId]
    failed: dict[str, str]
    """Pattern -> why the server has ended the subscription, JSON, while the notice of it waits."""

    def __init__(self, name: SessionName) -> None:
        self.name = name
        self.connected: Any = None
        """The session of the broker that is connected to it."""
        self.since: dict[str, LogId] = {}
        """Pattern -> the id after which its subscription holds."""
        self.closing: tuple[tuple[str, LogId, LogId], ...] = ()
        """Intervals (pattern, from, until] of subscriptions that were given up."""
        self.inbox_until = LogId(0)
        """What other nodes put into its inbox up to here was in it when it came; or it has ended, or was for another session of
        the same name."""
        self.own_cursor = LogId(0)
        """Of one that was adopted: entries up to here are accounted for, whatever the node's cursor says."""
        self.has_own_cursor = False
        """Whether the store has that, for the node's cursor was another one, and has not reached it."""
        self.ending: LogId | None = None
        self.death: tuple[str, str] | None = None
        """Code and reason, if it ends because its receiver has failed for good."""
        self.tries: dict[LogId, str] | None = None
        """The failed attempts at messages, as the store keeps them, if it ends; None if there were none."""
        self.expiry = 0
        """No pending message goes out of all queues before this, microseconds since 1970; 0: none does at all."""
        self.batch = 0
        """Batch numbers up to this one are reserved, or will be with the next commit."""
        self.is_dirty = False
        self.dirty_on_acknowledge = False
        """Whether an acknowledgement makes it dirty: the message may be older than the last commit."""
        self.is_fenced = False
        """Whether another node has it now: nothing that happens here counts."""
        self._stored: dict[LogId, PendingMessage] = {}
        self._stored_inbox: dict[
            LogId, None
        ] = {}  # as a set, but an empty dict takes 150 bytes less for each idle session
        self._stored_batch = 0
        self.dead_letters: PendingDeadLetters | None = None
        """Dead letters that the store does not have; None: it has them all."""
        self.payers: Payers = ()
        """The accounts that its dead letters are charged to until the store has them."""
        self.acknowledged = []
        self.applied_size = self.in_both = self.applied_number = 0
        self.applied, self.applied_inbox, self.notices = {}, {}, {}
        self._newest = self.adopted_to = LogId(0)
        self._ended = {}
        self._fan_out = None
        self.evicted = []
        self._stored_notices, self.failed = {}, {}

    @classmethod
    def adopted(cls, record: SessionRecord, sent: dict[PendingMessage, PendingMessage] | None = None) -> DurableSession:
        """The session as its former owner left it. What it had pending may have been sent. `sent` remembers what that makes of
        what is known of a message, for all sessions that are adopted with it."""
        durable = cls(record.name)
        durable.since, durable.closing = dict(record.subscriptions), tuple(record.closed)
        durable.ending, durable.death, durable.inbox_until = record.ending, record.death, record.inbox_until
        durable.batch = durable._stored_batch = record.batch
        if record.own_cursor is not None:
            durable.own_cursor, durable.has_own_cursor = record.own_cursor, record.own_cursor != record.owner_cursor
        if record.pending or record.inbox or record.notices:  # most have none
            durable._adopt_messages(record, {} if sent is None else sent)
        durable.failed = dict(record.failed)
        durable._newest = max(durable.own_cursor, durable.adopted_to)
        return durable

    def _adopt_messages(self, record: SessionRecord, sent: dict[PendingMessage, PendingMessage]) -> None:
        self._stored, self._stored_inbox = record.pending, dict.fromkeys(record.inbox)
        self.applied = {each: _sent(record.pending[each], sent) for each in sorted(record.pending)}
        self.applied_inbox = {each: _sent(record.inbox[each], sent) for each in sorted(record.inbox)}
        messages = {**record.pending, **record.inbox}
        self._stored_notices = dict(record.notices)
        self.notices = {place: PendingMessage(1, channel=channel) for channel, place in record.notices.items()}
        self.evicted = sorted(
            rank_of(each, pending.priority) for each, pending in (*messages.items(), *self.notices.items())
        )
        self.place_notices()
        self.applied_size = sum(pending.size for pending in (record.inbox | record.pending).values())
        self.in_both = len(record.pending.keys() & record.inbox.keys())
        self.expiry = _first_expiry(messages.values())
        self.adopted_to = max(messages, default=LogId(0))

    def __len__(self) -> int:
        """How many messages are pending."""
        return len(self.pending) + len(self.applied_inbox) - self.in_both

    @property
    def is_named(self) -> bool:
        """Whether its client gave it a name: a client may come back for what is left."""
        return not self.name.startswith("client/anonymous/")

    # What is pending. Records of the fan-out buffer are applied when something reads it.

    def known_attempts(self, log_id: LogId, waiting: PendingMessage) -> int:
        """How often this message, which is open here, was sent before for certain."""
        return max(waiting.attempts - (log_id <= self.adopted_to), 0)

    def oldest(self) -> LogId | None:
        """The place of the oldest message that waits for it; None without one."""
        oldest = [next(iter(self.pending), None), min(self.inbox, default=None)]  # the log's come in its order
        return min((place for place in oldest if place is not None), default=None)

    @property
    def pending(self) -> dict[LogId, PendingMessage]:
        """The messages that wait for it in the log."""
        self.apply_pending()
        return self.applied

    @property
    def inbox(self) -> dict[LogId, PendingMessage]:
        """The messages that wait for it in the inbox, outside the log."""
        self.apply_pending()
        return self.applied_inbox

    @property
    def size(self) -> int:
        """Bytes of all that is pending."""
        self.apply_pending()
        return self.applied_size

    def certainly_fits(self, most: int) -> bool:
        """Whether all that is pending has at most so many bytes, as far as that can be said without applying records."""
        return self.applied_size + (0 if self._fan_out is None else self._fan_out.size) <= most

    def fits(self, most: int) -> bool:
        """Whether all that is pending has at most so many bytes. Applies records only if that is not certain without them."""
        return self.certainly_fits(most) or self.size <= most

    def attach(self, fan_out: FanOutBuffer[DurableSession]) -> None:
        """A node has it from now on."""
        self._fan_out = fan_out
        self.applied_number = fan_out.last_number
        fan_out.changes.note(self)

    def detach(self) -> None:
        """The node has it no more."""
        self.apply_pending()
        if self._fan_out is not None:
            self._fan_out.changes.note(self)
            self._fan_out = None
        if self.dead_letters is not None:
            self.dead_letters.detach()

    def apply_pending(self) -> None:
        """Apply the records, and then the acknowledgements."""
        fan_out = self._fan_out
        if fan_out is not None and self.applied_number != fan_out.last_number:
            self._apply(fan_out)
        if self.acknowledged:
            acknowledged, self.acknowledged = self.acknowledged, []
            self.settle_all(acknowledged)

    def _apply(self, fan_out: FanOutBuffer[DurableSession]) -> None:
        first = max(
            0, len(fan_out.records) - (fan_out.last_number - self.applied_number)
        )  # those before were discarded
        self.applied_number = fan_out.last_number
        settled = []
        for record in fan_out.records[first:]:
            if self in record.unacknowledged:
                self.applied[record.id] = record.message
                self.applied_size += record.message.size
            elif self in record.subscribers.sessions:
                settled.append(record.id)
            else:
                continue
            if record.id > self._newest:  # else a message in the inbox is newer
                self._newest = record.id
        if settled:
            self._ended.setdefault(EndReason.SETTLED, []).extend(settled)
        if first < len(fan_out.records):
            fan_out.applied[self] = None

    def settle_all(self, ids: Iterable[LogId]) -> None:
        """These messages have been answered OK; those that are not pending are left alone."""
        opened, inbox = self.pending, self.applied_inbox
        settled = self._ended.setdefault(EndReason.SETTLED, [])
        for log_id in ids:
            pending = opened.pop(log_id, None)
            if inbox and (leased := inbox.pop(log_id, None)) is not None:
                self.in_both -= pending is not None
                pending = pending or leased
            if pending is not None:
                self.applied_size -= pending.size
                settled.append(log_id)
            elif self.notices:
                self.notices.pop(log_id, None)
        if not settled:
            del self._ended[EndReason.SETTLED]

    # Subscriptions

    def subscribed(self, pattern: str, since: LogId) -> None:
        """A subscription holds from here on; one that holds already stays as it is."""
        self.since.setdefault(pattern, since)

    def unsubscribed(self, pattern: str, since: LogId, until: LogId) -> None:
        """The subscription held after `since`, and ends with the entry `until`. An empty interval is not kept: a later one
        may begin at the same place, and must not be forgotten in its stead."""
        self.since.pop(pattern, None)
        if since < until and (pattern, since, until) not in self.closing:
            self.closing = (*self.closing, (pattern, since, until))

    def wants(self, patterns: Collection[str], log_id: LogId) -> bool:
        """Whether an entry at this place, on a channel that these patterns match, is pending and not yet accounted for. Of one
        that was taken before, only one that has applied its records knows."""
        return not (log_id <= self._newest and self._has_had(log_id)) and self.covers(patterns, log_id)

    def covers(self, patterns: Collection[str], log_id: LogId) -> bool:
        """Whether one of its subscriptions to these patterns holds, or held, at this place. Of those given up it knows the
        last ones only."""
        if self.ending is not None and log_id > self.ending:
            return False
        since = self.since
        for pattern in patterns:
            start = since.get(pattern)
            if start is not None and start < log_id:
                return True
        return any(start < log_id <= until and pattern in patterns for pattern, start, until in self.closing)

    def receives_all(self, patterns: Collection[str], cursor: LogId) -> bool:
        """Whether it receives every entry beyond this place on a channel that these patterns match, as things are."""
        if self.is_fenced or self.ending is not None or self._newest > cursor or self.own_cursor > cursor:
            return False
        return any(pattern in self.since and self.since[pattern] <= cursor for pattern in patterns)

    def _has_had(self, log_id: LogId) -> bool:
        if log_id <= self.own_cursor or log_id in self.pending or log_id in self.inbox:
            return True
        # Or it was pending when the session was taken over, and has ended before the node came to it.
        return log_id in self._stored or log_id in self._stored_inbox

    def reserved(self, batch: int) -> None:
        """The store has reserved batch numbers up to this one."""
        self.batch = self._stored_batch = batch

    # Messages

    def take(self, log_id: LogId, pending: PendingMessage) -> None:
        """The entry is pending from now on. What is known of it may be shared by all sessions that take it."""
        self.pending[log_id] = pending
        if log_id > self._newest:
            self._newest = log_id
        else:  # found late, by a subscription that was pending: `open` is kept in the order of the log
            self.applied = {each: self.pending[each] for each in sorted(self.pending)}
        self.applied_size += pending.size
        if pending.expires:
            self._note_expiry(pending.expires)

    def _note_expiry(self, expires: int) -> None:
        if not 0 < self.expiry <= expires:
            self.expiry = expires

    def expired(self, now: int) -> list[LogId]:
        """The pending messages that have to go out of all queues by now, microseconds since 1970."""
        messages = {**self.pending, **self.inbox}
        self.expiry = _first_expiry(messages.values())
        if not 0 < self.expiry <= now:
            return []
        return [each for each, pending in messages.items() if 0 < pending.expires <= now]

    # How messages end

    def expire(self, ids: Iterable[LogId]) -> None:
        """These messages have gone out of all queues; those that are not pending are left alone."""
        self.end_messages(ids, EndReason.EXPIRED)

    def end_messages(self, ids: Iterable[LogId], reason: EndReason) -> None:
        """These messages have ended in this way, evicted or not; those that are not pending are left alone."""
        for log_id in ids:
            self.end_message(log_id, reason)
        self.evicted[:] = [rank for rank in self.evicted if self.find(place_of(rank)) is not None]

    def end_message(self, log_id: LogId, reason: EndReason = EndReason.SETTLED) -> bool:
        """The message has ended in this way. True if it was pending, or was a notice that waited, whose end is not recorded;
        else nothing happens."""
        pending = self._pop(log_id)
        if pending is None:
            return self.notices.pop(log_id, None) is not None
        self.note(log_id, reason)
        return True

    def _pop(self, log_id: LogId) -> PendingMessage | None:
        """What was known of the message. One that came by the log and from a group is in both."""
        pending, leased = self.pending.pop(log_id, None), self.applied_inbox.pop(log_id, None)
        self.in_both -= pending is not None and leased is not None
        ended = pending or leased
        if ended is not None:
            self.applied_size -= ended.size
        return ended

    def note(self, log_id: LogId, reason: EndReason) -> None:
        """Remember for the facts how a message ended."""
        ids = self._ended.get(reason)
        if ids is None:
            self._ended[reason] = [log_id]
        else:
            ids.append(log_id)

    def dead_letter(self, letter: PendingDeadLetter) -> None:
        """The message becomes a dead letter: it was pending, or just arriving, or never stored."""
        message = letter.message
        pending = PendingMessage() if message is None else PendingMessage(0, len(message.body), message.channel)
        if message is None:
            pending = self._pop(letter.id) or pending
        if self.dead_letters is None:
            backlog = None if self._fan_out is None else self._fan_out.dead_letters
            self.dead_letters = PendingDeadLetters(backlog, self.payers)
        self.dead_letters.add(letter, pending)

    def spilled(self, ids: Iterable[LogId]) -> None:
        """The store has copied these messages into the inbox and noted it: the log may lose them."""
        for log_id in ids:
            pending = self.pending.pop(log_id, None)
            self._stored.pop(log_id, None)
            self._put_outside_log(log_id)
            if pending is not None:
                self.in_both -= log_id in self.inbox  # from a group: its bytes are those in the log
                self.inbox[log_id] = pending
        self.applied_inbox = {each: self.inbox[each] for each in sorted(self.inbox)}

    def _put_outside_log(self, log_id: LogId) -> None:
        self._stored_inbox[log_id] = None
        self._newest = max(self._newest, log_id)
        if self._fan_out is not None:
            self._fan_out.changes.note(self)  # it may lie beyond what was taken

    def may_lack(self, log_id: LogId) -> bool:
        """Whether a message that another node has put into the inbox, by what the log says, may be unknown here."""
        return log_id > self.own_cursor and log_id > self.inbox_until

    def arrived(self, log_id: LogId, pending: PendingMessage) -> bool:
        """The store has put a message into the inbox; False if that is known."""
        if log_id in self._stored_inbox:
            return False
        inbox = self.inbox
        is_newest = not inbox or log_id > next(reversed(inbox))
        self._put_outside_log(log_id)
        inbox[log_id] = pending
        if not is_newest:
            self.applied_inbox = {each: inbox[each] for each in sorted(inbox)}
        if log_id in self.applied:
            self.in_both += 1
        else:
            self.applied_size += pending.size
        if pending.expires:
            self._note_expiry(pending.expires)
        return True

    def requeue(self, log_id: LogId) -> None:
        """The store has been asked to put this message, which lies in the inbox, back into the queue that it came from, and to
        note it. No commit mentions it any more. It may come again."""
        self.forget_evicted(log_id)
        pending = self.inbox.pop(log_id, None)
        self._stored_inbox.pop(log_id, None)
        if pending is None:
            return
        if log_id in self.pending:  # it is for the session all the same, by its subscription
            self.in_both -= 1
        else:
            self.applied_size -= pending.size

    def attempted(self, log_id: LogId, times: int, tries: str = "") -> None:
        """The message, if it is pending, has been sent so many times since the session came here; `tries` tells those that
        failed, as the store keeps them."""
        if tries:
            self.tries = self.tries or {}
            self.tries[log_id] = tries
        for messages in (self.pending, self.inbox):
            if (pending := messages.get(log_id)) is not None:
                messages[log_id] = pending._replace(attempts=pending.attempts + times)

    # The order in which pending messages are delivered: by priority, then age

    def find(self, log_id: LogId) -> PendingMessage | None:
        """What is known of a pending message, or of a notice that waits; None if there is none."""
        return self.pending.get(log_id) or self.inbox.get(log_id) or self.notices.get(log_id)

    def _rank(self, log_id: LogId) -> int:
        pending = self.find(log_id)
        return rank_of(log_id, NORMAL if pending is None else pending.priority)

    def evict(self, log_id: LogId) -> None:
        """Its body need not be kept: it will be read when the client is there."""
        insort(self.evicted, self._rank(log_id))

    def in_order(self) -> list[LogId]:
        """All pending messages, in the order in which they are to be delivered."""
        return sorted({*self.pending, *self.inbox}, key=self._rank)

    def is_evicted(self, log_id: LogId) -> bool:
        """Whether the message, which is pending, is evicted."""
        if not self.evicted:  # as of most
            return False
        rank = self._rank(log_id)
        position = bisect_left(self.evicted, rank)
        return position < len(self.evicted) and self.evicted[position] == rank

    def has_evicted_before(self, log_id: LogId, priority: int) -> bool:
        """Whether something is evicted that goes before a message of this place and priority."""
        return bool(self.evicted) and self.evicted[0] < rank_of(log_id, priority)

    def lowest_evicted(self) -> int | None:
        """The rank of the evicted message that is dropped first: the oldest of the lowest priority. None if there is none.
        Notices are not dropped."""
        evicted, end = self.evicted, len(self.evicted)
        while end:
            start = bisect_left(evicted, rank_of(LogId(0), priority_of(evicted[end - 1])), 0, end)
            for position in range(start, end):
                if place_of(evicted[position]) not in self.notices:
                    return evicted[position]
            end = start
        return None

    def evicted_sizes(self, priority: int) -> Iterator[int]:
        """The bytes of each evicted message that has no higher priority than this."""
        for position in range(bisect_left(self.evicted, rank_of(LogId(0), priority)), len(self.evicted)):
            yield self.size_of(place_of(self.evicted[position]))

    def size_of(self, log_id: LogId) -> int:
        """The bytes of a pending message; 0 if it is not pending, or is a notice."""
        pending = self.find(log_id)
        return 0 if pending is None else pending.size

    def forget_evicted(self, log_id: LogId) -> None:
        """The message, which is pending, is evicted no more, if it was."""
        if self.is_evicted(log_id):
            self.forget_rank(self._rank(log_id))

    def forget_rank(self, rank: int) -> None:
        """The message with this rank, which is evicted, is evicted no more, whether or not it is pending."""
        del self.evicted[bisect_left(self.evicted, rank)]

    def first_evicted(self, count: int) -> list[LogId]:
        """The first evicted ids that are still pending, at most so many. They stay evicted."""
        return list(islice((place for place in map(place_of, self.evicted) if self.find(place) is not None), count))

    def load(self, ids: Collection[LogId]) -> list[LogId]:
        """Those of the ids that go before all else that is evicted, and are still pending; they are evicted no more."""
        taken: list[LogId] = []
        position = 0
        while position < len(self.evicted):
            place = place_of(self.evicted[position])
            if self.find(place) is not None:
                if place not in ids:
                    break
                taken.append(place)
            position += 1
        del self.evicted[:position]
        return taken

    # Notices that topics were erased, or that the server has ended subscriptions

    def notice(self, log_id: LogId, channel: str, lowest: int = NORMAL, why: str = "") -> list[LogId]:
        """The store has put a notice at this place: that the topic of this channel was erased, or with `why` that the
        subscription to this pattern has ended. It replaces any that waited there for the session. Its priority is at most
        `lowest`. Returns the places of the others."""
        former = self.forget_notice(channel)
        if why:
            self.failed[channel] = why
        self.notices[log_id] = PendingMessage(channel=channel, priority=lowest)
        self._stored_notices[channel] = log_id
        self.place_notices()
        return former

    def forget_notice(self, channel: str) -> list[LogId]:
        """The notice about this channel, if one waits, waits no more: the session has subscribed again, say. Returns its
        place."""
        self.failed.pop(channel, None)
        places = [place for place, pending in self.notices.items() if pending.channel == channel]
        for place in places:
            self.forget_evicted(place)
            del self.notices[place]
        return places

    def place_notices(self) -> None:
        """Let each notice wait behind all messages of its topic or subscription that came before it: within the lowest
        priority that any of them has."""
        for place, notice in self.notices.items():
            priority = notice.priority
            for messages in (self.pending, self.inbox):
                for at, each in messages.items():
                    if each.priority < priority and at < place and notice.is_about(each.channel):
                        priority = each.priority
            if priority != notice.priority:
                was_evicted = self.is_evicted(place)
                self.forget_evicted(place)
                self.notices[place] = notice._replace(priority=priority)
                if was_evicted:
                    self.evict(place)

    # Commits

    @property
    def first_needed(self) -> LogId | None:
        """The first entry that this session needs in the log; None if it needs none. All before it may be trimmed."""
        first = next(iter(self.pending), None)
        letters = None if self.dead_letters is None else self.dead_letters.first_needed
        if first is None or letters is None:
            return letters if first is None else first
        return min(first, letters)

    @property
    def change_size(self) -> int:
        """About how many pending messages the next commit stores; what it only looks at counts for a part."""
        stored = len(self._stored) + len(self._stored_inbox)
        letters = 0 if self.dead_letters is None else self.dead_letters.due + self.dead_letters.withheld // _LOOKED_AT
        looked_at = stored // _LOOKED_AT
        return max(0, len(self.applied) + len(self.applied_inbox) - stored) + looked_at + letters

    @property
    def withholds(self) -> bool:
        """Whether dead letters are stored later than with the next commit."""
        return self.dead_letters is not None and self.dead_letters.withheld > 0

    @property
    def may_have_changes(self) -> bool:
        """Whether the store may have to learn something, less what is not applied: of most sessions it has not."""
        has_any = self.applied or self._stored or self._stored_inbox or self.closing or self.has_own_cursor
        return bool(has_any or self._stored_notices or self.dead_letters) or self.batch != self._stored_batch

    def take_change(self, cursor: LogId, committed: LogId) -> Change | None:
        """Return what the store has to learn, None if nothing, when the node's cursor will be `cursor`; `committed` is the one
        that the store has. From now on the session counts it as stored, for a commit is repeated until it is applied: a second
        call returns None."""
        self.apply_pending()
        if not self.may_have_changes:
            return None  # what was taken since the last commit has been settled
        caught_up = self.has_own_cursor and cursor >= self.own_cursor
        opened, settled, removed = self._open_changes(self.last_reportable(cursor))
        passed = tuple((pattern, start) for pattern, start, until in self.closing if until <= committed)
        batch = self.batch if self.batch != self._stored_batch else None
        noticed = tuple(each for each, place in self._stored_notices.items() if place not in self.notices)
        if not (caught_up or opened or settled or removed or passed or batch or noticed):
            return None
        if passed:
            self.closing = tuple(each for each in self.closing if each[2] > committed)
        if caught_up:
            self.has_own_cursor = False
        self._stored |= opened
        for log_id in settled:
            del self._stored[log_id]
        for each in removed:
            self._stored_inbox.pop(each, None)
        for channel in noticed:
            del self._stored_notices[channel]
            self.failed.pop(channel, None)
        self._stored_batch = self.batch
        return Change(self.name, opened, settled, removed, passed, caught_up, batch, noticed)

    def last_reportable(self, cursor: LogId) -> LogId:
        """The last entry whose end a commit may report that moves the node's cursor to `cursor`. A server that takes the
        session over reads the entries after it from the log again."""
        return max(cursor, self.own_cursor)

    def _open_changes(self, last: LogId) -> tuple[dict[LogId, PendingMessage], tuple[LogId, ...], tuple[LogId, ...]]:
        """What is newly pending, what is no longer pending, and what the inbox can forget. Attempts alone are not reported: a
        session that is taken over counts everything pending as sent."""
        stored, open_now, inbox = self._stored, self.pending, self.inbox
        withheld: dict[LogId, PendingMessage] = {}
        unknown = open_now.keys() - stored.keys()
        opened = {each: pending for each, pending in open_now.items() if each in unknown} if unknown else {}
        if self.dead_letters is not None and (withheld := self.dead_letters.withheld_messages):
            # One that was spilled while it ended lies in the inbox, and must not be pending twice.
            unknown = withheld.keys() - stored.keys() - self._stored_inbox.keys()
            opened |= {each: withheld[each] for each in withheld if each in unknown}
        gone = stored.keys() - open_now.keys() - withheld.keys()
        settled = tuple(each for each in stored if each in gone and each <= last) if gone else ()
        removed = tuple(
            each for each in self._stored_inbox if each not in inbox and each <= last and each not in withheld
        )
        return opened, settled, removed

    def take_ended(self, last: LogId | None = None, most: int = 0) -> tuple[list[Disposition], list[PendingDeadLetter]]:
        """How messages ended since this was asked last, and the dead letters. They are of messages up to `last`, with some that
        were withheld, at a cost of `most` (`PendingDeadLetters.take`); or (None) of all. It goes before `take_change`."""
        self.apply_pending()
        dispositions, self._ended = self._ended, {}
        if last is not None and dispositions and self._newest > last:
            self._ended = {
                reason: late for reason, ids in dispositions.items() if (late := [i for i in ids if i > last])
            }
            dispositions = {
                reason: early for reason, ids in dispositions.items() if (early := [i for i in ids if i <= last])
            }
        ended = [Disposition(self.name, reason, tuple(ids)) for reason, ids in dispositions.items()]
        if self.dead_letters is None:
            return ended, []
        letters = self.dead_letters.take(last, most)
        if not self.dead_letters:
            self.dead_letters = None
        if died := tuple(letter.id for letter in letters if letter.message is None):
            ended.append(Disposition(self.name, EndReason.DEAD, died))
        return ended, letters

    @property
    def has_uncommitted_ends(self) -> bool:
        """Whether something has ended that the store does not know yet, less the dead letters that are withheld."""
        return bool(self._ended or (self.dead_letters is not None and self.dead_letters.due))


def _sent(pending: PendingMessage, known: dict[PendingMessage, PendingMessage]) -> PendingMessage:
    found = known.get(pending)
    if found is None:
        found = known[pending] = pending._replace(attempts=pending.attempts + 1)
    return found


def _first_expiry(messages: Iterable[PendingMessage]) -> int:
    return min((pending.expires for pending in messages if pending.expires), default=0)
