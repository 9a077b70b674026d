"""What a session was sent and has not acknowledged, by batch id.

The cycle is that of the first acknowledge extension: entries leave the queue, and are retained under the batch number of the
reply that carried them. Whatever the next connect does not acknowledge goes back to the front of the queue. So an entry belongs
to the last reply that held it, and an acknowledgement counts only for a batch that was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from crewel.delivery.entry import Entry, in_order
from crewel.delivery.records import BATCH_BLOCK

FIRST_RESEND_DELAY: Final = 0.1
MAX_RESEND_DELAY: Final = 5.0
"""Seconds between resends to a client that acknowledges nothing: one at once, then 0.1 s, doubling to 5 s. Such a client
makes at most 15 connects in 30 s, however much is published meanwhile."""
_SPARE: Final = 500
"""Batch numbers that are reserved ahead of need."""


class Batches:
    """The unacknowledged entries of one session. Numbers start at 1; each connect reply takes the next one."""

    __slots__ = ("futile", "has_oneway", "is_busy", "must_resend", "number", "reserve_at", "sent")

    def __init__(self) -> None:
        self.number = 1
        """The number that the next connect reply carries."""
        self.reserve_at: float = inf
        """The number from which on more of them have to be reserved; infinite if none need be."""
        self.sent: dict[int, list[Entry]] = {}
        """What is unacknowledged, by the number of its batch, oldest first."""
        self.must_resend = False
        """Whether the unacknowledged entries are the front of the queue again, and not at the client."""
        self.is_busy = False
        """Whether what goes out again is not lost: the client is connected and has not answered, or had no room for it."""
        self.has_oneway = False
        """Whether some of its messages end when they leave, and are kept in no batch."""
        self.futile = 0
        """Connects in a row that acknowledged nothing although something had been sent."""

    def continue_from(self, reserved: int) -> None:
        """Number the next batch as the first of the block that the store has just reserved, up to this number. Those of an
        earlier server are lower, so a client that acknowledges one of them acknowledges nothing that is sent from here
        on."""
        self.number = reserved - BATCH_BLOCK + 1
        self.reserve_at = reserved - _SPARE + 1

    def __len__(self) -> int:
        """How many entries are neither acknowledged nor in the queue."""
        return self._count() if self.sent and not self.must_resend else 0

    def acknowledge(
        self,
        batch: int | None,
        queue: list[Entry],
        acknowledged: list[Entry] | None = None,
        *,
        is_busy: bool = False,
    ) -> list[Entry]:
        """The session's queue after a connect that acknowledges this batch and those before it: what is unacknowledged, by
        priority and age, and then what was never sent. None (a connect without an acknowledgement) and a number that was
        never sent acknowledge nothing. `queue` must be what the call before gave, less what `retain` got, plus new
        entries. `acknowledged` gets the entries that are acknowledged. `is_busy`: what is unacknowledged stays at the client,
        which has more to do than to report it.
        """
        if not self.sent or (batch == self.number - 1 and not self.must_resend):
            if acknowledged is not None:
                self._collect(self.sent, acknowledged)
            self.sent.clear()
            self.futile = 0
            return queue
        unsent = queue[self._count() :] if self.must_resend else queue
        settled = [number for number in self.sent if batch is not None and number <= batch < self.number]
        if acknowledged is not None:
            self._collect(settled, acknowledged)
        for number in settled:
            del self.sent[number]
        if settled:
            self.futile = 0
        elif not (self.must_resend or is_busy):
            self.futile += 1
        if is_busy and not self.must_resend:
            return queue
        self.must_resend = bool(self.sent)
        return [*in_order(self.unacknowledged), *unsent]

    def hand_over(self) -> list[Entry]:
        """What the client has just acknowledged: all up to its last batch, while nothing was to be sent again."""
        self.futile = 0
        if len(self.sent) == 1:
            return self.sent.popitem()[1]
        opened = self.unacknowledged
        self.sent.clear()
        return opened

    def _collect(self, numbers: Iterable[int], acknowledged: list[Entry]) -> None:
        for number in numbers:
            acknowledged += self.sent[number]

    def expire(self, now: int, queue: list[Entry], *, is_away: bool) -> tuple[list[Entry], list[Entry]]:
        """The session's queue without the entries that have to go out of all queues by now (microseconds since 1970), and
        these. What was sent stays while its client is there, for that may still report its status."""
        gone = [entry for entry in queue if entry.is_over(now)]
        if is_away or self.must_resend:
            gone += [entry for entry in self.unacknowledged if entry.is_over(now)]
            left = {
                number: [each for each in entries if not each.is_over(now)] for number, entries in self.sent.items()
            }
            self.sent = {number: entries for number, entries in left.items() if entries}
            self.must_resend = self.must_resend and bool(self.sent)
        return [entry for entry in queue if not entry.is_over(now)], list(dict.fromkeys(gone))

    def take_out(self, entries: Iterable[Entry], queue: list[Entry]) -> list[Entry]:
        """The session's queue without these entries, which have ended before their batches were acknowledged, at the cost of
        one look at the queue. A stored one is known by its place: it may have been read again, or memory may have no more of
        it."""
        gone: set[object] = {each.position or each for each in entries}
        missing, was_resending = set(gone), self.must_resend
        for number, sent in list(self.sent.items()):
            if not missing:
                break
            kept = [each for each in sent if (each.position or each) not in gone]
            if len(kept) < len(sent):
                missing.difference_update(each.position or each for each in sent)
                self.sent[number] = kept
        self.sent = {number: sent for number, sent in self.sent.items() if sent}
        self.must_resend = was_resending and bool(self.sent)
        if not (missing or was_resending):
            return queue  # it does not have what the client has got
        return [each for each in queue if (each.position or each) not in gone]

    def unbatch(self) -> None:
        """Entries that are to be sent again belong to no batch any more. The next reply may carry some of them under a new
        number, and acknowledging that number must not acknowledge the others."""
        if self.must_resend:
            self.sent.clear()
            self.must_resend = False

    @property
    def unacknowledged(self) -> list[Entry]:
        """The entries that were sent and are not acknowledged, those included that go out again."""
        return [entry for entries in self.sent.values() for entry in entries]

    def sent_after(self, batch: int) -> list[Entry]:
        """The entries of the batches after this one. A client whose last batch is this one has not received them."""
        return [entry for number, entries in self.sent.items() if number > batch for entry in entries]

    @property
    def resending(self) -> int:
        """How many entries at the front of the queue were sent before."""
        return self._count() if self.must_resend else 0

    def drop_body(self) -> None:
        """Keep of what is stored no more than its place: these entries are not sent to any client."""
        self.sent = {number: [entry.drop_body() for entry in entries] for number, entries in self.sent.items()}

    def reset(self) -> list[Entry]:
        """Begin again, with nothing unacknowledged. Returns what was, unless the queue has it."""
        entries = [] if self.must_resend else self.unacknowledged
        self.sent.clear()
        self.must_resend = False
        return entries

    def resend_delay(self) -> float:
        """Seconds that the reply to the connect just acknowledged must wait: 0 for a client that makes progress, and for
        the first resend."""
        if self.futile < 2:
            return 0.0
        return min(FIRST_RESEND_DELAY * 2.0 ** min(self.futile - 2, 16), MAX_RESEND_DELAY)

    def note_busy(self, in_hand: int) -> None:
        """Note whether the client lacks what goes out again, or is busy. It has so many messages that it has not settled, these
        included. With others in its hands it had no room; and a reply was not lost twice in a row."""
        self.is_busy = self.futile > 1 or in_hand > self._count()

    def retain(self, entries: list[Entry]) -> int:
        """Keep what the reply with the current number carries: the front of the queue. The list is kept as it is and must not
        change any more. Returns how many of the entries were sent before."""
        again = 0
        if self.must_resend:
            again = min(self._count(), len(entries))
            self.unbatch()
        if entries:
            self.sent[self.number] = entries
        return again

    def _count(self) -> int:
        return sum(map(len, self.sent.values()))


NO_BATCHES: Final = Batches()
"""The batches of every session that does not acknowledge. They are shared: nothing is retained there, so they stay empty."""
