"""Messages that are put back into the shared queue that they came from: because their receiver has failed them, or gets nothing
for the time being, or has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from crewel.broker.addressing.consumer_groups import ConsumerGroups
from crewel.broker.addressing.failures import Failure
from crewel.broker.addressing.shared_queues import SharedQueues
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, stored_of
from crewel.delivery.dispatcher import FailedDelivery
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.outcomes import POISON
from crewel.delivery.records import EndReason, LogId, PendingDeadLetter, PendingMessage, SessionName
from crewel.errors import StoreError
from crewel.errors.codes import is_below
from crewel.qos.names import ANONYMOUS, group_of, is_exclusive, subject_of
from crewel.storage import shared_queue_store
from crewel.storage.shared_queue_store import Requeued


@dataclass(eq=False)
class Requeue:
    """Puts messages of sessions back, for others."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _groups: ConsumerGroups
    _shared_queues: SharedQueues

    def __post_init__(self) -> None:
        self._access = self._runtime.access

    # While the session lives

    def try_other(self, session: Session, delivery: FailedDelivery) -> bool:
        """The session has failed a message, which its dispatcher has counted so many attempts of and forgotten; none if it
        would try again. Whether another one gets it: if it may go to any of several, and one is there, or else expected back,
        that has not failed it before. What is to be a dead letter becomes one at once."""
        entry, code, reason, attempts, given, tries = delivery
        place = entry.position
        waiting = session.mailbox.view().inbox.get(place)
        if waiting is None or not is_exclusive(waiting.source) or is_below(code, POISON):
            return False
        failures = self._shared_queues.failures
        before, name = failures.of(place), frozenset({session.name})
        failed = (*(each for each in before.by if each != session.name), session.name)
        if not self._has_others(waiting.source, failed, or_back_soon=attempts > 0):
            return False
        again = before.again or frozenset()
        failures.note(place, Failure(failed, code, reason, given, again - name if attempts else again | name))
        letter = PendingDeadLetter(SessionName(session.name), place, code, reason, given=given, tries=tries)
        self._requeue(session, [place], attempts, failed=True, letter=letter if attempts else None)
        return True

    def requeue_all(self, session: Session, queue: str = "") -> None:
        """The session gets nothing for the time being: let others have what it has not settled, where there are others; if
        a queue is named, only what came from that."""
        failures = self._shared_queues.failures
        places = [
            place
            for place, waiting in session.mailbox.view().inbox.items()
            if is_exclusive(waiting.source)
            and queue in ("", waiting.source)
            and self._has_others(waiting.source, (*failures.of(place).by, session.name))
        ]
        if places:
            self._requeue(session, places, failed=False)

    def rebalance(self, session: Session, names: Iterable[str]) -> None:
        """The session is there, and may have messages of these queues: let it have what members keep that are on hold or wait
        after a failure."""
        if session.durable is None:
            return
        for name in names:
            if not is_exclusive(name) or subject_of(name) == ANONYMOUS:
                continue
            for each in self._shared_queues.members(name):
                if each.mailbox.view().is_paused:
                    self.requeue_all(each, name)

    def sweep(self) -> None:
        """Let others have what members of groups have fetched that are on hold, or whose clients are gone."""
        if self._mailboxes.times.are_excused(self._runtime.loop.time()):
            return
        for name in self._groups.with_members():
            members = self._groups.members(name)
            # Without another member they keep it: a queue ends with the last member.
            if name in self._groups.elsewhere or any(map(self._shared_queues.is_able, members)):
                for session in members:
                    if session.mailbox.view().is_paused or self._shared_queues.is_gone(session):
                        self.requeue_all(session, name)

    def _has_others(self, name: str, but: Iterable[str], *, or_back_soon: bool = False) -> bool:
        shared = self._shared_queues
        if self._runtime.cluster.has_receivers:
            return True  # perhaps; the store knows, and what all members have failed comes back from it
        may_take = shared.may_take if or_back_soon else shared.is_able
        return any(each.name not in but and may_take(each.connected) for each in stored_of(shared.members(name)))

    def _requeue(
        self,
        session: Session,
        places: list[LogId],
        attempts: int = 0,
        *,
        failed: bool,
        letter: PendingDeadLetter | None = None,
    ) -> None:
        """`letter`: if the group of a failed message has no member any more, it becomes this. None: the session would try it
        again, and keeps it then, and also if all other members have failed it."""
        access, mailbox, name = self._access, session.mailbox, SessionName(session.name)
        if access.phase.is_adopting:
            return  # what has been read of the session may still have them, and then it gets them again
        durable, inbox = session.durable, mailbox.view().inbox
        given = {place: inbox[place] for place in places}
        sources = {waiting.source: None for waiting in given.values()}
        made = {place: mailbox.give_back(place) + attempts for place in places}

        def answered(answer: Requeued | StoreError) -> None:
            if not isinstance(answer, StoreError):
                self._runtime.metrics.ended[EndReason.RETURNED] += answer.returned
                for place in answer.stay:
                    if durable is not None and access.node.sessions.get(durable.name) is durable:
                        self._keep(durable, place, given[place]._replace(attempts=made[place]), letter)
            # Else the session has ended, and with it this; perhaps it was done before, and only the answer was lost.
            for source in sources:
                self._shared_queues.returned(source)

        again = failed and letter is None
        step = shared_queue_store.requeue(
            access.keys, access.token, name, made, access.facts_max, failed=failed, tries_again=again
        )
        access.writing.submit(step, answered, retries=True)

    def _keep(
        self, durable: DurableSession, place: LogId, waiting: PendingMessage, letter: PendingDeadLetter | None
    ) -> None:
        """The message is in the inbox still: at no node is there another member to try, as where a server is alone."""
        session: Session | None = durable.connected
        if letter is None and session is not None:
            self._shared_queues.keep(session, durable, place, waiting)
            return
        durable.arrived(place, waiting)
        if letter is not None:
            if session is not None:
                session.mailbox.forget_stored(place)  # it may be there again by a subscription
            durable.dead_letter(replace(letter, attempts=waiting.attempts))
        self._access.node.mark_dirty(durable)

    # When it ends

    def of(self, durable: DurableSession) -> dict[LogId, PendingMessage]:
        """What of an ending session goes back. A group whose last member this is gets nothing back: no session would take it
        from there. Of members at other nodes the store knows."""
        return {
            place: waiting
            for place, waiting in durable.inbox.items()
            if waiting.source and (group_of(waiting.source) is None or self._has_members(waiting.source))
        }

    def _has_members(self, name: str) -> bool:
        return bool(self._shared_queues.members(name)) or name in self._groups.elsewhere or name in self._groups.kept

    def ended(
        self, durable: DurableSession, returning: Mapping[LogId, PendingMessage], returned: Iterable[LogId]
    ) -> None:
        """A session has ended, and the store has put these messages of it back into their queues, unless others still have
        them. Of those that are not among `returning`, this server had not known."""
        shared, expected = self._shared_queues, self._shared_queues.take_expected(durable)
        if any(place not in returning for place in returned) and not expected:
            self._runtime.spawn(shared.load_again())
        # Also without an answer about them: a repeated end does not name what the first one requeued.
        for name in {*expected, *(waiting.source for waiting in returning.values())}:
            shared.returned(name)
