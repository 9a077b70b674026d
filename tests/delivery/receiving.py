"""A small model of what the broker does with messages that clients fail to take: it moves them as
`dispatcher_runner` does, with real mailboxes and the real engine, and looks after each move that none is in limbo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.mailbox_listener import Occasion
from crewel.broker.mailboxes.offers import KEPT
from crewel.broker.mailboxes.stops import from_json
from crewel.delivery.dispatcher import Rules
from crewel.delivery.dispatcher_states import Holdback
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.fan_out_buffer import FanOutRecord
from crewel.delivery.outcomes import read_statuses
from crewel.delivery.records import (
    BATCH_BLOCK,
    Disposition,
    EndReason,
    Logged,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
)
from crewel.errors import StoreError
from crewel.qos.connect import OverflowPolicy
from crewel.qos.update import Origin
from tests.delivery.receiver import Receiver
from tests.delivery.server_model import Server

DEAD_SESSION = ("communication.noConnection.dead", "the session has ended")


class ReceivingServer(Server):
    """A server whose sessions have clients. What each is like is `kinds`."""

    kinds: dict[SessionName, tuple[Rules, OverflowPolicy]]
    receiver_class = Receiver
    now = 0.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.receivers: dict[DurableSession, Receiver] = {}

    def serve(self) -> None:
        super().serve()
        for durable in self.serving.sessions.values():
            if durable.ending is None:
                receiver = self.receiver(durable)
                receiver._batches.number = durable.batch - BATCH_BLOCK + 1
                receiver.is_late = True
                self._restore(receiver, self.records[durable.name].dispatch)

    def receiver(self, durable: DurableSession) -> Receiver:
        if durable not in self.receivers:
            self.receivers[durable] = self.receiver_class(durable, *self.kinds[durable.name])
        return self.receivers[durable]

    def _logged_in(self, durable: DurableSession) -> None:
        """A client takes over, or is the first."""
        receiver = self.receiver(durable)
        was_rejecting = receiver._dispatcher.rejection is not None
        receiver.configure(receiver._dispatcher.rules, 0)
        receiver.renew()
        receiver._batches.number = durable.batch - BATCH_BLOCK + 1
        if was_rejecting:
            self._hold(receiver)
        receiver.check()

    # Why nothing is delivered

    def _hold(self, receiver: Receiver) -> None:
        dispatcher, told = receiver._dispatcher, None
        if dispatcher.holdback is not None:
            told = dispatcher.holdback.as_json()
        elif dispatcher.rejection is not None:
            told = {"sink": True, "since": 0, "code": dispatcher.rejection[0], "reason": dispatcher.rejection[1]}
        self._ask("hold", receiver.durable.name, told, then=lambda _: None)

    def _restore(self, receiver: Receiver, told: dict[str, Any] | None) -> None:
        if told is not None:
            receiver.hold(from_json(told), receiver._dispatcher.rules)
            if (rejection := receiver._dispatcher.rejection) is not None:
                Ends(receiver).dead_letter_all(receiver.clock, *rejection[:2])

    # Messages

    def _expect(self, durable: DurableSession, ids: Iterable[LogId]) -> None:
        pending = [*ids]
        super()._expect(durable, pending)
        if pending and durable in self.receivers:
            self.receivers[durable].is_late = True

    def _send(self, durable: DurableSession, logged: Logged, taken: FanOutRecord[DurableSession] | None = None) -> None:
        self._deliver(durable, logged, is_bounded=True)

    def _compare(self, ended: Iterable[Disposition]) -> None:
        """Its receivers know what they have acknowledged."""

    def _deliver(self, durable: DurableSession, logged: Logged, *, is_bounded: bool) -> None:
        receiver = self.receivers.get(durable)
        if receiver is None:
            return  # it is ending
        entry = Entry.read_back(replace(logged, body=b'{"channel":"/a"}'))
        if is_bounded or receiver._dispatcher.rejection is not None:
            if not self._offer(receiver, entry):
                return
        elif receiver._dispatcher.is_paused or durable.has_evicted_before(entry.position, entry.priority):
            durable.evict(logged.id)
        else:
            receiver.load(entry)
        receiver.check()

    def push(self, durable: DurableSession, message_id: str, **qualities: int) -> None:
        """A message that is not stored arrives."""
        receiver = self.receiver(durable)
        entry = Entry({"channel": "/a"}, **qualities)
        entry.origin = Origin(message_id, "0")
        if self._offer(receiver, entry):
            receiver.volatile.add(message_id)

    def _offer(self, receiver: Receiver, entry: Entry) -> bool:
        durable = receiver.durable
        is_rejected = receiver._dispatcher.rejection is not None
        has_room = receiver.offer(entry) >= KEPT
        if not (is_rejected or entry.is_over(receiver.clock)):
            receiver.look_after_bound(entry, has_room=has_room)
        if receiver._must_end:
            receiver._must_end = False
            if (durable.name, "") not in self.busy:
                self.close(durable)
            elif entry.position:
                durable.end_message(entry.position, EndReason.DROPPED)
        self.serving.mark_dirty(durable)
        return has_room

    def redrive(self, letter: PendingDeadLetter) -> None:
        """An operator sends a letter to its receiver again."""

        def answered(answer: LogId | StoreError | None) -> None:
            durable = self.serving.sessions.get(letter.session)
            if not isinstance(answer, int) or durable is None or durable not in self.receivers:
                return
            if durable.arrived(answer, PendingMessage(0, 2)):
                self._received[durable].add(answer)
                self.serving.mark_dirty(durable)
                receiver = self.receivers[durable]
                receiver.outside_log.add(answer)
                if receiver._dispatcher.rejection is not None:
                    Ends(receiver).dead_letter_stored(answer, *receiver._dispatcher.rejection[:2])
                else:
                    receiver._recall()
                    durable.evict(answer)
                receiver.check()

        self._ask("redrive", letter, then=answered)

    # What clients and time do

    def told(self, durable: DurableSession, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Statuses came; returns those that do not count."""
        receiver = self.receiver(durable)
        statuses, rejected = read_statuses(given)
        judgement = receiver.report(statuses, None, Occasion(durable.name, self.now, 0, lambda _: False))
        self._conclude(receiver)
        return rejected + judgement.rejected

    def _conclude(self, receiver: Receiver) -> None:
        dispatcher, durable = receiver._dispatcher, receiver.durable
        self.serving.mark_dirty(durable)
        if receiver.conclude(self.now):
            self.close(durable)
            return
        held, rejecting = dispatcher.holdback is not None, dispatcher.rejection is not None
        if rejecting:
            Ends(receiver).dead_letter_all(receiver.clock, *dispatcher.rejection[:2])  # type: ignore[index]
        if held or rejecting:
            self._hold(receiver)
        receiver.check()

    def ring(self, durable: DurableSession) -> None:
        """It may be time for something."""
        receiver = self.receiver(durable)
        receiver.resume(self.now)
        receiver.overdue(Occasion(durable.name, self.now, 0, lambda _: False))
        self._conclude(receiver)

    def operate(self, durable: DurableSession, what: str, count: int) -> None:
        """An operator does something with the queue."""
        receiver = self.receiver(durable)
        match what:
            case "hold":
                receiver.hold(receiver._dispatcher.holdback or Holdback("operator", 0), receiver._dispatcher.rules)
                self._hold(receiver)
            case "activate":
                receiver.hold(None, receiver._dispatcher.rules)
                self._hold(receiver)
            case "skip" if receiver._ledger.places():
                Ends(receiver).dead_letter_stored(receiver._ledger.places()[0], "user.update.holdback", "skipped")
            case "drain":
                Ends(receiver).dead_letter_all(receiver.clock, "user.update.holdback", "drained")
            case "drop":
                receiver.drop_first(count)
        self.serving.mark_dirty(durable)
        receiver.check()

    # Ends of sessions

    def close(self, durable: DurableSession) -> None:
        if receiver := self.receivers.pop(durable, None):
            if durable.is_named or durable.death is not None:
                Ends(receiver).dead_letter_transients(*(durable.death or DEAD_SESSION))
            self.serving.mark_dirty(durable)
        super().close(durable)

    def _end_open(self, durable: DurableSession) -> None:
        for log_id in [*durable.pending, *durable.inbox]:
            if durable.is_named or durable.death is not None:
                durable.dead_letter(PendingDeadLetter(durable.name, log_id, *(durable.death or DEAD_SESSION)))
            else:
                durable.end_message(log_id, EndReason.LAPSED)
