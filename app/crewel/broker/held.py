"""A connect that waits: the continuation of a request, without a task or a future."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply

if TYPE_CHECKING:
    from crewel.broker.peer import Peer
    from crewel.broker.sessions import Session

CONNECT_CHANNEL: Final = Channel("/meta/connect", ["meta", "connect"])


class Held:
    """A held connect. It waits for long, and many do: what it keeps is memory, and has left the caches when it is needed.
    So of a bare connect (a connect that says what it must, and nothing else) only the id is kept."""

    __slots__ = ("advise", "deadline", "not_before", "peer", "reply", "request", "twin")

    def __init__(
        self,
        peer: Peer,
        request: Message | str,
        reply: Reply | None,
        deadline: float,
        not_before: float = 0.0,
        advise: bool = False,
    ) -> None:
        self.peer = peer
        self.request = request
        """The message; of a bare connect, its id."""
        self.reply = reply
        """The reply as it stands; None of a plain connect, whose reply is made when it is answered."""
        self.deadline = deadline
        """Loop time (s) at which it is answered even if nothing has come."""
        self.not_before = not_before
        """Loop time (s) before which it is not answered, whatever comes (`SessionPart`s slow a futile client down)."""
        self.advise = advise
        self.twin: Peer | None = None
        """A second request that brought the very same connect, and gets the same answer."""

    def message(self, session: Session) -> Message:
        """The message; that of a bare connect as it was."""
        request = self.request
        if isinstance(request, str):
            names = {"connectionType": self.peer.transport, "clientId": session.id, "id": request}
            request = Message({"channel": CONNECT_CHANNEL.name, **names}, CONNECT_CHANNEL, request)
        return request
