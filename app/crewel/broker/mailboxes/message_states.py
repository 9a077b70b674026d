"""Where a message of a stored session is, and what moves it: the table from which the documentation draws its diagram.

A mailbox keeps no such state for each message: one record serves all its receivers (decision 0390). The state is where the
message lies, and `tests/broker/mailboxes/test_message_states.py` holds a mailbox against each row. A transient message is in
no store: it waits in the queue where a stored one waits in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from crewel.errors.codes import Explained


class MessageState(Explained):
    """Where a message is."""

    STORED = "stored", "It waits in the store, and memory has its id only."
    QUEUED = "queued", "It waits in the queue."
    SENT = "sent", "It is at the client, in a batch that is not acknowledged."
    OPEN = "open", "It is at the client, which has to report its status."
    ENDED = "ended", "It is settled, a dead letter, expired, or dropped."


class MessageEvent(Enum):
    """What moves a message: a method of the mailbox, and what has happened."""

    LOADED = "load", "its body was read"
    TAKEN = "take", "it leaves with a response"
    ACKNOWLEDGED = "acknowledge", "its batch is acknowledged"
    STATUS_AWAITED = "acknowledge", "its batch is acknowledged, and it needs a status"
    NOT_ACKNOWLEDGED = "acknowledge", "a connect does not acknowledge its batch"
    SETTLED = "report", "the client reports success"
    PUT_BACK = "report", "the client reports a failure, and has another attempt"
    FAILED = "report", "the client reports that it never succeeds"
    PAUSED = "hold", "the session is on hold, or waits after a failure"
    RENEWED = "renew", "another client continues the session"
    DEAD_LETTERED = "dead_letter_one", "an operator makes it a dead letter"
    DROPPED = "drop_first", "an operator drops it"
    OVERFLOWED = "offer", "the queue is full, and drops its oldest message"
    EXPIRED = "expire", "its life is over"

    def __init__(self, method: str, meaning: str) -> None:
        self.method = method
        self.meaning = meaning


TRANSITIONS: Final[Mapping[MessageState, Mapping[MessageEvent, MessageState]]] = {
    MessageState.STORED: {
        MessageEvent.LOADED: MessageState.QUEUED,
        MessageEvent.DEAD_LETTERED: MessageState.ENDED,
        MessageEvent.DROPPED: MessageState.ENDED,
        MessageEvent.OVERFLOWED: MessageState.ENDED,
        MessageEvent.EXPIRED: MessageState.ENDED,
    },
    MessageState.QUEUED: {
        MessageEvent.TAKEN: MessageState.SENT,
        MessageEvent.PAUSED: MessageState.STORED,
        MessageEvent.RENEWED: MessageState.STORED,
        MessageEvent.DEAD_LETTERED: MessageState.ENDED,
        MessageEvent.DROPPED: MessageState.ENDED,
        MessageEvent.OVERFLOWED: MessageState.ENDED,
        MessageEvent.EXPIRED: MessageState.ENDED,
    },
    MessageState.SENT: {
        MessageEvent.ACKNOWLEDGED: MessageState.ENDED,
        MessageEvent.STATUS_AWAITED: MessageState.OPEN,
        MessageEvent.NOT_ACKNOWLEDGED: MessageState.QUEUED,
        MessageEvent.SETTLED: MessageState.ENDED,
        MessageEvent.PUT_BACK: MessageState.STORED,
        MessageEvent.FAILED: MessageState.ENDED,
        MessageEvent.RENEWED: MessageState.STORED,
        MessageEvent.DEAD_LETTERED: MessageState.ENDED,
        MessageEvent.DROPPED: MessageState.ENDED,
    },
    MessageState.OPEN: {
        MessageEvent.SETTLED: MessageState.ENDED,
        MessageEvent.PUT_BACK: MessageState.STORED,
        MessageEvent.FAILED: MessageState.ENDED,
        MessageEvent.RENEWED: MessageState.STORED,
        MessageEvent.DEAD_LETTERED: MessageState.ENDED,
        MessageEvent.DROPPED: MessageState.ENDED,
    },
    MessageState.ENDED: {},
}
"""An event that is missing from a state's row leaves the message where it is."""
