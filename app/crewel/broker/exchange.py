"""One payload from a peer on its way through the broker: its elements, its session, and the replies so far."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from crewel.bayeux.message import Fields, Message
from crewel.bayeux.replies import Reply
from crewel.broker.peer import Peer
from crewel.broker.sessions import Session

if TYPE_CHECKING:
    from crewel.settings.declared import Bayeux


class Exchange:
    """A request or frame that is being answered. The session of its first message is the session of the whole of it."""

    # On the class, because most exchanges never set them.
    session: Session | None = None
    connect: Reply | None = None
    """The successful connect reply among the replies."""
    handshake: Reply | None = None
    """The successful handshake reply among them."""
    login: Fields | None = None
    """What the handshake reply tells of the session, in `ext.session`, if it was asked."""
    was_connected = False
    """Whether the session had connected before: the first connect is answered at once."""
    advise = False
    """Whether the connect reply tells the advice."""
    waits: Session | None = None
    """The session, while something is waited for: as it was at first, for a refused handshake takes it away."""
    ahead: deque[tuple[Message | None, Any, Any]] | None = None
    """The messages after the one that is waited for that were begun already, each with its handler and what that waits for; or
    with its reply, and None."""

    def __init__(self, peer: Peer, elements: list[Any]) -> None:
        self.peer = peer
        self.elements = elements
        self.replies: list[tuple[Reply, Message | None]] = []
        """The replies with their requests, which the extensions see again when the reply leaves; an element that is not
        a message has none."""

    def wait(self) -> None:
        """Something has to be waited for. What reaches the session until the answer goes with the answer, and wakes nothing."""
        if self.session is not None:
            self.waits = self.session
            self.session.requests += 1

    def resume(self) -> None:
        """All has come that was waited for."""
        if self.waits is not None:
            self.waits.requests -= 1
            self.waits = None

    def carries_messages(self, session: Session, settings: Bayeux) -> bool:
        """Whether what waits for the session goes out with the answer."""
        if self.peer.is_gone:
            return False  # it went while its request waited for something
        if self.handshake is not None:
            return settings.allow_message_delivery_during_handshake
        if self.connect is not None or not session.is_live:
            return True
        return not (session.connect_only or self.peer.connect_only)
