"""What lower parts of a broker report to higher ones: the only calls that go up.

A part calls the parts below it directly. What it has to say to those above it, it says to a listener: a protocol in the module
`listeners` of its package, which it gets when it is made. `UpwardCalls` is the listener of all of them, so each method here
says which part receives what. It is made first, and called only when the broker is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from crewel.bayeux.message import Message
from crewel.broker.exchange import Peer
from crewel.broker.session import Event, Session
from crewel.broker.writing.pending_publish import PendingPublish
from crewel.delivery.dispatcher import FailedDelivery
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import PendingDeadLetter, SessionRecord, Submission
from crewel.errors import StoreError
from crewel.storage.log import Appended
from crewel.storage.script_step import Step

if TYPE_CHECKING:
    from crewel.broker.broker import Broker


class UpwardCalls:
    """Passes on what the parts of one broker report."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # To shared queues

    def is_active(self, session: Session) -> None:
        """The session takes messages of shared queues again."""
        self._broker.addressing.on_connect(session)

    def has_capacity(self, session: Session) -> None:
        """The queue of the session may have capacity again for messages of shared queues."""
        self._broker.addressing.shared_queues.on_capacity(session)

    def is_blocked(self, session: Session) -> None:
        """The session takes no messages of shared queues for the time being."""
        self._broker.addressing.requeue.requeue_all(session)

    def try_other(self, session: Session, failed: FailedDelivery) -> bool:
        """Whether another session gets a message that this one has failed."""
        return self._broker.addressing.requeue.try_other(session, failed)

    # To topics and subscriptions

    def topic_count(self) -> int:
        """How many topics there are."""
        return len(self._broker.topics.table.known)

    def new_member(self, queue: str) -> None:
        """The group with this queue has a new member."""
        self._broker.topics.endings.stays_in(queue)

    def wants_notice(self, session: Session, pattern: str) -> bool:
        """Whether the session, which is subscribed to this channel or pattern, asked for the notice that a topic was erased."""
        return self._broker.subscriptions.options.wants_notice(session, pattern)

    def part(self, session: Session, channel: str, *, ends: bool, tells: bool) -> asyncio.Future[Any] | None:
        """End the session's subscription to this topic, send it the notice, or both."""
        return self._broker.subscriptions.of(session).part(channel, ends=ends, tells=tells)

    # To the log and to dead letters

    def append_step(self, submissions: list[Submission]) -> Step[Appended]:
        """Return the step that appends these to the log."""
        return self._broker.durability.appender.append_step(submissions)

    def appended(self, group: list[PendingPublish], answer: Appended | StoreError) -> Awaitable[None] | None:
        """The store has answered to such a step. What is returned must be waited for before the answers that follow."""
        return self._broker.durability.appender.appended(group, answer)

    def committed(self) -> Awaitable[bool]:
        """Wait until the store knows how all has ended that has ended so far; False if nothing is committed any more."""
        return self._broker.durability.committed()

    def letters_stored(self, letters: Iterable[PendingDeadLetter], dead_ids: Sequence[str]) -> None:
        """The store has these dead letters since just now, under these ids."""
        self._broker.dead_letters.notifier.stored(letters, dead_ids)

    # To sessions

    def restore(self, durable: DurableSession, record: SessionRecord, former: Session | None) -> None:
        """The store has this session: it lives again, as it was in this server before, if it was there."""
        session = self._broker.sessions.restorer.restore(durable, record, former)
        self._broker.presence.restored(session)

    def set_aside(self, session: Session) -> None:
        """The session will be read from the store again."""
        self._broker.sessions.table.set_aside(session)

    def end(self, session: Session, event: Event) -> None:
        """The session ends."""
        self._broker.sessions.table.remove(session, event)

    def disconnect(self, session: Session) -> None:
        """The server ends the session, and advises its client not to come back."""
        self._broker.sessions.table.disconnect(session)

    # To what answers clients, and to the server as a whole

    def answer_seen(self, session: Session, peer: Peer, message: Message, *, passes: bool) -> None:
        """A plain connect cannot be held any more once the extensions have seen it."""
        self._broker.inbound.answer_seen(session, peer, message, passes=passes)

    def superseded(self) -> None:
        """Another server has taken over the store."""
        self._broker.lose_store()
