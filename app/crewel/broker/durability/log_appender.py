"""How persistent messages come in: into the log, and from there, in its order, to every subscriber of their channel.

A message of this server is taken from memory when the log's answer shows that nothing lies between; what does is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from crewel.bayeux.channel import Channel, parse
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.durability.deliverer import Deliverer, LogMessage
from crewel.broker.durability.log_tail import ReadAhead
from crewel.broker.durability.subscriber_cache import SubscriberCache
from crewel.broker.durability.unheard_channels import UnheardChannels
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.refusals import readonly
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, stored_of, unstored_of
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.topics.topic_changes import TopicChanges
from crewel.broker.topics.topic_table import TopicTable
from crewel.broker.writing.pending_publish import PendingPublish, Published
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import Logged, LogId, PendingMessage, Submission
from crewel.errors import Behind, StoreError, StoreUncertain
from crewel.event_loop import Turns, do_slice
from crewel.fair_turns import PORTION_S
from crewel.qos.update import Origin
from crewel.storage import log as stored_log
from crewel.storage.log import Appended, PublishOutcome
from crewel.storage.log_follower import channel_of, id_of, read
from crewel.storage.script_step import Step

log = logging.getLogger(__name__)

_READ_AT_ONCE: Final = 1000
_TAIL_S: Final = 0.05  # that a tail has for an answer whose pause was ended, before its entries are read in another way

_Stored = tuple["PendingPublish", LogId, PublishOutcome]
"""A message that the store has, and what it did with it."""


@dataclass(eq=False)
class LogAppender:
    """Appends what is published, and takes what has been appended."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _addressing: Addressing
    _topics: TopicTable
    _changes: TopicChanges
    _options: SubscriptionOptions

    def __post_init__(self) -> None:
        self._access, self._ids, self._registry = self._runtime.access, self._runtime.ids, self._runtime.services
        self._outbound, self._dispatchers = self._mailboxes.outbound, self._mailboxes.dispatchers
        self._expiry = self._outbound.expiry
        self._channels, self._groups = self._addressing.channels, self._addressing.groups
        self._shared_queues, self._destinations = self._addressing.shared_queues, self._addressing.destinations
        self._settings = self._runtime.settings
        self._author = self._runtime.cluster.author(self._settings.node.name)
        self._loop, self._clock = self._runtime.loop, self._runtime.clock
        self._metrics = self._runtime.metrics
        self._spawn = self._runtime.spawn
        self._heard = LogId(0)  # what is not beyond it has reached those that do not acknowledge
        self._unfinished: deque[Iterator[None]] = deque()
        """Messages that are handed to many receivers in steps: what follows them in the log waits."""
        self.ahead = ReadAhead()
        self._deliverer = Deliverer(self._access, self._outbound, self._options)
        self._cache = SubscriberCache(self._channels, self._outbound, self._options, self._access, self._deliverer)
        self._unheard = UnheardChannels(self._channels, self._groups, self._access)

    @property
    def is_in_steps(self) -> bool:
        """Whether a message is being handed to its receivers in steps, the last of which moves the cursor."""
        return bool(self._unfinished)

    def append_step(self, submissions: list[Submission]) -> Step[Appended]:
        """Return the step that appends these to the log."""
        access = self._access
        return stored_log.append(
            access.keys,
            access.token,
            submissions,
            access.facts_max,
            history_max_bytes=self._settings.storage.history_max_bytes,
            node=self._author,
            now=self._clock.microseconds(),
        )

    def appended(self, group: list[PendingPublish], answer: Appended | StoreError) -> Coroutine[Any, Any, None] | None:
        """Take what the store has answered to it: tell the publishers, and hand their messages to the receivers, behind what
        lies before them in the log. What is returned must be waited for before the answers that follow."""
        if isinstance(answer, StoreError):
            for outgoing in group:
                if not isinstance(answer, StoreUncertain):
                    self._topics.refused(outgoing.channel.name)
                outgoing.resolve(answer)
            if self._access.beside or (isinstance(answer, StoreUncertain) and self._access.store.is_up):
                self._access.writing.probe_later()  # it may be in the log, less some copies; or something waits for its place
            self._access.suspect(answer)
            return None
        self._access.answered.note(answer.prev, answer.ids)
        self._metrics.publish_steps += bool(group)
        if answer.prev > self._access.node.cursor and not self._take_known(answer.prev):
            return self._apply_pending(group, answer)
        if answer.prev < self._access.node.cursor:
            self._access.suspect(Behind("the log is shorter than it was"))
        elif self._access.beside:
            self._access.take_beside(answer.prev)
        stored = list(zip(group, answer.ids, answer.outcomes, strict=True))
        rest = self._answer(stored, is_next=True)
        if not (rest or self._unfinished):
            return None
        return self._answer_rest(rest, is_next=True, node=self._access.node)

    def _answer(self, stored: list[_Stored], *, is_next: bool) -> list[_Stored]:
        """Take these messages, and tell their publishers. Returns those for which this turn was too short."""
        end = self._loop.time() + self._outbound.fan_outs.slice_s if len(stored) > 1 else inf
        for index, (outgoing, log_id, outcome) in enumerate(stored):
            if self._unfinished or (index and self._loop.time() > end):
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
            elif outcome is PublishOutcome.GONE:
                self._topics.refused(outgoing.channel.name)
                outgoing.resolve(Published(""))
                continue
            if outgoing.submission.history_max and outcome is not PublishOutcome.REPEATED:
                self._topics.added_to_history(outgoing.channel.name, log_id)
            if outgoing.submission.key:
                self._ids.stored.remember(outgoing.submission.key, str(log_id))
            self._metrics.publishes += 1
            outgoing.resolve(Published(str(log_id)))
        return []

    async def _answer_rest(self, rest: list[_Stored], *, is_next: bool, node: LogConsumer) -> None:
        """`node`: whose next messages these are. Another one reads them from the log, behind what it has not read yet."""
        while rest or self._unfinished:
            await self._finish()
            await asyncio.sleep(0)  # others have their turn
            rest = self._answer(rest, is_next=is_next and self._access.node is node)

    async def _finish(self) -> None:
        """Hand what was taken last to all of its receivers, with turns for others. Two tasks may do so at once."""
        turns = Turns(self._outbound.fan_outs.slice_s, is_urgent=True)
        while self._unfinished:
            steps = self._unfinished[0]
            try:
                for _ in steps:
                    await turns.rest()
                    if not self._is_first(steps):
                        break
            except Exception:
                log.exception("a message could not be handed to all of its receivers")
            if self._is_first(steps):
                self._unfinished.popleft()

    def _is_first(self, steps: Iterator[None]) -> bool:
        return bool(self._unfinished) and self._unfinished[0] is steps

    def begin_again(self) -> None:
        """Another node reads the log from where its sessions were: what is being handed out is not its next message."""
        self._unfinished.clear()

    async def _apply_pending(self, group: list[PendingPublish], answer: Appended) -> None:
        """Take what lies before the group, and then the group. If that cannot be read now it will be, with the group itself,
        when the store is looked at again."""
        node = self._access.node
        try:
            if self.ahead.node is node:
                await self._await_tail()
            await self.read_up_to(answer.prev)
        except StoreError as error:
            log.warning("the log cannot be read at the moment: %s", error)
            self._access.writing.probe_later()
            is_next = False
        else:
            is_next = self._access.node is node
        stored = list(zip(group, answer.ids, answer.outcomes, strict=True))
        await self._answer_rest(self._answer(stored, is_next=is_next), is_next=is_next, node=node)

    async def _await_tail(self) -> None:
        """Let the tail bring what was appended before a group. It has it, most often, unless it pauses."""
        added = self.ahead.until_added()
        if self.ahead.pause.end():
            await asyncio.wait([added], timeout=_TAIL_S)
        else:
            await asyncio.sleep(0)

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
        """Take what lies between the cursor and there: messages whose publisher's answer was lost, or of another server. Ends
        at once if all is read again meanwhile: the node that then takes its place reads from another cursor."""
        has_group = False
        turns, node = Turns(self._outbound.fan_outs.slice_s, is_urgent=True), self._access.node
        await self._take_ahead_up_to(min(self.ahead.read_to, last))
        while self._access.node is node and node.cursor < last:
            entries = await self._next_entries(last)
            self._topics.count_again({logged.channel for logged in entries})
            for logged in entries:
                if self._access.node is not node:
                    return
                if logged.id <= node.cursor:
                    continue  # the tail has brought it
                if logged.id > last:
                    break
                if self._access.beside:
                    self._access.take_beside(LogId(logged.id - 1))
                has_group = self._take_read(logged) or has_group
                if self._unfinished:
                    await self._finish()
                if node.fan_out.deliveries > node.max_applied:  # or a queue that is full would apply them all at once
                    for _ in node.apply_in_steps():
                        await turns.rest()
                await turns.rest()
            if self._access.node is node and (len(entries) < _READ_AT_ONCE or entries[-1].id > last):
                self._access.take_beside(last)
                node.cursor = max(node.cursor, last)
        if has_group:
            self._spawn(self._shared_queues.load_again())

    async def _next_entries(self, last: LogId) -> list[Logged]:
        """Read the next entries beyond the cursor. What the tail brings meanwhile, up to `last`, is taken at once, and nothing
        is returned if that is all. On a slow line the tail has asked long before, and on another connection."""
        access, ahead = self._access, self.ahead
        reading = self._loop.create_task(stored_log.read(access.store, access.node.cursor, _READ_AT_ONCE))
        while not reading.done():
            await asyncio.wait((reading, ahead.until_added()), return_when=asyncio.FIRST_COMPLETED)
            await self._take_ahead_up_to(min(ahead.read_to, last))
            if access.node.cursor >= last and not reading.done():
                self._spawn(_ignored(reading))
                return []
        return reading.result()

    def _take_read(self, logged: Logged) -> bool:
        """Take an entry that was read; whether it is in the queue of a group as well, and no part knows."""
        if logged.addressed:
            self._access.node.skip(logged.id)
            if logged.changed_by:
                self._changes.take(logged)
            else:
                self._destinations.take_addressed(logged, self._access.node.sessions)
            return False
        channel = parse(logged.channel)
        assert channel is not None
        self._take(channel, Entry.read_back(logged), None, logged.excluded, logged.sender, logged.qos)
        return bool(self._groups.on(channel))

    def take_ahead(self, last: LogId) -> Coroutine[Any, Any, None] | None:
        """Take what has been read ahead up to there; what is returned must be waited for, because this turn was too short."""
        return None if self._take_known(last) else self._take_ahead_up_to(last)

    async def _take_ahead_up_to(self, last: LogId) -> None:
        """Take what has been read ahead up to there, if it has, with turns for others."""
        while self.ahead.node is self._access.node and self.ahead.read_to >= last:
            if self._take_known(last):
                return
            await self._finish()
            await asyncio.sleep(0)  # others have their turn

    def _take_known(self, last: LogId) -> bool:
        """Take what has been read ahead and is not beyond this id, for one turn. False: that is not all up to there."""
        ahead, access, names, has_group = self.ahead, self._access, set[str](), False
        if ahead.node is not access.node or ahead.read_to < last:
            return False
        end = self._loop.time() + self._outbound.fan_outs.slice_s
        is_all = False
        while not self._unfinished:
            if passed := ahead.pass_over(self._unheard.known(), last, names):
                self._pass_over(passed)
            unread = ahead.next(last)
            if unread is None:
                is_all = True
                break
            log_id, channel = id_of(unread), channel_of(unread)
            if channel and self._unheard.has(channel):
                self._pass_over(log_id)
                names.add(channel.decode())
            else:
                if access.beside:
                    access.take_beside(LogId(log_id - 1))
                logged = read(unread)
                names.add(logged.channel)
                has_group = self._take_read(logged) or has_group
            if self._loop.time() >= end:
                break
        self._metrics.foreign_entries = ahead.taken
        self._topics.count_again(names)
        if has_group:
            self._spawn(self._shared_queues.load_again())
        if not is_all or self._unfinished:
            return False
        access.take_beside(last)
        access.node.skip(last)
        return True

    def _pass_over(self, log_id: LogId) -> None:
        """No session or group of this node receives what lies between the cursor and there."""
        self._access.take_beside(log_id)
        self._access.node.skip(log_id)
        self._heard = max(self._heard, log_id)

    def _take(
        self, channel: Channel, entry: Entry, publisher: Session | None, excluded: str, sender: str, qos: bytes
    ) -> None:
        """Hand the next message of the log to every subscriber of its channel, less its publisher if that is excluded."""
        pending = PendingMessage(0, len(entry.wire), entry.channel, entry.priority, entry.expires)
        node, is_usual = self._access.node, not (excluded or entry.expires)
        is_laden = node.fan_out.deliveries >= node.max_pending
        if is_usual and not is_laden and self._take_together(channel, entry, publisher, pending):
            return
        message = (channel, entry, publisher, excluded, sender, qos)
        if is_laden or self._channels.most_subscribers(channel) > self._outbound.fan_outs.looked_up:
            self._unfinished.append(self._take_in_steps(message, pending, is_usual=is_usual))
            return
        steps, most_s = self._take_one_by_one(message, pending), self._outbound.fan_outs.slice_s
        if not do_slice(steps, PORTION_S if self._options.filtered else most_s):
            self._unfinished.append(steps)  # the log waits, so no message of another channel comes before

    def _take_together(
        self, channel: Channel, entry: Entry, publisher: Session | None, pending: PendingMessage
    ) -> bool:
        """Take it for all subscribers at once, if they are known and get every message."""
        known = self._cache.take(channel, entry, pending, self._unfinished)
        if known is None:
            return False
        if entry.position > self._heard:
            self._heard = entry.position
        if known.others:
            self._outbound.fan_out(entry, known.others, publisher)
        return True

    def _take_in_steps(self, message: LogMessage, pending: PendingMessage, *, is_usual: bool) -> Iterator[None]:
        """Hand the next message of the log to its subscribers in steps. That is when much must be applied before, or many
        subscribers are not known yet, or some of them have filters or groups."""
        node = self._access.node
        while node.fan_out.deliveries >= node.max_pending:  # or all would be applied at once
            yield from node.apply_in_steps()
        channel, entry, publisher, *_ = message
        if is_usual and self._cache.of(channel) is None:
            yield from self._cache.look_up(channel)
        if not (is_usual and self._take_together(channel, entry, publisher, pending)):
            yield from self._take_one_by_one(message, pending)

    def _take_one_by_one(self, message: LogMessage, pending: PendingMessage) -> Iterator[None]:
        """The general way, for a portion of the subscribers at a step."""
        channel, entry, publisher, _, sender, qos = message
        subscribers = self._channels.subscribers(channel)
        durables = stored_of(subscribers)
        if durables:
            subscribers = () if len(durables) == len(subscribers) else unstored_of(subscribers)
        if entry.position > self._heard:  # after a reload, what was taken before comes once more
            self._heard = entry.position
            if self._options.filtered:
                others = [session for session in subscribers if session is not publisher]
                self._options.fan_out(channel, entry, others, sender, qos)
            else:
                self._outbound.fan_out(entry, subscribers, publisher)
        fan_outs, steps = self._outbound.fan_outs, self._access.node.take_in_steps
        at_once = 0 if fan_outs.pending and entry.channel in fan_outs.pending else fan_outs.at_once
        for taken in steps(entry.position, channel.patterns[::-1], pending, durables, fan_outs.at_once):
            done, most = 0, min(at_once, len(taken))
            at_once -= most
            while done < most:  # to look at a full queue takes ten times as long as to put something into one
                part = range(done, min(done + fan_outs.step, most))
                done = self._deliverer.hand_over_some(taken, part, message, is_late=done > 0)
                if done < most:
                    yield
            if most < len(taken):
                fan_outs.add(entry.channel, self._deliverer.hand_over_rest(taken[most:], message))
            yield

    def take_late(self, durables: Iterable[DurableSession], channel: Channel, logged: Logged) -> None:
        """Hand a message that this server has passed to sessions that have come since and want it. They may have had it."""
        entry = Entry.read_back(logged)
        pending = PendingMessage(1, len(entry.wire), entry.channel, entry.priority, entry.expires)
        message = (channel, entry, None, logged.excluded, logged.sender, logged.qos)
        for durable in durables:
            durable.take(logged.id, pending)
            self._access.node.mark_dirty(durable)
            self._deliverer.hand_over(durable, message)


async def _ignored(reading: asyncio.Task[list[Logged]]) -> None:
    """Its answer is of no use any more, and it need not be there."""
    with suppress(StoreError):
        await reading
