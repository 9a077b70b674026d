"""The mailbox of a session that the store does not have: what waits in it ends with the process."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from crewel.broker.session_queue.mailbox import Mailbox
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason, LogId


class MemoryMailbox(Mailbox):
    """Nothing in it is stored, and nothing of it becomes a dead letter."""

    __slots__ = ()

    @classmethod
    def holding(cls, former: Mailbox) -> MemoryMailbox:
        """The mailbox of a session that has left the store, with what `former` holds in memory."""
        made = cls.__new__(cls)
        made.take_over(former)
        return made

    @property
    def has_more(self) -> bool:
        """Whether more waits than is in memory: never."""
        return False

    def stored(self) -> list[LogId]:
        """The places of the stored messages: none."""
        return []

    def notices_after(self, entries: Iterable[Entry]) -> list[Entry]:
        """Notices of topics and subscriptions that wait behind messages: none."""
        return []

    def end_stored(self, place: LogId, reason: EndReason) -> None:
        """Nothing is stored."""

    def end_evicted(self, place: LogId, reason: EndReason) -> None:
        """Nothing is evicted."""

    def dead_letter_new(self, entry: Entry, code: str, reason: str, attempts: int = 0, given: str = "") -> None:
        """The message only ends."""
        self._listener.left_no_letter()

    def dead_letter_stored(self, place: LogId, code: str, reason: str, given: str = "") -> bool:
        """Nothing is stored."""
        return False

    def _end_places(self, places: Collection[LogId], reason: EndReason) -> None:
        pass

    def _is_stored(self, entry: Entry) -> bool:
        return False
