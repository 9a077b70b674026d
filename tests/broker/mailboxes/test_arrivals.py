"""Bodies that were read lie in the queue in their place, and a message of the inbox comes once."""

from __future__ import annotations

from typing import cast

import pytest

from crewel.broker.mailboxes.arrivals import Arrivals
from crewel.broker.mailboxes.ledger import StoreLedger, Wanted
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.mailbox_listener import MailboxListener
from crewel.broker.mailboxes.offers import ENDED, EVICTED, NOT_OF_INBOX, READY
from crewel.delivery.dispatcher import Rejection, Rules
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason, Logged, LogId, PendingMessage, SessionName
from crewel.qos.connect import Bounds
from tests.delivery.receiver import Listener, Receiver

FIRST, SECOND, THIRD = map(LogId, (1, 2, 3))
MESSAGE = PendingMessage(0, 2, "/a")


@pytest.fixture
def durable() -> DurableSession:
    return DurableSession(SessionName("client/joe/1"))


@pytest.fixture
def mailbox(durable: DurableSession) -> Mailbox:
    listener = Listener(cast("Receiver", None))
    made = Mailbox(StoreLedger(durable, cast("MailboxListener", listener)))
    made.bound(Bounds(10, 10**9))
    return made


def wait(durable: DurableSession, *places: LogId) -> None:
    for place in places:
        durable.take(place, MESSAGE)
        durable.evict(place)


def body(place: LogId) -> Logged:
    return Logged(place, "/a", b"{}")


def test_what_is_wanted_says_where_it_is_to_be_read(mailbox: Mailbox, durable: DurableSession) -> None:
    wait(durable, FIRST)
    durable.arrived(SECOND, MESSAGE)
    durable.evict(SECOND)
    durable.notice(THIRD, "/a")
    durable.evict(THIRD)
    assert Arrivals(mailbox).wanted(10) == Wanted([FIRST, SECOND, THIRD], [FIRST], [FIRST, SECOND])
    assert Arrivals(mailbox).wanted(1).places == [FIRST]


def test_what_was_read_waits_in_the_store_while_something_there_goes_before_it(
    mailbox: Mailbox, durable: DurableSession
) -> None:
    wait(durable, SECOND)
    wanted = Arrivals(mailbox).wanted(10)
    wait(durable, FIRST)
    assert Arrivals(mailbox).read(wanted.places, {SECOND: body(SECOND)}) == ([], 0)
    entries, lost = Arrivals(mailbox).read([FIRST, SECOND], {FIRST: body(FIRST), SECOND: body(SECOND)})
    assert ([each.position for each in entries], lost) == ([FIRST, SECOND], 0)
    assert not mailbox.view().has_evicted


def test_a_message_that_the_store_has_no_more_has_ended(mailbox: Mailbox, durable: DurableSession) -> None:
    wait(durable, FIRST)
    assert Arrivals(mailbox).read([FIRST], {}) == ([], 1)
    [ended], _ = durable.take_ended()
    assert (ended.reason, ended.ids) == (EndReason.DROPPED, (FIRST,))


class TestInbox:
    def test_a_message_comes_once(self, mailbox: Mailbox) -> None:
        assert Arrivals(mailbox).arrived(FIRST, MESSAGE)
        assert not Arrivals(mailbox).arrived(FIRST, MESSAGE)

    def test_one_that_came_by_the_log_too_is_one_message(self, mailbox: Mailbox, durable: DurableSession) -> None:
        durable.take(FIRST, MESSAGE)
        assert not Arrivals(mailbox).arrived(FIRST, MESSAGE)

    def test_with_its_body_it_is_offered(self, mailbox: Mailbox) -> None:
        Arrivals(mailbox).arrived(FIRST, MESSAGE)
        assert Arrivals(mailbox).offer(FIRST, 5, Entry.read_back(body(FIRST)), NOT_OF_INBOX) == READY

    def test_without_its_body_it_has_to_be_read(self, mailbox: Mailbox) -> None:
        Arrivals(mailbox).arrived(FIRST, MESSAGE)
        assert Arrivals(mailbox).offer(FIRST, 5, None, NOT_OF_INBOX) == EVICTED
        assert Arrivals(mailbox).wanted(10) == Wanted([FIRST], [], [FIRST])

    def test_one_that_has_ended_by_then_comes_no_more(self, mailbox: Mailbox, durable: DurableSession) -> None:
        Arrivals(mailbox).arrived(FIRST, MESSAGE)
        durable.end_message(FIRST)
        assert Arrivals(mailbox).offer(FIRST, 5, None, NOT_OF_INBOX) == ENDED
        assert not mailbox.view().has_evicted

    def test_where_all_is_rejected_it_becomes_a_dead_letter(self, mailbox: Mailbox, durable: DurableSession) -> None:
        mailbox.hold(Rejection("user.update.error", "no"), Rules())
        Arrivals(mailbox).arrived(FIRST, MESSAGE)
        assert Arrivals(mailbox).offer(FIRST, 5, None, NOT_OF_INBOX) == ENDED
        _, [letter] = durable.take_ended()
        assert (letter.id, letter.code) == (FIRST, "user.update.error")
