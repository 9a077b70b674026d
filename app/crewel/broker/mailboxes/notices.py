"""Notices in a mailbox: that a topic was erased, or that a subscription has failed. They wait among the messages, behind those
that they are about, and are none themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from crewel.bayeux.codec import reread
from crewel.broker.mailboxes.ledger import of_store
from crewel.broker.mailboxes.offers import ENDED, EVICTED
from crewel.delivery.entry import Entry, notice_entry
from crewel.delivery.records import EndReason, LogId, PendingMessage
from crewel.qos.publish import NORMAL
from crewel.qos.update import FAILED

if TYPE_CHECKING:
    from crewel.broker.mailboxes.mailbox import Mailbox

Failure = dict[str, str]
"""`{"errorCode", "message"}`."""


class Notices:
    """Those of one mailbox."""

    __slots__ = ("_ledger", "_mailbox")

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox, self._ledger = mailbox, mailbox._ledger

    # They come

    def transient(self, channel: str, why: str, stamp: tuple[str, str]) -> Entry:
        """The notice that the topic was erased, or with `why` (a Failure as JSON) that the subscription to the pattern fails,
        for a session that the store does not have. `stamp`: its id and its time."""
        notice = PendingMessage(channel=channel)
        notice = notice._replace(priority=_behind(notice, self._mailbox._in_memory()))
        return notice_entry(notice, LogId(0), why, stamp)

    def offer(self, channel: str, place: LogId, why: str) -> tuple[Entry, int]:
        """The store has put a notice at this place. Returns it, with what `Mailbox.offer` would answer."""
        mailbox, ledger = self._mailbox, of_store(self._ledger)
        lowest = _behind(PendingMessage(channel=channel), mailbox._transients())
        former = ledger.notice(place, channel, lowest, why)
        if former:
            mailbox._drop_where(lambda entry: entry.position in former)
        notice = ledger.notices[place]
        entry = notice_entry(notice, place, why)
        if mailbox._dispatcher.rejection is not None:
            ledger.end(place, EndReason.SETTLED)
            return entry, ENDED
        if mailbox.is_absent or mailbox._is_paused or ledger.goes_before(place, notice.priority):
            ledger.park(place)
            return entry, EVICTED
        return entry, mailbox.load(entry)

    # What they say

    def failures(self) -> dict[str, Failure]:
        """Why subscriptions have failed, by pattern, of which the session has not settled the notice."""
        waiting = {each.channel for each in self._ledger.notices.values()}
        stored = {name: reread(why.encode()) for name, why in self._ledger.failed.items() if name in waiting}
        transient = [each for each in self._mailbox._queue if _is_failure(each) and not each.position]
        return {each.channel: reread(each.wire)["ext"]["subscribe"] for each in transient} | stored

    # They are withdrawn

    def withdraw_erased(self, channels: Collection[str]) -> None:
        """The notices that these topics were erased do not leave any more, as far as they have not left."""
        self._mailbox._drop_where(lambda each: each.is_notice and each.channel in channels and not _is_failure(each))
        told = {each.channel for each in self._ledger.notices.values()}.intersection(channels)
        for channel in told.difference(self._ledger.failed):  # else it is another notice
            if not any(map(self._mailbox.view().is_open, self._places(channel))):  # else the client has it
                self._ledger.forget_notice(channel)

    def withdraw_failure(self, pattern: str) -> bool:
        """The notice that the subscription has failed does not leave any more. False if it has left before."""
        mailbox, places = self._mailbox, self._places(pattern)
        if any(map(mailbox.view().is_open, places)):
            return False  # its client has it, and knows it if it comes again
        is_unsent = any(map(self._ledger.is_parked, places))
        is_unsent = is_unsent or any(_is_failure(each) and each.channel == pattern for each in mailbox._queue)
        for place in places:
            mailbox.forget_stored(place)
        mailbox._drop_where(lambda each: _is_failure(each) and each.channel == pattern)
        self._ledger.forget_notice(pattern)
        return is_unsent

    def _places(self, channel: str) -> list[LogId]:
        return [place for place, each in self._ledger.notices.items() if each.channel == channel]


def _behind(notice: PendingMessage, entries: Iterable[Entry]) -> int:
    """The priority with which it waits behind those of these that it is about."""
    return min([NORMAL, *(each.priority for each in entries if notice.is_about(each.channel))])


def _is_failure(entry: Entry) -> bool:
    return entry.origin is not None and entry.origin.state == FAILED
