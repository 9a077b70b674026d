"""What a session was sent and has not acknowledged, by batch id (reference 5.1; design, section 4 "Batches").

The cycle is that of the first acknowledge extension: entries leave the queue, are retained under the batch number of the
reply that carried them, and whatever the next connect does not acknowledge goes back to the front of the queue. So an
entry belongs to the last reply that held it, and an acknowledgement counts only for a batch that was sent.
"""

from __future__ import annotations

from typing import Final

from crewel.delivery.entry import Entry

__all__ = ["FIRST_RESEND_DELAY", "MAX_RESEND_DELAY", "Batches"]

FIRST_RESEND_DELAY: Final = 0.1
MAX_RESEND_DELAY: Final = 5.0
"""Seconds between resends to a client that acknowledges nothing: one at once, then 0.1 s, doubling to 5 s. Such a client
makes at most 15 connects in 30 s, however much is published meanwhile."""


class Batches:
    """The unacknowledged entries of one session. Numbers start at 1; each connect reply takes the next one."""

    __slots__ = ("_futile", "_retained", "number")

    def __init__(self) -> None:
        self.number = 1
        """The number that the next connect reply carries."""
        self._retained: dict[int, list[Entry]] = {}
        self._futile = 0  # connects in a row that acknowledged nothing although something was retained

    def __len__(self) -> int:
        return sum(map(len, self._retained.values()))

    def acknowledge(self, batch: int | None) -> list[Entry]:
        """Forget what the batches up to this one held, and return the rest, oldest first, to be sent again.

        None (a connect without an acknowledgement) and a number that was never sent acknowledge nothing.
        """
        if not self._retained:
            self._futile = 0
            return []
        if batch is not None and batch < self.number:
            before = len(self._retained)
            for number in [number for number in self._retained if number <= batch]:
                del self._retained[number]
            self._futile = 0 if len(self._retained) < before else self._futile + 1
        else:
            self._futile += 1
        again = [entry for entries in self._retained.values() for entry in entries]
        self._retained.clear()
        return again

    def resend_delay(self) -> float:
        """Seconds that the reply to the connect just acknowledged must wait: 0 for a client that makes progress, and for
        the first resend."""
        if self._futile < 2:
            return 0.0
        return min(FIRST_RESEND_DELAY * 2.0 ** min(self._futile - 2, 16), MAX_RESEND_DELAY)

    def retain(self, entries: list[Entry]) -> None:
        """Keep what the reply with the current number carries."""
        if entries:
            self._retained.setdefault(self.number, []).extend(entries)

    def close(self) -> int:
        """The number for the reply that is going out; the next reply has the next one."""
        number = self.number
        self.number = number + 1
        return number
