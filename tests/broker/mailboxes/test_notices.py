"""A notice waits behind what it is about, in memory as in the store, and is withdrawn until the client has it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from crewel.bayeux.codec import encode
from crewel.broker.mailboxes.ledger import NoLedger, StoreLedger
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.mailbox_listener import MailboxListener
from crewel.broker.mailboxes.notices import Notices
from crewel.broker.mailboxes.offers import ENDED, EVICTED, READY
from crewel.delivery.dispatcher import Rejection, Rules
from crewel.delivery.dispatcher_states import Holdback
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId, PendingMessage, SessionName
from crewel.qos.connect import Bounds
from crewel.qos.update import Origin
from tests.delivery.receiver import Listener, Receiver

PLACE = LogId(7)
WHY = {"errorCode": "user.filter.budget", "message": "it costs too much"}
TOLD = encode(WHY).decode()


@pytest.fixture(params=[True, False], ids=["stored", "in memory"])
def mailbox(request: pytest.FixtureRequest) -> Mailbox:
    listener = cast("MailboxListener", Listener(cast("Receiver", None)))
    durable = DurableSession(SessionName("client/joe/1"))
    made = Mailbox(StoreLedger(durable, listener) if request.param else NoLedger(listener))
    made.bound(Bounds(10, 10**9))
    made.begin_batches()
    made.configure(Rules(tells=True), 0)
    return made


def notify(mailbox: Mailbox, channel: str, why: str = "") -> Entry:
    """A notice comes."""
    if isinstance(mailbox._ledger, StoreLedger):
        entry, answer = Notices(mailbox).offer(channel, PLACE, why)
    else:
        entry = Notices(mailbox).transient(channel, why, ("7-1", "0"))
        answer = mailbox.offer(entry)
    assert answer == READY
    return entry


def message(channel: str, priority: int) -> Entry:
    return Entry({"channel": channel, "data": None}, origin=Origin("1", "0"), priority=priority)


def test_a_notice_waits_behind_all_messages_of_its_topic(mailbox: Mailbox) -> None:
    mailbox.offer(message("/a", 2))
    mailbox.offer(message("/b", 1))
    assert notify(mailbox, "/a").priority == 2
    assert [each.channel for each in mailbox.take(10**9)] == ["/a", "/a", "/b"]


def test_a_topic_that_is_there_again_has_no_notice(mailbox: Mailbox) -> None:
    notify(mailbox, "/a")
    Notices(mailbox).withdraw_erased({"/a", "/b"})
    assert mailbox.take(10**9) == []
    assert not mailbox.view().has_notices


def test_the_notice_of_a_failure_is_no_notice_of_a_topic(mailbox: Mailbox) -> None:
    notify(mailbox, "/a", TOLD)
    Notices(mailbox).withdraw_erased({"/a"})
    assert Notices(mailbox).failures() == {"/a": WHY}


def test_a_failure_is_withdrawn_until_the_client_has_it(mailbox: Mailbox) -> None:
    notify(mailbox, "/a", TOLD)
    assert Notices(mailbox).withdraw_failure("/a")
    assert Notices(mailbox).failures() == {}
    assert mailbox.take(10**9) == []


@pytest.mark.parametrize("mailbox", [True], indirect=True, ids=["stored"])
class TestStored:
    def test_a_failure_that_the_client_has_stays(self, mailbox: Mailbox) -> None:
        notify(mailbox, "/a", TOLD)
        mailbox.told(mailbox.take(10**9), 0.0)
        assert not Notices(mailbox).withdraw_failure("/a")
        assert Notices(mailbox).failures() == {"/a": WHY}

    @pytest.mark.parametrize(
        ("stop", "answer"), [(Holdback("operator", 0), EVICTED), (Rejection("user.update.error", "no"), ENDED)]
    )
    def test_a_notice_comes_as_a_message_does(self, mailbox: Mailbox, stop: Any, answer: int) -> None:
        mailbox.hold(stop, Rules())
        assert Notices(mailbox).offer("/a", PLACE, "")[1] == answer
        assert mailbox.view().has_evicted is (answer == EVICTED)

    def test_a_later_one_replaces_it(self, mailbox: Mailbox) -> None:
        notify(mailbox, "/a")
        Notices(mailbox).offer("/a", LogId(8), "")
        assert [each.position for each in mailbox.take(10**9)] == [8]

    def test_a_notice_waits_again_with_what_it_is_about(self, mailbox: Mailbox) -> None:
        cast("StoreLedger", mailbox._ledger).durable.take(LogId(1), PendingMessage(0, 2, "/a"))
        first = Entry.logged("/a", LogId(1), b"{}", origin=Origin("1", "0"))
        mailbox.offer(first)
        notice = notify(mailbox, "/a")
        mailbox.told(mailbox.take(10**9), 0.0)
        assert mailbox._notices_of([first]) == [notice]
        assert not mailbox.view().is_open(PLACE)
