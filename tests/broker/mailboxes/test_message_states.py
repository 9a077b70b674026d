"""A message of a stored session goes where the table says, and nothing moves it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.ledger import StoreLedger
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.mailbox_listener import MailboxListener, Occasion
from crewel.broker.mailboxes.message_states import TRANSITIONS, MessageEvent, MessageState
from crewel.delivery.dispatcher import Rules
from crewel.delivery.dispatcher_states import Holdback
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.outcomes import Status, Verdict
from crewel.delivery.records import LogId, PendingMessage, SessionName
from crewel.qos.connect import Bounds, OverflowPolicy, Settle
from crewel.qos.update import Origin
from tests.delivery.receiver import Listener, Receiver

PLACE = LogId(7)
EXPIRES = 1_000


class OneMessage:
    """A stored session with one message."""

    def __init__(self, settle: Settle = Settle.MESSAGE) -> None:
        self.durable = DurableSession(SessionName("client/joe/1"))
        listener = cast("MailboxListener", Listener(cast("Receiver", self)))
        self.mailbox = Mailbox(StoreLedger(self.durable, listener))
        self.mailbox.begin_batches()
        self.mailbox.configure(Rules(tells=True, settle=settle, retries=-1), 0)
        origin = Origin(str(PLACE), "0")
        self.entry = Entry.logged("/a", PLACE, b"{}", origin=origin, expires=EXPIRES)
        self.durable.take(PLACE, PendingMessage(0, 2, "/a", expires=EXPIRES))
        self.mailbox._queue = [self.entry]
        self.clock = 0

    @property
    def state(self) -> MessageState:
        mailbox, entry = self.mailbox, self.entry
        places = {
            MessageState.STORED: self.durable.is_evicted(PLACE),
            MessageState.QUEUED: entry in mailbox._queue,
            MessageState.SENT: entry in mailbox._batches.unacknowledged and entry not in mailbox._queue,
            MessageState.OPEN: str(PLACE) in mailbox._dispatcher.messages.opened
            and entry not in (*mailbox._queue, *mailbox._batches.unacknowledged),
        }
        found = [state for state, is_there in places.items() if is_there]
        assert len(found) <= 1, f"it is in several places: {found}"
        assert bool(found) is (self.durable.find(PLACE) is not None), "it is open exactly as long as it is somewhere"
        return found[0] if found else MessageState.ENDED

    def load(self) -> None:
        """As `BacklogLoader` does."""
        if self.durable.load([PLACE]):
            self.mailbox._queue = [self.entry]

    def take(self) -> None:
        """As a response does."""
        if taken := self.mailbox.take(10**9):
            self.mailbox.told(taken, 0)
            self.mailbox.close_batch()

    def report(self, verdict: Verdict, code: str = "") -> None:
        status = Status(str(PLACE), verdict, code, "", {})
        self.mailbox.report([status], None, Occasion("client/joe/1", 0, 0, lambda _: False))

    def overflow(self) -> None:
        """One more message comes than there is room for."""
        self.mailbox.bound(Bounds(1, 10**9, OverflowPolicy.DROP_OLDEST))
        self.durable.take(LogId(8), PendingMessage(0, 2, "/a"))
        self.mailbox.offer(Entry.logged("/a", LogId(8), b"{}"))


START: dict[MessageState, tuple[MessageEvent, ...]] = {
    MessageState.QUEUED: (),
    MessageState.STORED: (MessageEvent.PAUSED,),
    MessageState.SENT: (MessageEvent.TAKEN,),
    MessageState.OPEN: (MessageEvent.TAKEN, MessageEvent.STATUS_AWAITED),
    MessageState.ENDED: (MessageEvent.DROPPED,),
}
"""What leads from the queue to each state."""
HAPPENS: dict[MessageEvent, Callable[[OneMessage], object]] = {
    MessageEvent.LOADED: OneMessage.load,
    MessageEvent.TAKEN: OneMessage.take,
    MessageEvent.ACKNOWLEDGED: lambda it: it.mailbox.acknowledge(it.mailbox._batches.number - 1),
    MessageEvent.STATUS_AWAITED: lambda it: it.mailbox.acknowledge(it.mailbox._batches.number - 1),
    MessageEvent.NOT_ACKNOWLEDGED: lambda it: it.mailbox.acknowledge(None),
    MessageEvent.SETTLED: lambda it: it.report(Verdict.OK),
    MessageEvent.PUT_BACK: lambda it: it.report(Verdict.FAILED, "communication.noConnection"),
    MessageEvent.FAILED: lambda it: it.report(Verdict.FAILED, "user.message.poison"),
    MessageEvent.PAUSED: lambda it: it.mailbox.hold(Holdback("operator", 0), Rules()),
    MessageEvent.RENEWED: lambda it: it.mailbox.renew(),
    MessageEvent.DEAD_LETTERED: lambda it: Ends(it.mailbox).dead_letter_one("", "user.update.deadMessage", ""),
    MessageEvent.DROPPED: lambda it: Ends(it.mailbox).drop_first(1),
    MessageEvent.OVERFLOWED: OneMessage.overflow,
    MessageEvent.EXPIRED: lambda it: it.mailbox.expire(EXPIRES),
}


CELLS = [
    pytest.param(state, event, id=f"{state.name}-{event.name}")
    for state in MessageState
    for event in MessageEvent
    if (state, event) != (MessageState.OPEN, MessageEvent.ACKNOWLEDGED)  # what needs no status is never open
]


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_a_message_goes_where_the_table_says(state: MessageState, event: MessageEvent) -> None:
    it = OneMessage(Settle.BATCH if event is MessageEvent.ACKNOWLEDGED else Settle.MESSAGE)
    for former in START[state]:
        HAPPENS[former](it)
    assert it.state is state
    HAPPENS[event](it)
    assert it.state is TRANSITIONS[state].get(event, state)


@pytest.mark.parametrize("event", MessageEvent, ids=lambda event: event.name)
def test_each_event_is_a_method_of_the_mailbox(event: MessageEvent) -> None:
    assert any(hasattr(each, event.method) for each in (Mailbox, Ends))


def test_rows_are_complete() -> None:
    assert set(TRANSITIONS) == set(MessageState)
    assert set(HAPPENS) == set(MessageEvent)
