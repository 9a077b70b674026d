"""The open messages of one session, wherever they are: in its queue, at its client, or evicted to the store.

Stored messages are moved by their place in the log: what must wait again is evicted, and read back by priority and age. So a
message that is delivered again keeps its place, and no queue is sorted. Transient ones are few, and stay in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from crewel.bayeux.channel import SYSTEM
from crewel.broker.durability.access import StoreAccess
from crewel.broker.ids import Ids
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.session_queue.expiry import Expiry
from crewel.delivery.dispatcher import NO_DISPATCHER
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, place_of
from crewel.delivery.outcomes import INTERNAL_ERROR, MAX_REASON
from crewel.delivery.records import EndReason, LogId, PendingDeadLetter, Transient
from crewel.qos.update import Origin

log = logging.getLogger(__name__)


@dataclass(eq=False)
class OpenMessages:
    """Moves and ends messages of sessions that are live here."""

    _runtime: Runtime
    _ids: Ids
    _expiry: Expiry
    _access: StoreAccess

    # Waiting

    def count(self, session: Session) -> int:
        """How many messages wait, are sent, or are open for the session."""
        stored = 0 if session.durable is None else len(session.durable)
        return stored + len(session.transients())

    def size(self, session: Session) -> int:
        """Their bytes."""
        stored = 0 if session.durable is None else session.durable.size
        return stored + sum(len(entry.wire) for entry in session.transients())

    def stored(self, session: Session) -> list[LogId]:
        """The places of the stored ones, in their order: by priority and age."""
        return [] if session.durable is None else session.durable.in_order()

    # Waiting again

    def recall(self, session: Session, entries: Iterable[Entry] = ()) -> None:
        """Let these, which were sent, wait again in their place; and let all that is stored wait in the store."""
        session.batches.unbatch()
        durable = session.durable
        queued = session.queue
        if durable is not None:
            for place in {each.position for each in (*entries, *queued) if each.position}:
                if durable.find(place) is not None and not durable.is_evicted(place):
                    durable.evict(place)
            queued = [each for each in queued if not each.position]
            entries = [each for each in entries if not each.position]
        session.replace(_in_order(dict.fromkeys((*entries, *queued))))
        session.note_retained()

    def renew(self, session: Session) -> None:
        """Another client continues the session: all that was sent goes out again."""
        if session.dispatcher is NO_DISPATCHER:
            session.forget_sent()
        else:
            entries = dict.fromkeys((*session.dispatcher.forget(), *session.batches.reset()))
            self.recall(session, entries)
            session.dispatcher.flushes = bool(
                session.queue or (session.durable is not None and session.durable.evicted)
            )

    def notices_after(self, session: Session, entries: Iterable[Entry]) -> list[Entry]:
        """What was sent to tell what has happened to the topics or subscriptions of these, which wait again: it comes after
        them, so it waits again too. Nothing waits for its status any more."""
        durable, dispatcher = session.durable, session.dispatcher
        if durable is None or not durable.notices:
            return []
        found = [durable.find(each.position) for each in entries]
        channels = {each.channel for each in found if each is not None}
        channels.update(each.channel for each in entries if not each.position)
        notices = [entry for entry, _ in dispatcher.in_flight.values() if entry.position in durable.notices]
        after = [each for each in notices if any(durable.notices[each.position].is_about(name) for name in channels)]
        for entry in after:
            dispatcher.close(entry)
        return after

    # Ends

    def end(self, session: Session, entry: Entry, reason: EndReason) -> None:
        """The message has ended in this way."""
        session.take_out(entry)
        if entry.position and session.durable is not None:
            session.durable.end_message(entry.position, reason)
            self._access.node.mark_dirty(session.durable)

    def dead_letter(
        self, session: Session, entry: Entry, code: str, reason: str, attempts: int, given: str = "", tries: str = ""
    ) -> None:
        """The message becomes a dead letter. One of the server's own about itself only ends, and so does one of a session
        that the store does not have. `given` is the code as the receiver gave it, if another one counts; `tries` are the
        earlier attempts."""
        session.take_out(entry)
        self.dead_letter_new(session, entry, code, reason, given, attempts, tries)

    def dead_letter_new(
        self,
        session: Session,
        entry: Entry,
        code: str,
        reason: str,
        given: str = "",
        attempts: int = 0,
        tries: str = "",
    ) -> None:
        """Make a dead letter of a message that was not queued for the session. One of the server about itself is dropped."""
        durable = session.durable
        has_none = entry.is_oneway or entry.is_notice or entry.channel.startswith(SYSTEM)
        if durable is None or has_none:
            self._runtime.metrics.dropped["noLetter"] += 1
            self.drop_new(session, entry)
        else:
            message = None if entry.position else self._as_transient(entry)
            pending = durable.pending.get(entry.position) or durable.inbox.get(entry.position)
            attempts += 0 if pending is None else pending.attempts
            durable.dead_letter(
                PendingDeadLetter(durable.name, entry.position, code, reason, attempts, message, given, tries)
            )
            self._access.node.mark_dirty(durable)

    def drop_new(self, session: Session, entry: Entry) -> None:
        """A message that was not queued for the session ends, and leaves nothing behind."""
        durable = session.durable
        if durable is not None:
            if entry.position:
                durable.end_message(entry.position, EndReason.DROPPED)
            self._access.node.mark_dirty(durable)

    def dead_letter_unsendable(self, session: Session, entry: Entry, error: Exception) -> None:
        """The server has failed to make of the message what its receiver gets: it becomes a dead letter, for it would fail
        each time."""
        log.error("a message on %s could not be sent, and becomes a dead letter: %r", entry.channel, error)
        log.debug("where that happened", exc_info=error)
        if not entry.channel.startswith("/meta/"):
            self.dead_letter(session, entry, INTERNAL_ERROR, f"the server could not send it: {error}"[:MAX_REASON], 0)

    def _as_transient(self, entry: Entry) -> Transient:
        """A message that is not stored, as the record of its dead letter has it."""
        origin = entry.origin or Origin(*self._ids.stamp())
        return Transient(origin.id, origin.received, entry.channel, entry.wire, origin.sender, origin.qos)

    def dead_letter_stored(self, session: Session, place: LogId, code: str, reason: str, given: str = "") -> bool:
        """The stored message at this place becomes a dead letter; False if it is not open."""
        durable = session.durable
        if durable is None:
            return False
        pending = durable.pending.get(place) or durable.inbox.get(place)
        if pending is None:
            return False
        attempts, tries = self.attempts(session, place), session.dispatcher.failed_before(str(place))
        self.forget_stored(session, place)
        durable.dead_letter(PendingDeadLetter(durable.name, place, code, reason, attempts, given=given, tries=tries))
        self._access.node.mark_dirty(durable)
        return True

    def drop_stored(self, session: Session, place: LogId, reason: EndReason = EndReason.DROPPED) -> None:
        """The stored message at this place ends, and leaves nothing behind."""
        durable = session.durable
        if durable is not None:
            self.forget_stored(session, place)
            durable.end_message(place, reason)
            self._access.node.mark_dirty(durable)

    def drop_evicted(self, session: Session, place: LogId) -> None:
        """The evicted message at this place ends. The queue does not have it, and is not looked through."""
        durable, dispatcher = session.durable, session.dispatcher
        sent = session.batches.unacknowledged
        if any(each.position == place for each in sent) or str(place) in dispatcher.in_flight:
            self.drop_stored(session, place)
        elif durable is not None:
            durable.forget_evicted(place)
            durable.end_message(place, EndReason.DROPPED)
            self._access.node.mark_dirty(durable)

    def drop_queued(self, session: Session, index: int) -> None:
        """The message at this place of the queue ends."""
        entry = session.queue[index]
        sent = session.batches.unacknowledged
        if entry in sent:  # put back by a failure, and its batch is not acknowledged yet
            self.end(session, entry, EndReason.DROPPED)
            return
        session.drop_at(index)
        session.dispatcher.close(entry)
        if entry.position and session.durable is not None:
            session.durable.end_message(entry.position, EndReason.DROPPED)
            self._access.node.mark_dirty(session.durable)

    def end_messages(
        self, session: Session, places: Collection[LogId], entries: Collection[Entry], reason: EndReason
    ) -> None:
        """The stored messages at these places, and these entries which are not stored, end in this way, at the cost of one
        look at everything that waits for the session."""
        durable = session.durable
        session.take_out_many(
            dict.fromkeys((*entries, *(each for each in session.in_memory() if each.position in places)))
        )
        if session.is_reliable:
            self._runtime.metrics.ended[reason] += len(entries)
        if durable is not None and places:
            durable.end_messages(places, reason)
            self._access.node.mark_dirty(durable)

    def forget_stored(self, session: Session, place: LogId) -> None:
        """Memory has it no more, wherever it was."""
        for entry in [each for each in session.in_memory() if each.position == place]:
            session.take_out(entry)
        session.drop_where(lambda entry: entry.position == place)
        if session.durable is not None:
            session.durable.forget_evicted(place)

    def conflate(self, session: Session, channel: str, newest: LogId) -> None:
        """The session wants the newest message of this channel only: all earlier ones that wait for it end. What its client
        has got stays; `newest` is the place of the one that comes now, 0 if it has none."""
        durable = session.durable
        if not session.queue and (durable is None or not durable.pending):
            return
        if durable is not None:
            for place in _never_sent(session, durable, channel, newest):
                self.drop_stored(session, place, EndReason.FILTERED)
        for entry in [each for each in session.queue if each.channel == channel and not each.to]:
            if durable is None or not entry.position:  # else it was settled above, or has been redriven
                self.end(session, entry, EndReason.FILTERED)
                session.drop(entry)

    def attempts(self, session: Session, place: LogId) -> int:
        """How often the stored message at this place may have been sent to the session."""
        pending = None if session.durable is None else session.durable.find(place)
        return self._attempts(session, str(place)) + (0 if pending is None else pending.attempts)

    def dead_letter_transients(self, session: Session, code: str, reason: str, given: str = "") -> None:
        """All that is not stored becomes dead letters: it cannot be delivered any more."""
        for entry in session.transients():
            self._dead_letter_open(session, entry, code, reason, given)
        session.drop_where(lambda entry: not (entry.position or entry.channel.startswith("/meta/")))

    def _dead_letter_open(self, session: Session, entry: Entry, code: str, reason: str, given: str = "") -> None:
        attempts = 0 if entry.origin is None else self._attempts(session, entry.origin.id)
        tries = "" if entry.origin is None else session.dispatcher.failed_before(entry.origin.id)
        self.dead_letter(session, entry, code, reason, attempts, given, tries)

    @staticmethod
    def _attempts(session: Session, message_id: str) -> int:
        """How often this server may have sent the message."""
        dispatcher = session.dispatcher
        return dispatcher.tries.get(message_id, 0) + (message_id in dispatcher.in_flight)

    def leave_attempts(self, session: Session) -> None:
        """The session ends: the dead letters of what is stored are written by its durable half, which has to know."""
        dispatcher, durable = session.dispatcher, session.durable
        if durable is not None:
            for message_id in {*dispatcher.tries, *dispatcher.in_flight}:
                if message_id.isdecimal():
                    tries = dispatcher.failed_before(message_id)
                    durable.attempted(LogId(int(message_id)), self._attempts(session, message_id), tries)

    # What operators do

    def has(self, session: Session, message_id: str) -> bool:
        """Whether the message of this id waits for the session."""
        if any(entry.origin is not None and entry.origin.id == message_id for entry in session.transients()):
            return True
        durable = session.durable
        return durable is not None and message_id.isdigit() and durable.find(LogId(int(message_id))) is not None

    def dead_letter_one(self, session: Session, message_id: str, code: str, reason: str) -> bool:
        """Make a dead letter of the message of this id, or else of the first; False if nothing waits."""
        for entry in session.transients():
            if message_id and entry.origin is not None and entry.origin.id == message_id:
                self._dead_letter_open(session, entry, code, reason)
                return True
        places = self.stored(session)
        if places:
            held = next((place for place in places if str(place) == message_id), places[0])
            return self.dead_letter_stored(session, held, code, reason)
        for entry in session.transients()[:1]:
            self._dead_letter_open(session, entry, code, reason)
            return True
        return False

    def dead_letter_all(self, session: Session, code: str, reason: str, given: str = "") -> int:
        """Make dead letters of all waiting messages; returns how many."""
        self._expiry.remove_expired(session)
        count = self.count(session)
        self.renew(session)
        self.dead_letter_transients(session, code, reason, given)
        if session.durable is not None:
            durable = session.durable
            durable.evicted = [rank for rank in durable.evicted if place_of(rank) in durable.notices]
            self._take_out_stored(session, self.stored(session))
            for place in self.stored(session):
                self.dead_letter_stored(session, place, code, reason, given)
        return count

    def drop(self, session: Session, count: int) -> int:
        """Drop the first so many of the waiting messages, the stored ones first; returns how many."""
        places = self.stored(session)[:count]
        entries = session.transients()[: count - len(places)]
        self._take_out_stored(session, places, entries)
        if session.durable is not None and places:
            session.durable.end_messages(places, EndReason.DROPPED)
            self._access.node.mark_dirty(session.durable)
        session.note_retained()
        return len(places) + len(entries)

    @staticmethod
    def _take_out_stored(session: Session, places: Iterable[LogId], others: Iterable[Entry] = ()) -> None:
        """Memory has the messages at these places and these entries no more, at the cost of one look at the waiting
        messages."""
        wanted = set(places)
        gone = dict.fromkeys((*others, *(each for each in session.in_memory() if each.position in wanted)))
        session.take_out_many(gone)


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Messages that are not stored, by priority and as they came. One without an origin, such as the answer to a remote call,
    cannot be put back: it stays behind the one before it."""
    places: list[tuple[int, int, int, Entry]] = []
    came = 0
    for entry in entries:
        came = came if entry.origin is None else int(entry.origin.received)
        places.append((-entry.priority, came, len(places), entry))
    return [entry for *_, entry in sorted(places)]


def _never_sent(session: Session, durable: DurableSession, channel: str, newest: LogId) -> list[LogId]:
    """The places of the channel's stored messages that are open and not at the client."""
    queued = {entry.position for entry in session.queue}  # what goes out again is there too
    sent = {entry.position for entry in session.in_memory()} - queued
    return [
        place
        for place, pending in durable.pending.items()
        if pending.channel == channel and place != newest and place not in sent
    ]
