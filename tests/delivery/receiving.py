"""A small model of what the broker does with messages that clients fail to take: it moves them as `broker.unsettled` and
`broker.dispatching` do, with the real dispatcher, batches and engine, and looks after each move that none is in limbo.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crewel.delivery.batches import Batches
from crewel.delivery.bounds import OverflowPolicy
from crewel.delivery.dispatcher import Dispatcher, Judgement, Rules
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.delivery.records import BATCH_BLOCK, EndReason, Letter, Logged, LogId, SessionName, Transient, Waiting
from crewel.delivery.states import Holdback
from crewel.delivery.statuses import read_statuses
from crewel.delivery.update_qos import Origin
from crewel.errors import StoreError
from tests.delivery.ledger import Broken
from tests.delivery.server_model import BOUND, Server

DEAD_SESSION = ("communication.noConnection.dead", "the session has ended")


class Receiver:
    """One session as its server has it: what the client has got, what is queued, and what decides about it."""

    def __init__(self, durable: Durable, rules: Rules, policy: OverflowPolicy) -> None:
        self.durable = durable
        self.policy = policy
        self.dispatcher = Dispatcher(rules)
        self.batches = Batches()
        self.queue: list[Entry] = []
        self.volatile: set[str] = set()
        """Messages that are not stored, and have not ended."""
        self.is_paused = False
        self.is_late = False
        """Whether older messages may come after newer ones: a subscription was answered late."""

    # What is where

    def _sent(self) -> list[Entry]:
        return list(dict.fromkeys([*(each for each, _ in self.dispatcher.open.values()), *self.batches.unacknowledged]))

    def _transients(self) -> list[Entry]:
        return [each for each in dict.fromkeys([*self._sent(), *self.queue]) if not each.position]

    def stored(self) -> list[LogId]:
        return sorted([*self.durable.open, *self.durable.inbox])

    def check(self) -> None:
        """Everything that has not ended is somewhere, once; and nothing else is."""
        name, durable = self.durable.name, self.durable
        waiting = [each.position for each in self.queue if each.position]
        waiting += [each for each in durable.parked if each in durable.open or each in durable.inbox]
        if len(waiting) != len(set(waiting)):
            raise Broken(f"{name} would get something twice: {waiting}")
        somewhere = {*waiting, *(each.position for each in self._sent() if each.position)}
        if lost := set(self.stored()) - somewhere:
            raise Broken(f"{sorted(lost)} are open for {name}, and nowhere")
        if ghosts := set(waiting) - set(self.stored()):
            raise Broken(f"{sorted(ghosts)} have ended for {name}, and would be sent")
        found = {_id(each) for each in self._transients()}
        if found != self.volatile:
            raise Broken(f"of what is not stored {name} has {sorted(found)}, not {sorted(self.volatile)}")

    # Waiting again

    def recall(self, entries: Iterable[Entry] = ()) -> None:
        """These wait again in their place, and all that is stored waits in the store."""
        self.batches.lift()
        durable = self.durable
        places = {each.position for each in (*entries, *self.queue) if each.position}
        for place in sorted(places.difference(durable.parked)):
            if place in durable.open or place in durable.inbox:
                durable.park(place)
        self.queue = list(dict.fromkeys(each for each in (*entries, *self.queue) if not each.position))

    def put_back(self, entries: list[Entry]) -> None:
        """The client could not take these."""
        for entry in entries:
            self.queue = self.batches.take_out(entry, self.queue)
        self.recall(entries)

    def renew(self) -> None:
        """Another client goes on."""
        sent = self.batches.forget()
        self.recall(dict.fromkeys((*self.dispatcher.forget(), *sent)))

    def look(self) -> None:
        """Pause, or go on, as the dispatcher stands: what is stored is read anew, in its order."""
        if self.is_paused is not self.dispatcher.is_paused:
            self.is_paused = self.dispatcher.is_paused
            self.recall()

    def refill(self, count: int) -> None:
        """Read what is parked, unless the session is paused."""
        if not self.dispatcher.is_paused:
            for log_id in self.durable.unpark(count):
                origin = Origin.stored(log_id, "", b"")
                self.queue.append(Entry.logged("/a", log_id, b'{"channel":"/a"}', origin=origin))

    # What is sent

    def reply(self, count: int, now: float) -> tuple[int, list[str]]:
        """A response with at most so many messages leaves: its batch number, and the ids."""
        leaving: list[Entry] = []
        if not self.dispatcher.is_paused:
            leaving, self.queue = self.queue[:count], self.queue[count:]
        self.batches.retain(leaving)
        for entry in leaving:
            self.dispatcher.send(entry, now)
            if entry.position and entry.position not in self.durable.open and entry.position not in self.durable.inbox:
                raise Broken(f"{entry.position} was sent to {self.durable.name} after it had ended")
        places = [each.position for each in leaving if each.position]
        older = [each for each in self.durable.parked if each in self.stored() and places and each < max(places)]
        if not self.is_late and (places != sorted(places) or older):
            raise Broken(f"{places} were sent to {self.durable.name} in this order, and before {older}")
        return self.batches.close(), [_id(each) for each in leaving]

    def acknowledge(self, batch: int | None) -> None:
        """A connect came."""
        told: list[Entry] = []
        self.queue = self.batches.acknowledge(batch, self.queue, told)
        for entry in self.dispatcher.acknowledge(told):
            self._ended(entry)
            if entry.position:
                self.durable.settle(entry.position)

    # Ends

    def _ended(self, entry: Entry) -> None:
        self.volatile.discard(_id(entry))

    def _take_out(self, entry: Entry) -> None:
        self.queue = self.batches.take_out(entry, self.queue)
        self.dispatcher.close(entry)

    def end(self, entry: Entry, reason: EndReason) -> None:
        self._take_out(entry)
        self._ended(entry)
        if entry.position:
            self.durable.settle(entry.position, reason)

    def bury(self, entry: Entry, code: str, reason: str, attempts: int) -> None:
        self._take_out(entry)
        self._ended(entry)
        message = None if entry.position else Transient(_id(entry), "0", entry.channel, entry.wire)
        self.durable.bury(Letter(self.durable.name, entry.position, code, reason, attempts, message))

    def _forget(self, place: LogId) -> None:
        for entry in [each for each in (*self._sent(), *self.queue) if each.position == place]:
            self._take_out(entry)
        if place in self.durable.parked:
            self.durable.parked.remove(place)

    def bury_stored(self, place: LogId, code: str, reason: str) -> None:
        self._forget(place)
        self.durable.bury(Letter(self.durable.name, place, code, reason, 0))

    def bury_transients(self, code: str, reason: str) -> None:
        for entry in self._transients():
            self.bury(entry, code, reason, 0)
        self.queue = [each for each in self.queue if each.position]

    def bury_all(self, code: str, reason: str) -> None:
        self.renew()
        self.bury_transients(code, reason)
        self.durable.parked.clear()
        for place in self.stored():
            self.bury_stored(place, code, reason)

    def drop(self, count: int) -> None:
        """The oldest so many end, and leave nothing behind."""
        for place in (places := self.stored()[:count]):
            self._forget(place)
            self.durable.settle(place, EndReason.DROPPED)
        for entry in self._transients()[: count - len(places)]:
            self.end(entry, EndReason.DROPPED)

    def drop_oldest(self) -> bool:
        """Make room for one that arrives, if something was never sent."""
        resending = self.batches.resending
        if self.durable.parked and not resending:
            place = self.durable.parked[0]
            self._forget(place)
            self.durable.settle(place, EndReason.DROPPED)
            return True
        if len(self.queue) <= resending:
            return False
        self.end(self.queue[resending], EndReason.DROPPED)
        return True


class ReceivingServer(Server):
    """A server whose sessions have clients. What each is like is `kinds`."""

    kinds: dict[SessionName, tuple[Rules, OverflowPolicy]]
    receiver_class = Receiver
    now = 0.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.receivers: dict[Durable, Receiver] = {}

    def serve(self) -> None:
        super().serve()
        for durable in self.serving.sessions.values():
            if durable.ending is None:
                receiver = self.receiver(durable)
                receiver.batches.number = durable.batch - BATCH_BLOCK + 1
                receiver.is_late = True
                self._restore(receiver, self.records[durable.name].dispatch)

    def receiver(self, durable: Durable) -> Receiver:
        if durable not in self.receivers:
            self.receivers[durable] = self.receiver_class(durable, *self.kinds[durable.name])
        return self.receivers[durable]

    def _logged_in(self, durable: Durable) -> None:
        """A client takes over, or is the first."""
        receiver = self.receiver(durable)
        had_sink = receiver.dispatcher.sink is not None
        receiver.dispatcher.revive(receiver.dispatcher.rules)
        receiver.look()
        receiver.renew()
        receiver.batches.number = durable.batch - BATCH_BLOCK + 1
        if had_sink:
            self._hold(receiver)
        receiver.check()

    # Why nothing is delivered

    def _hold(self, receiver: Receiver) -> None:
        dispatcher, told = receiver.dispatcher, None
        if dispatcher.holdback is not None:
            told = dispatcher.holdback.as_json()
        elif dispatcher.sink is not None:
            told = {"sink": True, "since": 0, "code": dispatcher.sink[0], "reason": dispatcher.sink[1]}
        self._ask("hold", receiver.durable.name, told, then=lambda _: None)

    def _restore(self, receiver: Receiver, told: dict[str, Any] | None) -> None:
        if told is not None and "sink" in told:
            receiver.dispatcher.sink = (told["code"], told["reason"])
            receiver.bury_all(*receiver.dispatcher.sink)
        elif told is not None:
            receiver.dispatcher.holdback = Holdback.from_json(told)
        receiver.look()

    # Messages

    def _owe(self, durable: Durable, ids: Iterable[LogId]) -> None:
        owed = [*ids]
        super()._owe(durable, owed)
        if owed and durable in self.receivers:
            self.receivers[durable].is_late = True

    def _deliver(self, durable: Durable, logged: Logged, *, is_bounded: bool) -> None:
        receiver = self.receivers.get(durable)
        if receiver is None:
            return  # it is ending
        entry = Entry.logged(logged.channel, logged.id, b'{"channel":"/a"}', origin=Origin.logged(logged))
        if not self._has_room(receiver, entry, is_bounded=is_bounded):
            return
        if durable.parked or receiver.dispatcher.is_paused:
            durable.park(logged.id)
        else:
            receiver.queue.append(entry)
        receiver.check()

    def push(self, durable: Durable, message_id: str) -> None:
        """A message that is not stored arrives."""
        receiver = self.receiver(durable)
        entry = Entry({"channel": "/a"})
        entry.origin = Origin(message_id, "0")
        if self._has_room(receiver, entry, is_bounded=True):
            receiver.volatile.add(message_id)
            receiver.queue.append(entry)

    def _has_room(self, receiver: Receiver, entry: Entry, *, is_bounded: bool) -> bool:
        durable = receiver.durable
        if receiver.dispatcher.sink is not None:
            receiver.bury(entry, *receiver.dispatcher.sink, 0)
        elif not is_bounded or len(durable) + len(receiver.volatile) <= BOUND:
            return True
        elif receiver.policy is OverflowPolicy.DROP_OLDEST and receiver.drop_oldest():
            self.serving.touch(durable)
            return True
        elif receiver.policy is OverflowPolicy.DEAD_MESSAGE:
            receiver.bury(entry, "resource.overflow.queue.entries", "the queue is full", 0)
        else:
            if entry.position:
                durable.settle(entry.position, EndReason.DROPPED)
            if receiver.policy is OverflowPolicy.DISCONNECT and (durable.name, "") not in self.busy:
                self.close(durable)
        self.serving.touch(durable)
        return False

    def redrive(self, letter: Letter) -> None:
        """An operator sends a letter to its receiver again."""

        def answered(answer: LogId | StoreError | None) -> None:
            durable = self.serving.sessions.get(letter.session)
            if not isinstance(answer, int) or durable is None or durable not in self.receivers:
                return
            if durable.arrived(answer, Waiting(0, 2)):
                self._received[durable].add(answer)
                self.serving.touch(durable)
                receiver = self.receivers[durable]
                if receiver.dispatcher.sink is not None:
                    receiver.bury_stored(answer, *receiver.dispatcher.sink)
                else:
                    receiver.recall()
                    durable.park(answer)
                receiver.check()

        self._ask("redrive", letter, then=answered)

    # What clients and time do

    def told(self, durable: Durable, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Statuses came; returns those that do not count."""
        receiver = self.receiver(durable)
        statuses, rejected = read_statuses(given)
        judgement = receiver.dispatcher.judge(statuses, durable.name, self.now, 0)
        self._carry_out(receiver, judgement)
        return rejected + judgement.rejected

    def _carry_out(self, receiver: Receiver, judgement: Judgement) -> None:
        dispatcher, durable = receiver.dispatcher, receiver.durable
        held, sunk = dispatcher.holdback is not None, dispatcher.sink is not None
        for entry in judgement.settled:
            receiver.end(entry, EndReason.SETTLED)
        for each in judgement.buried:
            receiver.bury(*each)
        if judgement.put_back:
            receiver.put_back(judgement.put_back)
        self.serving.touch(durable)
        if judgement.death is not None:
            durable.death = judgement.death
            self.close(durable)
            return
        if sunk:
            receiver.bury_all(*dispatcher.sink)  # type: ignore[misc]
        if held or sunk:
            self._hold(receiver)
        receiver.look()
        receiver.check()

    def ring(self, durable: Durable) -> None:
        """It may be time for something."""
        receiver = self.receiver(durable)
        receiver.dispatcher.resume(self.now)
        self._carry_out(receiver, receiver.dispatcher.overdue(self.now))

    def operate(self, durable: Durable, what: str, count: int) -> None:
        """An operator does something with the queue."""
        receiver = self.receiver(durable)
        match what:
            case "hold":
                receiver.dispatcher.holdback = receiver.dispatcher.holdback or Holdback("operator", 0)
                self._hold(receiver)
            case "activate":
                receiver.dispatcher.holdback = None
                self._hold(receiver)
            case "skip" if receiver.stored():
                receiver.bury_stored(receiver.stored()[0], "user.update.holdback", "skipped")
            case "drain":
                receiver.bury_all("user.update.holdback", "drained")
            case "drop":
                receiver.drop(count)
        self.serving.touch(durable)
        receiver.look()
        receiver.check()

    # Ends of sessions

    def close(self, durable: Durable) -> None:
        if receiver := self.receivers.pop(durable, None):
            if durable.is_named or durable.death is not None:
                receiver.bury_transients(*(durable.death or DEAD_SESSION))
            self.serving.touch(durable)
        super().close(durable)

    def _end_open(self, durable: Durable) -> None:
        for log_id in [*durable.open, *durable.inbox]:
            if durable.is_named or durable.death is not None:
                durable.bury(Letter(durable.name, log_id, *(durable.death or DEAD_SESSION)))
            else:
                durable.settle(log_id, EndReason.LAPSED)


def _id(entry: Entry) -> str:
    return str(entry.position) if entry.origin is None else entry.origin.id
