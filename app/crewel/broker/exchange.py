"""One payload from a peer on its way through the broker: its elements, its session, and the replies so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.peer import Peer
from crewel.broker.sessions import Session

__all__ = ["Exchange"]


class Exchange:
    """A request or frame that is being answered. The session of its first message is the session of the whole of it."""

    __slots__ = (
        "advise",
        "connect",
        "elements",
        "handshake",
        "is_alone",
        "peer",
        "replies",
        "session",
        "was_connected",
    )

    def __init__(self, peer: Peer, elements: list[Any]) -> None:
        self.peer = peer
        self.elements = elements
        self.is_alone = len(elements) == 1
        """Only a connect that came alone is ever held."""
        self.session: Session | None = None
        self.replies: list[tuple[Reply, Message | None]] = []
        """The replies with their requests, which the extensions see again when the reply leaves; an element that is not
        a message has none."""
        self.connect: Reply | None = None
        """The successful connect reply among them."""
        self.handshake: Reply | None = None
        """The successful handshake reply among them."""
        self.was_connected = False
        """Whether the session had connected before: the first connect is answered at once."""
        self.advise = False
        """Whether the connect reply tells the advice."""

    def messages(self) -> Iterable[Any]:
        """The elements that have not been answered yet."""
        return self.elements[len(self.replies) :]
