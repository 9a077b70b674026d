"""Messages that the server fails to send."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from crewel.broker.mailboxes.ends import Ends
from crewel.delivery.dispatcher import FailedDelivery
from crewel.delivery.outcomes import INTERNAL_ERROR, MAX_REASON

if TYPE_CHECKING:
    from crewel.broker.session import Session
    from crewel.delivery.entry import Entry

log = logging.getLogger(__name__)


def dead_letter_unsendable(session: Session, entry: Entry, error: Exception) -> None:
    """The server has failed to make of the message what its receiver gets: it becomes a dead letter, for it would fail each
    time."""
    log.error("a message on %s could not be sent, and becomes a dead letter: %r", entry.channel, error)
    log.debug("where that happened", exc_info=error)
    if not entry.channel.startswith("/meta/"):
        why = f"the server could not send it: {error}"[:MAX_REASON]
        Ends(session.mailbox).dead_letter(FailedDelivery(entry, INTERNAL_ERROR, why))
