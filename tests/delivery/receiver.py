"""A small model of one session as its server has it: what the client has got, what is queued, and what decides about it. It
moves messages as `broker.open_messages` does, with the real dispatcher, batches and engine, and looks after each move.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from crewel.delivery.batches import Batches
from crewel.delivery.dispatcher import Dispatcher, Rules
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, in_order, insert, place_of, rank_of
from crewel.delivery.records import EndReason, LogId, PendingDeadLetter, Transient
from crewel.qos.connect import OverflowPolicy
from crewel.qos.update import Origin
from tests.delivery.ledger import Broken


class Receiver:
    """One session as its server has it: what the client has got, what is queued, and what decides about it."""

    def __init__(self, durable: DurableSession, rules: Rules, policy: OverflowPolicy) -> None:
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
        self.outside_log: set[LogId] = set()
        """What came outside the log, and may be newer than what comes from there later."""

    # What is where

    def _sent(self) -> list[Entry]:
        return list(
            dict.fromkeys([*(each for each, _ in self.dispatcher.in_flight.values()), *self.batches.unacknowledged])
        )

    def _transients(self) -> list[Entry]:
        return [each for each in dict.fromkeys([*self._sent(), *self.queue]) if not each.position]

    def stored(self) -> list[LogId]:
        return self.durable.in_order()

    def evicted(self) -> list[LogId]:
        return [each for each in map(place_of, self.durable.evicted) if self.durable.find(each) is not None]

    def check(self) -> None:
        """Everything that has not ended is somewhere, once; and nothing else is."""
        name = self.durable.name
        waiting = [each.position for each in self.queue if each.position]
        waiting += self.evicted()
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
        self.batches.unbatch()
        durable = self.durable
        for place in sorted({each.position for each in (*entries, *self.queue) if each.position}):
            if durable.find(place) is not None and not durable.is_evicted(place):
                durable.evict(place)
        self.queue = in_order(dict.fromkeys(each for each in (*entries, *self.queue) if not each.position))

    def put_back(self, entries: list[Entry]) -> None:
        """The client could not take these."""
        for entry in entries:
            self.queue = self.batches.take_out(entry, self.queue)
        self.recall(entries)

    def renew(self) -> None:
        """Another client goes on."""
        sent = self.batches.reset()
        self.recall(dict.fromkeys((*self.dispatcher.forget(), *sent)))

    def look(self) -> None:
        """Pause, or go on, as the dispatcher stands: what is stored is read anew, in its order."""
        if self.is_paused is not self.dispatcher.is_paused:
            self.is_paused = self.dispatcher.is_paused
            self.recall()

    def refill(self, count: int) -> None:
        """Read what is evicted, unless the session is paused."""
        if not self.dispatcher.is_paused:
            for log_id in self.durable.load(self.durable.first_evicted(count)):
                self.enqueue(self._read(log_id))

    def _read(self, log_id: LogId) -> Entry:
        waiting, origin = self.durable.find(log_id), Origin.stored(log_id, "", b"")
        assert waiting is not None
        known = {"priority": waiting.priority, "expires": waiting.expires}
        return Entry.logged("/a", log_id, b'{"channel":"/a"}', origin=origin, **known)

    def enqueue(self, entry: Entry) -> None:
        insert(self.queue, entry, self.batches.resending)

    # What is sent

    def reply(self, count: int, now: float) -> tuple[int, list[str]]:
        """A response with at most so many messages leaves: its batch number, and the ids."""
        leaving: list[Entry] = []
        again = self.batches.resending
        if not self.dispatcher.is_paused:
            leaving, self.queue = self.queue[:count], self.queue[count:]
        if self.batches.retain(leaving):
            self.queue = in_order(self.queue)
        for entry in leaving:
            self.dispatcher.send(entry, now)
            if (
                entry.position
                and entry.position not in self.durable.pending
                and entry.position not in self.durable.inbox
            ):
                raise Broken(f"{entry.position} was sent to {self.durable.name} after it had ended")
        self._look_after_order(leaving[:again], leaving[again:])
        return self.batches.close(), [_id(each) for each in leaving]

    def _look_after_order(self, again: list[Entry], leaving: list[Entry]) -> None:
        """What is sent again comes first; what follows goes by priority and age, before all that waits."""
        for entries in (again, leaving):
            if entries != in_order(entries):
                raise Broken(f"{[(each.priority, _id(each)) for each in entries]} were sent in this order")
        logged = [each for each in leaving if each.position and each.position not in self.outside_log]
        ranks = [rank_of(each.position, each.priority) for each in logged]
        first = min((rank for rank in self.durable.evicted if self.durable.find(place_of(rank))), default=inf)
        if not self.is_late and (ranks != sorted(ranks) or (ranks and first < ranks[-1])):
            raise Broken(f"{ranks} were sent to {self.durable.name} in this order, and before {first}")

    def acknowledge(self, batch: int | None) -> None:
        """A connect came."""
        told: list[Entry] = []
        self.queue = self.batches.acknowledge(batch, self.queue, told)
        for entry in self.dispatcher.acknowledge(told):
            self._ended(entry)
            if entry.position:
                self.durable.end_message(entry.position)

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
            self.durable.end_message(entry.position, reason)

    def dead_letter(self, entry: Entry, code: str, reason: str, attempts: int) -> None:
        self._take_out(entry)
        self._ended(entry)
        message = None if entry.position else Transient(_id(entry), "0", entry.channel, entry.wire)
        self.durable.dead_letter(PendingDeadLetter(self.durable.name, entry.position, code, reason, attempts, message))

    def _forget(self, place: LogId) -> None:
        for entry in [each for each in (*self._sent(), *self.queue) if each.position == place]:
            self._take_out(entry)
        self.durable.forget_evicted(place)

    def dead_letter_stored(self, place: LogId, code: str, reason: str) -> None:
        self._forget(place)
        self.durable.dead_letter(PendingDeadLetter(self.durable.name, place, code, reason, 0))

    def bury_transients(self, code: str, reason: str) -> None:
        for entry in self._transients():
            self.dead_letter(entry, code, reason, 0)
        self.queue = [each for each in self.queue if each.position]

    def dead_letter_all(self, code: str, reason: str) -> None:
        self.renew()
        self.bury_transients(code, reason)
        self.durable.evicted.clear()
        for place in self.stored():
            self.dead_letter_stored(place, code, reason)

    def drop(self, count: int) -> None:
        """The oldest so many end, and leave nothing behind."""
        for place in (places := self.stored()[:count]):
            self._forget(place)
            self.durable.end_message(place, EndReason.DROPPED)
        for entry in self._transients()[: count - len(places)]:
            self.end(entry, EndReason.DROPPED)

    def drop_oldest(self) -> bool:
        """Make room for one that arrives, if something was never sent."""
        resending = self.batches.resending
        if not resending and (least := self.durable.lowest_evicted()) is not None:
            place = place_of(least)
            self._forget(place)
            self.durable.end_message(place, EndReason.DROPPED)
            return True
        if len(self.queue) <= resending:
            return False
        self.end(self.queue[resending], EndReason.DROPPED)
        return True


def _id(entry: Entry) -> str:
    return str(entry.position) if entry.origin is None else entry.origin.id
