"""One session as a subscriber: how its subscriptions begin, end and fail.

There are two kinds: the subscriptions of a `MemorySubscriber` end with the process, those of a
`StoredSubscriber` are steps of the store.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crewel.bayeux.codec import reread
from crewel.broker.handler_steps import Steps
from crewel.broker.session import Session
from crewel.broker.subscriptions.history_start import HistoryRead, HistoryReads, ReplayRequest, ReplayResult
from crewel.broker.subscriptions.options import Choices, SubscriptionOptions
from crewel.broker.subscriptions.subscription_store import Beginning, SubscriptionStore
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, notice_entry
from crewel.delivery.records import LogId, PendingMessage
from crewel.errors import IllegalArgument, Refused, StoreError, StoreUnavailable
from crewel.qos.publish import NORMAL
from crewel.qos.subscribe import SubscribeQos
from crewel.qos.update import FAILED

Waiting = asyncio.Future[Any] | None
"""What has to be awaited, and then raises StoreError; None: it is done."""
Failure = dict[str, str]
"""`{"errorCode", "message"}`."""


class Subscriber(ABC):
    """One session as a subscriber."""

    @abstractmethod
    def check(self, qos: SubscribeQos) -> None:
        """Raise IllegalArgument if this cannot be had."""

    @abstractmethod
    def subscribe(self, wanted: Mapping[str, Choices]) -> Waiting:
        """Subscribe to these patterns, and want this of them, from now on."""

    @abstractmethod
    def subscribe_after(
        self, wanted: Mapping[str, Choices], starts: list[ReplayRequest], result: ReplayResult
    ) -> Steps[None]:
        """Subscribe to these patterns, and want this of them, after what the histories have. Raises StoreError and Refused."""

    @abstractmethod
    def unsubscribe(self, patterns: Iterable[str]) -> Waiting:
        """End these subscriptions."""

    @abstractmethod
    def part(self, channel: str, *, ends: bool, tells: bool, why: str = "") -> Waiting:
        """The topic of this channel was erased; or, with `why` (a Failure as JSON), the subscription to this pattern fails.
        `ends`: the subscription to it ends. `tells`: the session gets the notice, behind all that came before."""

    @abstractmethod
    def end(self) -> None:
        """The session has ended, and so has what the store has of it."""

    # Notices

    @abstractmethod
    def failures(self) -> dict[str, Failure]:
        """Why subscriptions have failed, by pattern, of which the session has not settled the notice."""

    @abstractmethod
    def withdraw_erased(self, channels: Collection[str]) -> None:
        """The notices that these topics were erased do not leave any more, as far as they have not left."""

    @abstractmethod
    def withdraw_failure(self, pattern: str) -> bool:
        """The notice that the subscription has failed does not leave any more. False if it has left before."""


@dataclass(slots=True)
class MemorySubscriber(Subscriber):
    """A session that the store does not have."""

    _parts: Subscribers
    _session: Session

    def check(self, qos: SubscribeQos) -> None:
        """Raise IllegalArgument if this needs the store."""
        if qos.persistent:
            raise IllegalArgument(
                "persistent", "must be false: the store does not have the session; handshake with ext.ack"
            )
        if qos.choice.group:
            raise IllegalArgument("group", "needs a session that the store has; handshake with ext.ack")

    def subscribe(self, wanted: Mapping[str, Choices]) -> None:
        """Subscribe to these patterns, and want this of them, from now on."""
        for pattern, choices in wanted.items():
            self._parts.options.enter(self._session, pattern, choices)

    def subscribe_after(
        self, wanted: Mapping[str, Choices], starts: list[ReplayRequest], result: ReplayResult
    ) -> Steps[None]:
        """Subscribe to these patterns, and want this of them, after what the histories have. Raises StoreError and Refused."""
        access = self._parts.readers.runtime.access
        if starts and access.has_store:
            if access.phase.is_reloading:
                raise StoreUnavailable(access.trouble)
            reading = HistoryRead(self._parts.readers, self._session, wanted, starts, result)
            answered = self._parts.options.ask(self._session, wanted)

            def enter() -> None:
                answered()
                self.subscribe(wanted)

            try:
                yield reading.begin(enter)
            finally:
                answered()
        elif self._session.is_live:
            self.subscribe(wanted)

    def unsubscribe(self, patterns: Iterable[str]) -> None:
        """End these subscriptions."""
        for pattern in patterns:
            self._parts.options.leave(self._session, pattern)

    def part(self, channel: str, *, ends: bool, tells: bool, why: str = "") -> None:
        """End the subscription, send the notice, or both."""
        if ends:
            self._parts.options.leave(self._session, channel)
        if tells:
            notice = PendingMessage(channel=channel)
            priorities = [each.priority for each in self._session.mailbox.in_memory() if notice.is_about(each.channel)]
            notice = notice._replace(priority=min([NORMAL, *priorities]))
            stamp = self._parts.readers.runtime.ids.stamp()
            self._parts.readers.outbound.enqueue(self._session, notice_entry(notice, LogId(0), why, stamp))

    def end(self) -> None:
        """The store has nothing of it."""

    def failures(self) -> dict[str, Failure]:
        """Why subscriptions have failed, by pattern, of which the notice waits."""
        queue = self._session.mailbox.queue
        return {each.channel: reread(each.wire)["ext"]["subscribe"] for each in queue if _is_failure(each)}

    def withdraw_erased(self, channels: Collection[str]) -> None:
        """The notices that these topics were erased do not leave any more, as far as they have not left."""
        _withdraw_erased(self._session, channels)

    def withdraw_failure(self, pattern: str) -> bool:
        """The notice that the subscription has failed does not leave any more: it waits."""
        self._session.mailbox.drop_where(lambda entry: _is_failure(entry) and entry.channel == pattern)
        return True


@dataclass(slots=True)
class StoredSubscriber(Subscriber):
    """A session that the store has. Its notices are kept there, too."""

    _parts: Subscribers
    _session: Session
    _durable: DurableSession

    def check(self, qos: SubscribeQos) -> None:
        """Everything can be had."""

    def subscribe(self, wanted: Mapping[str, Choices]) -> Waiting:
        """Subscribe to these patterns, and want this of them, from the place that the store says."""
        return self._parts.stored.subscribe(self._session, self._durable, wanted) if wanted else None

    def subscribe_after(
        self, wanted: Mapping[str, Choices], starts: list[ReplayRequest], result: ReplayResult
    ) -> Steps[None]:
        """Subscribe to these patterns after what the histories have: they are read by a step after the one that subscribes."""
        stored, durable, readers = self._parts.stored, self._durable, self._parts.readers
        if not starts:
            if wanted:
                yield stored.subscribe(self._session, durable, wanted)
            return
        reading = HistoryRead(readers, self._session, wanted, starts, result)
        failures: list[StoreError | Refused] = []
        held = {*durable.since}
        new = [name for name in wanted if name not in held]

        def begin(answer: Mapping[str, LogId]) -> None:
            try:
                reading.finish(answer, held.union(durable.since))
            except (StoreError, Refused) as failure:
                failures.append(failure)

        yield stored.subscribe(self._session, durable, wanted, Beginning(reading.ask, begin))
        if failures:
            if new and self._session.durable is durable:
                yield stored.unsubscribe(self._session, durable, new)
            raise failures[0]

    def unsubscribe(self, patterns: Iterable[str]) -> Waiting:
        """End these subscriptions, as far as there are any."""
        held = [pattern for pattern in patterns if pattern in self._session.subscriptions]
        return self._parts.stored.unsubscribe(self._session, self._durable, held) if held else None

    def part(self, channel: str, *, ends: bool, tells: bool, why: str = "") -> Waiting:
        """End the subscription, send the notice, or both. The store does either."""
        return self._parts.stored.erase(self._session, self._durable, channel, ends=ends, tells=tells, why=why)

    def end(self) -> None:
        """The session has ended, and so has what the store has of it."""
        self._parts.stored.end(self._durable)
        self._session.leave_store()

    def failures(self) -> dict[str, Failure]:
        """Why subscriptions have failed, by pattern, of which the session has not settled the notice."""
        waiting = {each.channel for each in self._durable.notices.values()}
        return {name: reread(why.encode()) for name, why in self._durable.failed.items() if name in waiting}

    def withdraw_erased(self, channels: Collection[str]) -> None:
        """The notices that these topics were erased do not leave any more, as far as they have not left."""
        _withdraw_erased(self._session, channels)
        places: dict[str, list[LogId]] = {}
        for place, each in self._durable.notices.items():
            if each.channel in channels and each.channel not in self._durable.failed:  # else it is another notice
                places.setdefault(each.channel, []).append(place)
        view = self._session.mailbox.view()
        for channel, some in places.items():
            if not any(map(view.is_open, some)):  # else the client has it
                self._forget_notice(channel)

    def withdraw_failure(self, pattern: str) -> bool:
        """The notice that the subscription has failed does not leave any more. False if it has left before."""
        mailbox, [place] = self._session.mailbox, self._places(pattern)
        if mailbox.view().is_open(place):
            return False  # its client has it, and knows it if it comes again
        is_unsent = self._durable.is_evicted(place) or any(entry.position == place for entry in mailbox.queue)
        mailbox.forget_stored(place)
        self._forget_notice(pattern)
        return is_unsent

    def _places(self, channel: str) -> list[LogId]:
        return [place for place, each in self._durable.notices.items() if each.channel == channel]

    def _forget_notice(self, channel: str) -> None:
        self._durable.forget_notice(channel)
        self._parts.readers.runtime.access.node.mark_dirty(self._durable)


@dataclass(frozen=True, slots=True)
class Subscribers:
    """The sessions of one broker as subscribers."""

    options: SubscriptionOptions
    stored: SubscriptionStore
    readers: HistoryReads

    def of(self, session: Session) -> Subscriber:
        """This session."""
        durable = session.durable
        return MemorySubscriber(self, session) if durable is None else StoredSubscriber(self, session, durable)


def _withdraw_erased(session: Session, channels: Collection[str]) -> None:
    session.mailbox.drop_where(lambda entry: entry.is_notice and entry.channel in channels and not _is_failure(entry))


def _is_failure(entry: Entry) -> bool:
    return entry.origin is not None and entry.origin.state == FAILED
