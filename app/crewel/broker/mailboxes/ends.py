"""Messages that end in another way than by what their client says: operators, newer messages and erased topics end them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from operator import is_
from typing import TYPE_CHECKING

from crewel.broker.mailboxes.offers import UNSTORED
from crewel.delivery.batches import NO_BATCHES
from crewel.delivery.dispatcher import FailedDelivery
from crewel.delivery.entry import Entry
from crewel.delivery.records import DEAD_SESSION, EndReason, LogId
from crewel.delivery.sent_messages import id_of

if TYPE_CHECKING:
    from crewel.broker.mailboxes.mailbox import Mailbox


class Ends:
    """Those of one mailbox."""

    __slots__ = ("_ledger", "_mailbox")

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox, self._ledger = mailbox, mailbox._ledger

    def end_messages(self, places: Collection[LogId], entries: Collection[Entry], reason: EndReason) -> None:
        """The stored messages at these places, and these entries which are not stored, end in this way, at the cost of one
        look at everything that waits."""
        self._mailbox._forget_many(places, entries)
        if self._mailbox._batches is not NO_BATCHES:
            self._ledger.listener.transients_ended(reason, len(entries))
        self._ledger.end_all(places, reason)

    def drop_first(self, count: int) -> int:
        """The first so many of the waiting messages end, the stored ones first; returns how many."""
        places = self._ledger.places()[:count]
        entries = self._mailbox._transients()[: count - len(places)]
        self._mailbox._forget_many(places, entries)
        self._ledger.end_all(places, EndReason.DROPPED)
        return len(places) + len(entries)

    def conflate(self, channel: str, newest: LogId) -> None:
        """The session wants the newest message of this channel only: all earlier ones that wait for it end. What its client
        has got stays; `newest` is the place of the one that comes now, 0 if it has none."""
        mailbox = self._mailbox
        if not (mailbox._queue or self._ledger):
            return
        queued = {entry.position for entry in mailbox._queue}  # what goes out again is there too
        sent = {entry.position for entry in mailbox._in_memory()} - queued
        for place in self._ledger.logged(channel):
            if place != newest and place not in sent:
                mailbox._end_stored(place, EndReason.FILTERED)
        is_stored = mailbox.evicted is not UNSTORED
        entries = [each for each in mailbox._queue if not (is_stored and each.position)]
        for entry in [each for each in entries if each.channel == channel and not each.to]:
            mailbox._end(entry, EndReason.FILTERED)
            mailbox._drop_where(partial(is_, entry))

    def leave(self) -> int:
        """The session has ended: what of it is in memory only becomes dead letters, if a client may come back for it, but for
        messages of the server about itself. Returns how many do not. After a pause, only messages of the server leave."""
        mailbox, view, lapsed = self._mailbox, self._mailbox.view(), self._mailbox._transients()
        if view.ends_in_letters:
            lapsed = [each for each in lapsed if not each.leaves_letter]
            mailbox._take_out_many(lapsed)
            self.dead_letter_transients(*(view.death or (DEAD_SESSION, "the session has ended")))
        if mailbox._is_paused:
            mailbox._pause(is_paused=False)
            mailbox._drop_where(lambda entry: not entry.channel.startswith("/meta/"))
        return len(lapsed)

    # Dead letters

    def dead_letter(self, failed: FailedDelivery) -> None:
        """The message becomes a dead letter, whether or not it was queued. One of the server's own about itself only ends, and
        so does one of a session that the store does not have."""
        self._mailbox._dead_letter_many([failed])

    def dead_letter_stored(self, place: LogId, code: str, reason: str, given: str = "") -> bool:
        """The stored message at this place becomes a dead letter; False if it is not open."""
        if not self._ledger.has(place):
            return False
        failed = self._failed(Entry.placeholder(place), code, reason, given)
        self._mailbox.forget_stored(place)
        self._ledger.dead_letter(failed)
        return True

    def dead_letter_transients(self, code: str, reason: str, given: str = "") -> None:
        """All that is not stored becomes dead letters: it cannot be delivered any more."""
        mailbox = self._mailbox
        mailbox._dead_letter_many([self._failed(entry, code, reason, given) for entry in mailbox._transients()])
        mailbox._drop_where(lambda entry: not (entry.position or entry.channel.startswith("/meta/")))

    def dead_letter_one(self, message_id: str, code: str, reason: str, *, or_first: bool = True) -> bool:
        """Make a dead letter of the message of this id, or else of the first if that is wanted; False if neither waits."""
        places, transients = self._ledger.places(), self._mailbox._transients()
        found: list[Entry | LogId] = [each for each in transients if each.origin and each.origin.id == message_id]
        found += [place for place in places if str(place) == message_id]
        first = next(iter([*found, *places, *transients] if or_first else found), None)
        if isinstance(first, Entry):
            self.dead_letter(self._failed(first, code, reason))
            return True
        return first is not None and self.dead_letter_stored(first, code, reason)

    def dead_letter_all(self, now: int, code: str, reason: str, given: str = "") -> int:
        """Make dead letters of all waiting messages but for those that have to go out of all queues by now (microseconds since
        1970); returns how many."""
        mailbox = self._mailbox
        mailbox.expire(now)
        count = mailbox.view().depth
        mailbox.renew()
        self.dead_letter_transients(code, reason, given)
        self._ledger.unpark_messages()
        places = self._ledger.places()
        mailbox._forget_many(places)
        for place in places:
            self.dead_letter_stored(place, code, reason, given)
        return count

    def _failed(self, entry: Entry, code: str, reason: str, given: str = "") -> FailedDelivery:
        """The message as a dead letter of this code and reason, with how often the client has failed it before, and how."""
        message_id, known = id_of(entry), self._mailbox._dispatcher.messages
        return FailedDelivery(entry, code, reason, known.times_sent(message_id), given, known.failed(message_id))
