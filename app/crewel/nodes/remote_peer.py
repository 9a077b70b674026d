"""A request or a socket of a client that has reached another node: a peer like any other to the broker of this one.

What it is sent goes to the `Relay` at the other node (`nodes.forwarding`). Decision 0261.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from multidict import CIMultiDict

from crewel.bayeux.codec import encode
from crewel.broker.exchange import CONNECT_CHANNEL, Peer
from crewel.nodes.forwarding import SETTLED
from crewel.nodes.frames import Kind
from crewel.nodes.link import Link

_ANSWER: Final = Kind.ANSWER
"""Asked for with each request: a member of an enumeration is a slow look-up."""


class RemotePeer(Peer):
    """A request of a client that has reached another node."""

    transport = "long-polling"
    __slots__ = ("_fields", "_is_gone", "_peers", "is_half_closed", "link", "stream", "waiting")

    def __init__(self, link: Link, stream: int, fields: dict[str, Any], peers: dict[int, RemotePeer]) -> None:
        """`peers` are those of the link, by stream: this one is among them until it is answered."""
        super().__init__(fields["browser"])
        self.link = link
        self.stream = stream
        self._fields = fields
        self._peers = peers
        self._is_gone = self.is_half_closed = False
        self.waiting: deque[list[Any]] | None = None
        """Served later: the frames of a socket whose last one is not answered yet, and those whose turn has not come."""

    def send(self, parts: list[bytes]) -> None:
        """Send these messages by way of the node that has the connection."""
        cookie = self.browser.encode() if self.mints_cookie and self.browser is not None else b""
        self.mints_cookie = False
        self.link.send(_ANSWER, self.stream, bytes((len(cookie),)) + cookie + b",".join(parts))
        self._sent()

    def _sent(self) -> None:
        """An answer has gone: the request has had its own."""
        self._peers.pop(self.stream, None)

    def supersede(self) -> None:
        """End the held connect."""
        self._peers.pop(self.stream, None)
        self.link.send(Kind.SUPERSEDED, self.stream)

    def refuse(self, elements: list[Any]) -> None:
        """Its session is not here: give back what it sent."""
        self.leave()
        self.link.send(Kind.REFUSED, self.stream, encode(elements))

    def slow_down(self, seconds: float) -> None:
        """Take nothing more from the client for so long."""
        self.link.send(Kind.SLOW, self.stream, int(seconds * 1000).to_bytes(4))

    def cut_off(self) -> None:
        """Break the client's connection."""
        self.waiting = None
        self.leave()
        self.link.send(Kind.END, self.stream)

    def leave(self) -> None:
        """The request has ended: what is sent from here on arrives nowhere."""
        self._is_gone = True
        self._peers.pop(self.stream, None)

    @property
    def is_gone(self) -> bool:
        """Whether the client has gone, as far as this node knows."""
        return self._is_gone

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that the other node has sent; none of a connect alone that has a cookie."""
        return CIMultiDict(map(tuple, self._fields["headers"]))

    @property
    def remote(self) -> str | None:
        """The address of the client."""
        remote: str | None = self._fields["remote"]
        return remote

    @property
    def is_secure(self) -> bool:
        """Whether the client came by TLS."""
        return bool(self._fields["secure"])


class RemoteCallback(RemotePeer):
    """A request of a script."""

    transport = "callback-polling"
    connect_only = True
    __slots__ = ()


class RemoteSocket(RemotePeer):
    """A WebSocket."""

    transport = "websocket"
    pushes = True
    __slots__ = ("_held", "_served", "_serves")

    def __init__(self, link: Link, stream: int, fields: dict[str, Any], peers: dict[int, RemotePeer]) -> None:
        super().__init__(link, stream, fields, peers)
        self._served = 0
        self._serves = False
        self._held = False

    def _sent(self) -> None:
        """Others follow."""
        self._check_held()

    def _check_held(self) -> None:
        """Report that the connect is no longer held. A change during the processing of a frame is reported after that frame."""
        if self._held and not self._serves and not self._holds():
            self._settle(held=False)

    def _holds(self) -> bool:
        held = self.session.held if self.session is not None else None
        return held is not None and held.peer is self

    def serves(self) -> None:
        """A frame is processed from here on."""
        self._serves = True

    def served(self, elements: list[Any]) -> None:
        """It has been."""
        self._serves = False
        self._served += 1
        is_held = self._holds()
        if not (is_held and len(elements) == 1 and elements[0].get("channel") == CONNECT_CHANNEL.name):
            self._settle(held=is_held)
        self._held = is_held

    def refuse(self, elements: list[Any]) -> None:
        """What has come since goes back too. By their number the other node knows whether more are on the way."""
        later, self.waiting = self.waiting or (), None
        self._served += len(later)  # what is refused itself is counted by `served`, which comes behind this
        self.link.send(Kind.SETTLED, self.stream, SETTLED.pack(self._served + 1, False))
        super().refuse(sum(later, elements))

    def _settle(self, *, held: bool) -> None:
        self._held = held
        if not self.is_gone:
            self.link.send(Kind.SETTLED, self.stream, SETTLED.pack(self._served, held))

    def supersede(self) -> None:
        """A connect that a newer one replaced gets no reply on a socket."""
        self._check_held()


KINDS: Final[Mapping[str, type[RemotePeer]]] = {
    each.transport: each for each in (RemotePeer, RemoteCallback, RemoteSocket)
}
