"""Scheduled messages: they are accepted now, and published by this server or another one when they are due.

Until then they are in the list of the store, and only there. The step that publishes one takes it out of the list, so it does
not matter how many servers try, or which of them are killed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.codec import encode, reread
from crewel.bayeux.message import Fields
from crewel.broker.handler_steps import Promise, outcome_of
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.payers import storing_account
from crewel.broker.publishing.broadcaster import Broadcaster, StoragePlan
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.topics.topic_table import TopicTable
from crewel.broker.writing.pending_publish import Published
from crewel.errors import CrewelError, IllegalArgument, Limited, StoreError, StoreUnavailable
from crewel.qos.publish import PublishQos, read_publish_qos
from crewel.storage import scheduled_messages
from crewel.storage.message_shares import counters
from crewel.storage.scheduled_messages import Scheduled, ScheduledMessage, Waiting

log = logging.getLogger(__name__)

AT_ONCE: Final = 256
"""Messages that are read and published together: as many as one step of the log takes."""
RETRY_MS: Final = 60_000
"""When a message is tried again that could not be published."""
AS: Final = "__scheduledAs"
"""The client property of a published message that names the id under which it was scheduled."""
_LIMIT: Final = "limits.max_scheduled"
_LATER: Final = frozenset({"deliverAt", "deliverAfter", "key"})
"""What holds when a message is accepted, and not when it is published."""
_WAIT_S: Final = 10.0
"""When a publisher may come again that has too many: until then, some may have been published."""


class Receipt(NamedTuple):
    """What a scheduled message is answered with."""

    id: str
    due_ms: int
    """When it will be published: milliseconds since 1970."""


@dataclass(eq=False)
class Scheduler:
    """Accepts scheduled messages, and publishes those that are due."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _topics: TopicTable
    _broadcaster: Broadcaster
    waiting: int = field(default=0, init=False)
    """How many messages are scheduled, as of the last look."""
    _is_looking: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._access, self._clock, self._ids = self._runtime.access, self._runtime.clock, self._runtime.ids
        self._pressure = self._mailboxes.pressure
        self._limits, self._cluster = self._runtime.settings.limits, self._runtime.cluster
        self._runtime.metrics.gauge("scheduled_messages", lambda: self.waiting)

    # To accept them

    def schedule(
        self, channel: Channel, fields: Fields, given: Fields, qos: PublishQos, publisher: Session | None, key: str
    ) -> Promise[Receipt]:
        """Keep a message until it is due; `given` is what its publisher asked for in `ext.publish`, and `key` has its scope.
        Raises StoreError, Limited if its publisher has too many, IllegalArgument for a time too far ahead."""
        if channel.is_reply:
            raise IllegalArgument("publish", "an answer is not scheduled: its requester does not wait for it")
        due_ms = qos.due_ms(now_ms := self._now_ms())
        self._check_time(qos, due_ms - now_ms)
        account, promise = "" if publisher is None else storing_account(publisher), Promise[Receipt]()
        first = self._ids.stored.first_of(key := f"{key} scheduled") if qos.key else None
        if first is not None:
            promise.resolve(Receipt(first, due_ms))
            return promise
        body = encode(fields)
        if self._access.require_writable():
            self._runtime.stored_shares.admit(publisher, len(body))
        is_excluded = publisher is not None and self._broadcaster.excludes(publisher, channel)
        sender = "" if publisher is None else publisher.name
        asked = encode({name: value for name, value in given.items() if name not in _LATER})
        message = Waiting(due_ms, channel.name, body, sender, sender if is_excluded else "", asked, account)
        is_limited = publisher is not None and not publisher.is_operator
        step = scheduled_messages.schedule(
            self._access.keys,
            self._access.token,
            message,
            self._limits.max_scheduled if is_limited else 0,
            self._access.facts_max,
            key if qos.key else "",
            qos.key,
        )

        def answered(answer: Scheduled | StoreError) -> None:
            if isinstance(answer, Scheduled) and answer.id and qos.key:
                self._ids.stored.remember(key, str(answer.id))
            promise.resolve(self._receipt(answer, due_ms, account))

        self._access.writing.submit(step, answered, size=len(body))
        return promise

    def _check_time(self, qos: PublishQos, ahead_ms: int) -> None:
        most = self._limits.max_deliver_after_ms
        if 0 < most < ahead_ms:
            name = "deliverAt" if qos.deliver_at_ms else "deliverAfter"
            raise IllegalArgument(name, f"must be at most {most} ms ahead (limits.max_deliver_after_ms)")

    def _receipt(self, answer: Scheduled | StoreError, due_ms: int, account: str) -> Receipt | CrewelError:
        if isinstance(answer, StoreError):
            self._access.suspect(answer)
            return answer
        if not answer.id:
            self._runtime.metrics.limited["max_scheduled"] += 1
            self._runtime.metrics.limited_last["max_scheduled"] = account
            return Limited(
                _LIMIT, f"{account} has {self._limits.max_scheduled} scheduled messages", _WAIT_S, Limited.CAP
            )
        if not answer.is_repeated:
            self._access.answered.note(answer.prev, [answer.id])
            if answer.prev == self._access.node.cursor:
                self._access.node.skip(answer.id)  # the log has nothing there
        return Receipt(str(answer.id), due_ms)

    # To publish them

    def sweep(self) -> None:
        """Publish what is due, in a task."""
        access, life = self._access, self._runtime.life
        if access.is_writable and access.trouble is None and not (self._is_looking or life.is_draining):
            self._runtime.spawn(self.publish_due())

    async def publish_due(self) -> None:
        """Publish all that is due."""
        self._is_looking = True
        try:
            store = self._access.store
            self.waiting = await scheduled_messages.count(store)
            if self.waiting:
                until_ms = self._now_ms() - await self._patience_ms()
                while await self._publish(await scheduled_messages.due(store, until_ms, AT_ONCE)):
                    pass
        except StoreError as error:
            log.warning("scheduled messages could not be published: %s", error)
        finally:
            self._is_looking = False

    async def _patience_ms(self) -> int:
        """How long this server leaves what is due to the first one of the store. That one may hang, or be of a version that has
        no schedule."""
        if self._cluster.is_single or (await counters(self._access.store))[:1] == [self._access.token]:
            return 0
        return self._runtime.settings.cluster.lease_ms

    async def _publish(self, due: list[ScheduledMessage]) -> bool:
        """Publish these. Returns whether there may be more. Raises StoreError: then some are left."""
        if not due or not self._access.serves_sessions or self._runtime.life.is_draining:
            return False
        if self._pressure.is_on:
            relief = self._pressure.relief([each.message.channel for each in due])
            if relief is not None:
                await relief
        begun = [(each, self._begin(each)) for each in due]
        failures: list[StoreError] = []
        for each, promise in begun:
            outcome = await outcome_of(promise)
            if isinstance(outcome, StoreError):
                failures.append(outcome)
            elif isinstance(outcome, Exception):
                await self._postpone(each, outcome)
        if failures:
            raise failures[0]
        return len(due) == AT_ONCE

    def _begin(self, scheduled: ScheduledMessage) -> Promise[Published]:
        """Publish one as if its publisher did so now. The promise has what prevents it."""
        message = scheduled.message
        channel = parse(message.channel)
        assert channel is not None
        try:
            given: Fields = reread(message.asked)
            given["clientProperties"] = {**given.get("clientProperties", {}), AS: scheduled.id}
            qos = read_publish_qos(given, self._topics.usual(channel))
            plan = self._broadcaster.plan_storage(channel, qos) or StoragePlan()
            try:
                return self._broadcaster.store_due(channel, reread(message.body), plan, qos, scheduled)
            except BaseException:
                self._topics.refused(channel.name)
                raise
        except Exception as error:  # noqa: BLE001 - it becomes the reason, and must not hold up the others
            failed: Promise[Published] = Promise()
            failed.resolve(error)
            return failed

    async def _postpone(self, scheduled: ScheduledMessage, why: Exception) -> None:
        reason = str(why) or type(why).__name__
        log.warning(
            "the scheduled message %s is not published on %s: %s", scheduled.id, scheduled.message.channel, reason
        )
        access, next_ms = self._access, self._now_ms() + RETRY_MS
        step = scheduled_messages.postpone(access.keys, access.token, scheduled.id, next_ms, reason)
        await access.writing.ask(step, unordered=True)

    # To cancel them

    async def cancel(self, ids: list[str], who: str = "", account: str = "") -> int:
        """Take these messages out of the list for good, with an account only its own; returns how many were there. Raises
        StoreError."""
        access = self._access
        if not access.has_store or access.trouble is not None:
            raise StoreUnavailable(access.trouble or "this server has no store")
        cancelled: int = await access.writing.ask(
            scheduled_messages.cancel(access.keys, access.token, ids, access.facts_max, who, account)
        )
        return cancelled

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
