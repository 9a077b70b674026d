"""One session as a subscriber: how its subscriptions begin, end and fail.

There are two kinds: the subscriptions of a `MemorySubscriber` end with the process, those of a
`StoredSubscriber` are steps of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crewel.broker.handler_steps import Steps
from crewel.broker.mailboxes.notices import Notices
from crewel.broker.session import Session
from crewel.broker.subscriptions.history_start import HistoryRead, HistoryReads, ReplayRequest, ReplayResult
from crewel.broker.subscriptions.options import Choices, SubscriptionOptions
from crewel.broker.subscriptions.subscription_store import Beginning, SubscriptionStore
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import LogId
from crewel.errors import IllegalArgument, Refused, StoreError, StoreUnavailable
from crewel.qos.subscribe import SubscribeQos

Waiting = asyncio.Future[Any] | None
"""What has to be awaited, and then raises StoreError; None: it is done."""


@dataclass(slots=True)
class MemorySubscriber:
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
        """The topic of this channel was erased; or, with `why` (a Failure as JSON), the subscription to this pattern fails.
        `ends`: the subscription to it ends. `tells`: the session gets the notice, behind all that came before."""
        if ends:
            self._parts.options.leave(self._session, channel)
        if tells:
            readers, session = self._parts.readers, self._session
            notice = Notices(session.mailbox).transient(channel, why, readers.runtime.ids.stamp())
            readers.outbound.enqueue(session, notice)

    def end(self) -> None:
        """The store has nothing of it."""


@dataclass(slots=True)
class StoredSubscriber:
    """A session that the store has."""

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
        """End the subscription, send the notice, or both, as of a `MemorySubscriber`. The store does either."""
        return self._parts.stored.erase(self._session, self._durable, channel, ends=ends, tells=tells, why=why)

    def end(self) -> None:
        """The session has ended, and so has what the store has of it."""
        self._parts.stored.end(self._durable)
        self._session.leave_store()


Subscriber = MemorySubscriber | StoredSubscriber


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
