"""What comes to a mailbox from the store, and not as the log is taken: bodies that were read, and messages of its inbox."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.ledger import of_store
from crewel.broker.mailboxes.offers import ENDED, EVICTED

if TYPE_CHECKING:
    from crewel.broker.mailboxes.ledger import Wanted
    from crewel.broker.mailboxes.mailbox import Mailbox
    from crewel.delivery.entry import Entry
    from crewel.delivery.records import Logged, LogId, PendingMessage


class Arrivals:
    """Those of one mailbox."""

    __slots__ = ("_ledger", "_mailbox")

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox, self._ledger = mailbox, of_store(mailbox._ledger)

    # What was in the store only

    def wanted(self, most: int) -> Wanted:
        """What is in the store only and goes first, at most so many. It stays there only until it is `read`."""
        return self._ledger.wanted(most)

    def read(self, places: Collection[LogId], found: Mapping[LogId, Logged]) -> tuple[list[Entry], int]:
        """The store was asked for what it has at these places, and this was `found`. What of it still goes before all else in
        the store only is for `Mailbox.load`. Returns that, and how many messages the store had no more: they have ended."""
        return self._ledger.read_back(places, found)

    # What the store has put into the inbox

    def arrived(self, place: LogId, pending: PendingMessage) -> bool:
        """A message has come into the inbox. False: that is known, or the session has it by its subscription too. That is one
        message, which ends once."""
        return self._ledger.arrived(place, pending)

    def offer(self, place: LogId, priority: int, entry: Entry | None, cursor: LogId) -> int:
        """That message comes, as by `Mailbox.offer`, unless it has ended by now. No entry: room was asked for before, and its
        body has to be read."""
        mailbox, rejection = self._mailbox, self._mailbox._dispatcher.rejection
        if not self._ledger.is_due_to_come(place):
            return ENDED
        if rejection is not None:
            Ends(mailbox).dead_letter_stored(place, *rejection)
            return ENDED
        if entry is not None:
            return mailbox.offer(entry, cursor)
        mailbox._evict_arrived(place, priority)
        return EVICTED
