"""How persistent messages come in: into the log, and from there, in its order, to every subscriber of their channel.

A message of this server is taken from memory when the log's answer shows that nothing lies between; what does is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from crewel.bayeux.channel import Channel, parse
from crewel.broker.channels import Channels
from crewel.broker.durability.access import PendingPublish, Published, StoreAccess
from crewel.broker.durability.backlog_loader import BacklogLoader
from crewel.broker.ids import Ids
from crewel.broker.outbox.dispatchers import Dispatchers
from crewel.broker.outbox.expiry import Expiry
from crewel.broker.outbox.outbound import Outbound
from crewel.broker.outbox.overflow import Overflow
from crewel.broker.point_to_point.consumer_groups import ConsumerGroups
from crewel.broker.point_to_point.shared_queues import SharedQueues
from crewel.broker.registry import Registry
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.options import MatchResult, SubscriptionOptions
from crewel.broker.topics.topics import Topics
from crewel.delivery.dispatcher import NO_DISPATCHER
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.fan_out_buffer import FanOutBuffer, SubscriberSet
from crewel.delivery.records import EndReason, Logged, LogId, PendingMessage, Submission
from crewel.errors import Behind, Refused, StoreError, StoreUncertain, coded
from crewel.qos.update import Origin
from crewel.storage import log as stored_log
from crewel.storage.log import Appended, PublishOutcome
from crewel.storage.scripts import Step

log = logging.getLogger(__name__)

_READ_AT_ONCE: Final = 1000


_MOST_CHANNELS: Final = 10_000


class Subscribers(NamedTuple):
    """The subscribers of a channel."""

    subscriber_set: SubscriberSet
    """The sessions that the store has, for the engine."""
    reliable: list[tuple[Session, DurableSession]]
    """The same."""
    others: list[Session]


@dataclass(eq=False)
class SubscriberCache:
    """The subscribers of channels, looked up once for many messages, as long as they stay the same; a message is handed to them
    at the cost of one for all. What is unusual about a message or one of its receivers goes the general way, in
    `LogAppender`."""

    _channels: Channels
    _outbound: Outbound
    _options: SubscriptionOptions
    _access: StoreAccess
    _deliver: Callable[[DurableSession, Entry, str], None]
    _known: dict[str, Subscribers] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._version: tuple[FanOutBuffer | None, int, int] = (None, 0, 0)

    def of(self, channel: Channel) -> Subscribers | None:
        """The subscribers that get every message of the channel; None if one of them has to be asked about each."""
        node, channels = self._access.node, self._channels
        filtered = self._options.filtered
        if not node.is_stable or (filtered and not filtered.keys().isdisjoint(channels.subscribers(channel))):
            return None
        version = (node.fan_out, node.fan_out.version, channels.version)
        if version != self._version or len(self._known) >= _MOST_CHANNELS:
            self._known.clear()
            self._version = version
        subscribers = self._known.get(channel.name)
        if subscribers is None and (subscribers := self._found(channel)) is not None:
            self._known[channel.name] = subscribers
        return subscribers

    def _found(self, channel: Channel) -> Subscribers | None:
        reliable, others = [], []
        for session in self._channels.subscribers(channel):
            if session.durable is None:
                others.append(session)
            elif session.durable.holder is session:
                reliable.append((session, session.durable))
            else:
                return None
        subscriber_set = self._access.node.subscriber_set(channel.patterns, [durable for _, durable in reliable])
        return None if subscriber_set is None else Subscribers(subscriber_set, reliable, others)

    def take(self, subscribers: Subscribers, entry: Entry, waiting: PendingMessage) -> bool:
        """Take the next message of the log, and queue it for those whom the store has; False if it was taken before."""
        node = self._access.node
        entry.fan_out_record = node.take_for(subscribers.subscriber_set, entry.position, waiting)
        if entry.fan_out_record is None:
            return False
        outbound, lazy = self._outbound, entry.lazy
        fan_outs = outbound.fan_outs
        most = fan_outs.at_once
        if fan_outs.waiting and entry.channel in fan_outs.waiting:
            fan_outs.add(entry.channel, self._queue(subscribers.reliable, 0, entry))
            return True
        for index, (session, durable) in enumerate(subscribers.reliable):
            if index == most:
                fan_outs.add(entry.channel, self._queue(subscribers.reliable, most, entry))
                break
            if not (
                session.queue
                or session.retained
                or session.is_absent
                or session.dispatcher is not NO_DISPATCHER
                or durable.evicted
                or lazy
            ):
                outbound.enqueue_first(session, entry)
            elif self._is_usual(session, durable, node.fan_out.size):
                outbound.enqueue(session, entry)
            else:
                self._deliver(durable, entry, "")
        return True

    def _queue(self, reliable: list[tuple[Session, DurableSession]], start: int, entry: Entry) -> Iterator[None]:
        """Queue a message that was taken for the sessions from `start` on, a few at a time. By now one may have ended, may be
        another client's, or the message may have ended for it."""
        outbound, fan_out = self._outbound, self._access.node.fan_out
        step = outbound.fan_outs.step
        for at in range(start, len(reliable), step):
            for _, durable in reliable[at : at + step]:
                session: Session | None = durable.holder
                if session is None or not is_open(durable, entry):
                    continue
                if self._is_usual(session, durable, fan_out.size):
                    outbound.enqueue(session, entry)
                else:
                    self._deliver(durable, entry, "")
            yield

    @staticmethod
    def _is_usual(session: Session, durable: DurableSession, ahead: int) -> bool:
        """Whether the next message goes into the session's queue whatever its bounds say, with at most so many bytes not
        applied, this one included."""
        if session.is_absent or session.is_paused or session.rejects_all or durable.evicted:
            return False
        bounds = session.bounds
        return bounds is None or (
            len(session.queue) + session.retained < bounds.max_entries
            and durable.applied_size + ahead <= bounds.max_bytes
        )


def is_open(durable: DurableSession, entry: Entry) -> bool:
    """Whether the message, which was taken for the session and has not been queued yet, is still open for it. A message
    that the session has not reached yet is open."""
    if durable.is_fenced:
        return False
    record = entry.fan_out_record
    if record is not None and durable.upto < record.number:
        return True
    return durable.find(entry.position) is not None


_Stored = tuple["PendingPublish", LogId, PublishOutcome]
"""A message that the store has, and what it did with it."""


@dataclass(eq=False)
class LogAppender:
    """Appends what is published, and takes what has been appended."""

    _runtime: Runtime
    _channels: Channels
    _outbound: Outbound
    _dispatchers: Dispatchers
    _registry: Registry
    _ids: Ids
    _expiry: Expiry
    _topics: Topics
    _groups: ConsumerGroups
    _shared_queues: SharedQueues
    _options: SubscriptionOptions
    _access: StoreAccess
    _backlog: BacklogLoader
    _overflow: Overflow

    def __post_init__(self) -> None:
        self._settings = self._runtime.settings
        self._loop = self._runtime.loop
        self._metrics = self._runtime.metrics
        self._spawn = self._runtime.spawn
        self._heard = LogId(0)  # what is not beyond it has reached those that do not acknowledge
        self._cache = SubscriberCache(self._channels, self._outbound, self._options, self._access, self._deliver)
        self._access.writing.serve(self._append, self._appended)

    def _append(self, submissions: list[Submission]) -> Step[Appended]:
        access = self._access
        return stored_log.append(
            access.keys,
            access.token,
            submissions,
            access.facts_max,
            history_max_bytes=self._settings.storage.history_max_bytes,
        )

    def _appended(self, group: list[PendingPublish], answer: Appended | StoreError) -> Coroutine[Any, Any, None] | None:
        if isinstance(answer, StoreError):
            for outgoing in group:
                if not isinstance(answer, StoreUncertain):
                    self._topics.refused(outgoing.channel.name)
                outgoing.resolve(answer)
            if isinstance(answer, StoreUncertain) and self._access.store.is_up:
                self._access.writing.probe_later()  # it may be in the log, less some copies
            self._access.suspect(answer)
            return None
        self._access.answered.note(answer.prev, answer.ids)
        if answer.prev > self._access.node.cursor:
            return self._apply_pending(group, answer)
        if answer.prev < self._access.node.cursor:
            self._access.suspect(Behind("the log is shorter than it was"))
        stored = list(zip(group, answer.ids, answer.outcomes, strict=True))
        rest = self._answer(stored, is_next=True)
        return self._answer_rest(rest, is_next=True) if rest else None

    def _answer(self, stored: list[_Stored], *, is_next: bool) -> list[_Stored]:
        """Take these messages, and tell their publishers. Returns those for which this turn was too short."""
        end = self._loop.time() + self._outbound.fan_outs.slice_s if len(stored) > 1 else inf
        for index, (outgoing, log_id, outcome) in enumerate(stored):
            if index and self._loop.time() > end:
                return stored[index:]
            if outcome is PublishOutcome.NEW:
                if is_next:
                    self._take_own(outgoing, log_id)
                if outgoing.submission.groups:
                    self._shared_queues.filled_groups(outgoing.submission.groups, log_id)
            elif outcome is PublishOutcome.UNCHANGED:
                if is_next:
                    self._access.node.skip(log_id)
            elif outcome is PublishOutcome.REFUSED:
                outgoing.resolve(readonly(outgoing.channel))
                continue
            if outgoing.submission.history_max and outcome is not PublishOutcome.REPEATED:
                self._topics.kept(outgoing.channel.name, log_id)
            if outgoing.submission.key:
                self._ids.stored.remember(outgoing.submission.key, str(log_id))
            outgoing.resolve(Published(str(log_id), outcome is PublishOutcome.REPEATED))
        return []

    async def _answer_rest(self, rest: list[_Stored], *, is_next: bool) -> None:
        while rest:
            await asyncio.sleep(0)  # others have their turn
            rest = self._answer(rest, is_next=is_next)

    async def _apply_pending(self, group: list[PendingPublish], answer: Appended) -> None:
        """Take what lies before the group, and then the group. If that cannot be read now it will be, with the group itself,
        when the store is looked at again."""
        try:
            await self.read_up_to(answer.prev)
        except StoreError as error:
            log.warning("the log cannot be read at the moment: %s", error)
            self._access.writing.probe_later()
            is_next = False
        else:
            is_next = True
        stored = list(zip(group, answer.ids, answer.outcomes, strict=True))
        await self._answer_rest(self._answer(stored, is_next=is_next), is_next=is_next)

    def _take_own(self, outgoing: PendingPublish, log_id: LogId) -> None:
        submission = outgoing.submission
        qos = outgoing.qos
        entry = Entry.logged(
            submission.channel,
            log_id,
            submission.body,
            lazy=outgoing.lazy,
            priority=qos.priority,
            # By the clock that it is looked at with: the log's ids stand still when the store's clock is set back.
            expires=qos.expires(self._expiry.now()) if qos.force_destroy else 0,
            origin=Origin.stored(log_id, submission.sender, submission.qos) if self._dispatchers.updated else None,
        )
        self._take(outgoing.channel, entry, outgoing.excluded, submission.excluded, submission.sender, submission.qos)
        self._metrics.stored_publishes += 1
        if outgoing.for_services is not None:
            self._registry.call_subscribed(outgoing.channel, outgoing.for_services, submission.sender)

    async def read_up_to(self, last: LogId) -> None:
        """Take what lies between the cursor and there: messages whose publisher's answer was lost, or of another server."""
        is_shared = False
        loop, slice_s = self._loop, self._outbound.fan_outs.slice_s
        end = loop.time() + slice_s
        while self._access.node.cursor < last:
            entries = await stored_log.read(self._access.store, self._access.node.cursor, _READ_AT_ONCE)
            self._topics.count_again({logged.channel for logged in entries})
            for logged in entries:
                if logged.id > last:
                    break
                if loop.time() > end:
                    await asyncio.sleep(0)  # others have their turn
                    end = loop.time() + slice_s
                channel = parse(logged.channel)
                assert channel is not None
                entry = Entry.read_back(logged)
                self._take(channel, entry, None, logged.excluded, logged.sender, logged.qos)
                is_shared = is_shared or bool(self._groups.on(channel))
            if len(entries) < _READ_AT_ONCE or entries[-1].id > last:
                self._access.node.cursor = max(self._access.node.cursor, last)
        if is_shared:  # their queues have got them as well, and no part knows
            self._spawn(self._shared_queues.load_again())

    def _take(
        self, channel: Channel, entry: Entry, publisher: Session | None, excluded: str, sender: str, qos: bytes
    ) -> None:
        """Hand the next message of the log to every subscriber of its channel, less its publisher if that is excluded."""
        waiting = PendingMessage(0, len(entry.wire), entry.channel, entry.priority, entry.expires)
        known = None if excluded or entry.expires else self._cache.of(channel)
        if known is not None and self._cache.take(known, entry, waiting):
            self._heard = max(self._heard, entry.position)
            if known.others:
                self._outbound.fan_out(entry, known.others, publisher)
            return
        subscribers = self._channels.subscribers(channel)
        durables = [session.durable for session in subscribers if session.durable is not None]
        taken = self._access.node.take(entry.position, channel.patterns[::-1], waiting, durables)
        if durables:
            all_are = len(durables) == len(subscribers)
            subscribers = () if all_are else [session for session in subscribers if session.durable is None]
        if entry.position > self._heard:  # after a reload, what was taken before comes once more
            self._heard = entry.position
            if self._options.filtered:
                subscribers = self._options.filter_subscribers(channel, entry, subscribers, sender, qos)
            self._outbound.fan_out(entry, subscribers, publisher)
        fan_outs = self._outbound.fan_outs
        start = 0 if fan_outs.waiting and entry.channel in fan_outs.waiting else fan_outs.at_once
        for durable in taken[:start]:
            self._hand_over(durable, channel, entry, excluded, sender, qos)
        if len(taken) > start:
            fan_outs.add(entry.channel, self._hand_over_rest(taken[start:], channel, entry, excluded, sender, qos))

    def take_late(self, durables: Iterable[DurableSession], channel: Channel, logged: Logged) -> None:
        """Hand a message that this server has passed to sessions that have come since and want it. They may have had it."""
        entry = Entry.read_back(logged)
        waiting = PendingMessage(1, len(entry.wire), entry.channel, entry.priority, entry.expires)
        for durable in durables:
            durable.take(logged.id, waiting)
            self._access.node.touch(durable)
            self._hand_over(durable, channel, entry, logged.excluded, logged.sender, logged.qos)

    def _hand_over(
        self, durable: DurableSession, channel: Channel, entry: Entry, excluded: str, sender: str, qos: bytes
    ) -> None:
        filtered = self._options.filtered
        if filtered and durable.holder in filtered:
            self._choose(durable, channel, entry, excluded, sender, qos)
        else:
            self._deliver(durable, entry, excluded)

    def _hand_over_rest(
        self, durables: list[DurableSession], channel: Channel, entry: Entry, excluded: str, sender: str, qos: bytes
    ) -> Iterator[None]:
        """The same for many, a few at a time. By now one may have ended, or the message may have ended for it."""
        step = self._outbound.fan_outs.step
        for at in range(0, len(durables), step):
            for durable in durables[at : at + step]:
                if is_open(durable, entry):
                    self._hand_over(durable, channel, entry, excluded, sender, qos)
            yield

    def _choose(
        self, durable: DurableSession, channel: Channel, entry: Entry, excluded: str, sender: str, qos: bytes
    ) -> None:
        session: Session = durable.holder
        match = self._options.match(session, channel, entry, sender, qos)
        if match is MatchResult.YES:
            self._deliver(durable, entry, excluded)
        elif match is MatchResult.NO or durable.name == excluded:
            durable.settle(entry.position, EndReason.FILTERED)
        else:
            durable.settle(entry.position)
            self._outbound.enqueue(session, entry.oneway())

    def _deliver(self, durable: DurableSession, entry: Entry, excluded: str) -> None:
        session: Session | None = durable.holder
        if durable.name == excluded:
            durable.settle(entry.position, EndReason.FILTERED)
        elif session is None:
            return  # it is ending
        elif not self._overflow.has_room(session, durable, entry):
            return
        elif (
            session.is_absent
            or session.is_paused
            or (durable.evicted and durable.has_evicted_before(entry.position, entry.priority))
        ):
            durable.evict(entry.position)
            self._backlog.load_if_waiting(session)
        else:
            self._outbound.enqueue(session, entry)


def readonly(channel: Channel) -> Refused:
    """The refusal of a second message."""
    code = "user.publish.readonly"
    return Refused(coded(code, channel.name), code, f"{channel.name} takes one message, and has it")
