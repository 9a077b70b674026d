"""The mailbox of one session, as its server has it, with what a run looks after: that everything which has not ended is
somewhere, once, and leaves in its order."""

from __future__ import annotations

from math import inf

from crewel.broker.mailboxes.backlog import Backlog
from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.ledger import StoreLedger
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.mailbox_listener import Occasion
from crewel.broker.mailboxes.offers import LEAVES
from crewel.delivery.dispatcher import FailedDelivery, Judgement, Rules
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, in_order, place_of, rank_of
from crewel.delivery.records import EndReason, LogId, NoLetter, Transient
from crewel.qos.connect import Bounds, Burst, OverflowPolicy
from crewel.qos.update import Origin
from crewel.settings.access import Limits
from crewel.settings.server_settings import Bayeux
from tests.delivery.ledger import Broken
from tests.delivery.server_model import BOUND


class Listener:
    """Gets what mailboxes report, and needs none of it: a run counts for itself."""

    letters_for_anonymous = False

    def __init__(self, mailbox: Receiver) -> None:
        self._mailbox = mailbox
        self.bayeux, self.backlog, self.bounds = Bayeux(), Backlog(Limits()), Bounds(0, 10**9)

    def has_changed(self, durable: DurableSession) -> None:
        pass

    def acknowledged(self, durable: DurableSession, entries: list[Entry]) -> None:
        pass

    def transients_ended(self, reason: EndReason, count: int) -> None:
        pass

    def left_no_letter(self, why: NoLetter) -> None:
        pass

    def resent(self, name: str, count: int, *, is_busy: bool) -> None:
        pass

    def overflowed(self, policy: OverflowPolicy, name: str) -> None:
        pass

    def charged(self, durable: DurableSession) -> str:
        return ""

    def now(self) -> int:
        return self._mailbox.clock

    def share(self, most: int) -> int:
        return most

    def lazy_until(self) -> float:
        return 0.0

    def as_transient(self, entry: Entry) -> Transient:
        return Transient(_id(entry), "0", entry.channel, entry.wire)


class ReceiverLedger(StoreLedger):
    """Notes what is settled, or becomes a dead letter."""

    __slots__ = ("_mailbox",)

    def __init__(self, mailbox: Receiver, durable: DurableSession) -> None:
        super().__init__(durable, Listener(mailbox))
        self._mailbox = mailbox

    def settle(self, entries: list[Entry]) -> None:
        super().settle(entries)
        self._mailbox.gone(*entries)

    def dead_letter(self, failed: FailedDelivery) -> None:
        super().dead_letter(failed)
        self._mailbox.gone(failed.entry)


class Receiver(Mailbox):
    """A mailbox that knows what is not stored and has not ended."""

    clock = 0
    """Microseconds since 1970."""

    def __init__(self, durable: DurableSession, rules: Rules, policy: OverflowPolicy) -> None:
        self.durable = durable
        super().__init__(ReceiverLedger(self, durable))
        self.begin_batches()
        self.bound(Bounds(BOUND, 10**9, policy))
        self.configure(rules, 0)
        self.volatile: set[str] = set()
        """Messages that are not stored, and have not ended."""
        self.is_late = False
        """Whether older messages may come after newer ones: a subscription was answered late."""
        self.outside_log: set[LogId] = set()
        """What came outside the log, and may be newer than what comes from there later."""

    # What is where

    def sent(self) -> list[Entry]:
        return list(dict.fromkeys([*self._dispatcher.messages.entries, *self._batches.unacknowledged]))

    def in_store_only(self) -> list[LogId]:
        return [each for each in map(place_of, self.durable.evicted) if self.durable.find(each) is not None]

    def check(self) -> None:
        """Everything that has not ended is somewhere, once; and nothing else is."""
        name = self.durable.name
        waiting = [each.position for each in self._queue if each.position]
        waiting += self.in_store_only()
        if len(waiting) != len(set(waiting)):
            raise Broken(f"{name} would get something twice: {waiting}")
        somewhere = {*waiting, *(each.position for each in self.sent() if each.position)}
        if lost := set(self._ledger.places()) - somewhere:
            raise Broken(f"{sorted(lost)} are open for {name}, and nowhere")
        if ghosts := set(waiting) - set(self._ledger.places()):
            raise Broken(f"{sorted(ghosts)} have ended for {name}, and would be sent")
        if bool(self.news) is not bool(self._queue) or (self.news == LEAVES and self._is_paused):
            raise Broken(f"{name} has {len(self._queue)} waiting, and news {self.news}")
        found = {_id(each) for each in (*self.sent(), *self._queue) if not each.position}
        if found != self.volatile:
            raise Broken(f"of what is not stored {name} has {sorted(found)}, not {sorted(self.volatile)}")

    def look_after_bound(self, entry: Entry, *, has_room: bool) -> None:
        """The entry has just been offered: the bound of the queue holds, and no message ends that it had room for."""
        stored = len(self.durable) - (entry.position in self._ledger.places())
        waiting = stored + len(self._transients()) - (has_room and not entry.position)
        if has_room is not (waiting < BOUND):
            raise Broken(f"{waiting} wait for {self.durable.name}, and one more has {'' if has_room else 'no '}room")

    # Waiting

    def refill(self, count: int) -> None:
        """Read what is evicted, unless the session is paused."""
        if not self._dispatcher.is_paused:
            for log_id in self.durable.load(self.durable.first_evicted(count)):
                self.load(self._read(log_id))

    def _read(self, log_id: LogId) -> Entry:
        waiting, origin = self.durable.find(log_id), Origin.stored(log_id, "", b"")
        assert waiting is not None
        known = {"priority": waiting.priority, "expires": waiting.expires}
        return Entry.logged("/a", log_id, b'{"channel":"/a"}', origin=origin, **known)

    # What is sent

    def reply(self, count: int, now: float) -> tuple[int, list[str]]:
        """A response with at most so many messages leaves: its batch number, and the ids."""
        again = self._batches.resending
        leaving = [] if self._dispatcher.is_paused else self.take(10**9, Burst(max_entries=count))
        self.told(leaving, now)
        for entry in leaving:
            if (
                entry.position
                and entry.position not in self.durable.pending
                and entry.position not in self.durable.inbox
            ):
                raise Broken(f"{entry.position} was sent to {self.durable.name} after it had ended")
        self._look_after_order(leaving[:again], leaving[again:])
        return self.close_batch(), [_id(each) for each in leaving]

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

    def connected(self, batch: int | None) -> None:
        """A connect came."""
        self.acknowledge(batch)

    # Ends

    def drop_first(self, count: int) -> None:
        self.gone(*self._transients()[: max(count - len(self._ledger.places()), 0)])
        Ends(self).drop_first(count)

    def gone(self, *entries: Entry) -> None:
        self.volatile.difference_update(map(_id, entries))

    def _end(self, entry: Entry, reason: EndReason) -> None:
        super()._end(entry, reason)
        self.gone(entry)

    def _carry_out(self, judgement: Judgement, occasion: Occasion) -> Judgement:
        self.gone(*judgement.settled)
        return super()._carry_out(judgement, occasion)

    def _end_at(self, index: int, reason: EndReason) -> None:
        self.gone(self._queue[index])
        super()._end_at(index, reason)

    def _take_expired(self, now: int, *, is_away: bool) -> list[Entry]:
        gone = super()._take_expired(now, is_away=is_away)
        self.gone(*gone)
        return gone

    def leave(self, now: int) -> None:
        super().leave(now)
        self.gone(*(each for each in self._in_memory() if each.is_over(now)))


def _id(entry: Entry) -> str:
    return str(entry.position) if entry.origin is None else entry.origin.id
