"""How many messages of a shared queue a session may lease: what it has room for, and its client can process soon."""

from __future__ import annotations

from typing import Final

from crewel.broker.mailboxes.mailbox_view import MailboxView
from crewel.broker.session import Session
from crewel.qos.names import is_exclusive

AHEAD: Final = 100
"""Messages of a group that one member has at a time, unless its login said how many it takes at once."""
_AT_ONCE: Final = 500


def lease_room(session: Session, name: str, waiting: int) -> int:
    """How many messages of the queue with this name a session may lease now for which so many wait already."""
    view = session.mailbox.view()
    bounds = view.bounds
    if bounds is None:
        return 0
    room = bounds.max_entries - waiting
    if is_exclusive(name):
        leased = sum(is_exclusive(pending.source) for pending in view.inbox.values())
        room = min(room, (session.asked.burst.max_entries or AHEAD) - leased)
        if view.max_open:
            # Another member may process at once what would wait here behind open messages.
            room = min(room, view.room_at_client - _unsent_leases(view))
    return max(0, min(room, _AT_ONCE))


def _unsent_leases(view: MailboxView) -> int:
    """How many messages the session has leased that its client has not got."""
    sent = view.sent_places()
    return sum(is_exclusive(pending.source) and place not in sent for place, pending in view.inbox.items())
