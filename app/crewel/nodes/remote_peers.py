"""Requests that come from other nodes (decision 0261).

The owner of a session has a `RemotePeer` for each, a peer like any other to the broker. The node that the client has reached
has a `Relay` (`nodes.forwarding`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import orjson
from multidict import CIMultiDict

from crewel.bayeux.codec import encode
from crewel.bayeux.numbers import parse
from crewel.broker.exchange import CONNECT_CHANNEL, Peer
from crewel.broker.inbound import Answering, when_answered
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.nodes.bus import Bus
from crewel.nodes.calls import Calls
from crewel.nodes.forwarding import SETTLED
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import Link
from crewel.nodes.remote_destinations import RemoteDestinations
from crewel.nodes.remote_presence import RemotePresence

_MOST_WAITING: Final = 32
"""Frames of one WebSocket that wait for the one before them; beyond that its client is slowed down."""
_REST_MS: Final = 200
_ANSWER: Final = Kind.ANSWER
"""Asked for with each request: a member of an enumeration is a slow look-up."""
_DATA: Final = b'"data"'
"""The field of messages that can have a number of a user."""


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
        """Of a socket whose last frame is not answered yet: those that have come since."""

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


_KINDS: Final[Mapping[str, type[RemotePeer]]] = {
    each.transport: each for each in (RemotePeer, RemoteCallback, RemoteSocket)
}


class RemotePeersListener(Protocol):
    """Gets what other nodes forward."""

    def receive_forwarded(self, peer: RemotePeer, elements: list[Any]) -> Answering | None:
        """Take what a peer sends. It is never forwarded again."""

    def on_leaving(self, token: str) -> None:
        """The node with this token ends."""


class RemotePeers:
    """The requests that other nodes forward to this one."""

    def __init__(
        self,
        runtime: Runtime,
        mailboxes: Mailboxes,
        listener: RemotePeersListener,
        bus: Bus,
        calls: Calls,
        addressed: RemoteDestinations,
        presence: RemotePresence,
    ) -> None:
        self._runtime = runtime
        self._outbound, self._connects, self._times = mailboxes.outbound, mailboxes.connects, mailboxes.times
        self._receive = listener.receive_forwarded
        self._bus = bus
        self._peers: dict[Link, dict[int, RemotePeer]] = {}
        self._by_kind: Mapping[int, Callable[[Link, Frame], None]] = {
            Kind.REQUEST: self._requested,
            Kind.ASK: calls.asked,
            Kind.ADDRESSED: lambda _, frame: addressed.take(frame),
            Kind.QUEUES: lambda _, frame: addressed.take(frame),
            Kind.MESSAGE: bus.take,
            Kind.CONFIRM: bus.take,
            Kind.DEAD_LETTERS: bus.take,
            Kind.PRESENCE: presence.take,
            Kind.LEAVING: lambda link, _: listener.on_leaving(link.token),
        }
        self._by_kind_of_stream: Mapping[int, Callable[[RemotePeer, bytes], None]] = {
            Kind.FRAME: lambda peer, payload: self._take_further(peer, parse(payload)),
            Kind.GONE: lambda peer, _: self._gone(peer),
            Kind.HALF_CLOSED: self._half_closed,
            Kind.PAUSE: lambda peer, _: self._writable(peer, is_writable=False),
            Kind.RESUME: lambda peer, _: self._writable(peer, is_writable=True),
        }
        """What is done with a frame of a stream that was opened before."""

    def __len__(self) -> int:
        return sum(map(len, self._peers.values()))

    def opened(self, link: Link) -> None:
        """Requests come from there."""
        self._peers[link] = {}
        self._bus.joined(link)

    def caught_up(self, link: Link) -> None:
        """The other node takes answers again: take more requests of it."""
        link.resume_reading()

    def take(self, link: Link, frame: Frame) -> None:
        """Do what the other node's client asks for."""
        take = self._by_kind.get(frame.kind)
        if take is not None:
            take(link, frame)
            return
        take_of_stream = self._by_kind_of_stream.get(frame.kind)
        peer = self._peers[link].get(frame.stream)
        if take_of_stream is not None and peer is not None:
            take_of_stream(peer, frame.payload)

    def _requested(self, link: Link, frame: Frame) -> None:
        payload = frame.payload
        peers, fields = self._peers[link], parse(payload) if _DATA in payload else orjson.loads(payload)
        peer = peers[frame.stream] = _KINDS[fields["transport"]](link, frame.stream, fields, peers)
        if peer.pushes:
            self._serve(peer, fields.pop("elements"))
        else:
            self._receive(peer, fields.pop("elements"))
        if link.is_clogged:
            link.pause_reading()

    def _writable(self, peer: RemotePeer, *, is_writable: bool) -> None:
        peer.is_writable = is_writable
        session = peer.session
        if is_writable and session is not None:
            self._outbound.leave_soon(session)

    def _take_further(self, peer: RemotePeer, elements: list[Any]) -> None:
        if peer.waiting is None:
            self._serve(peer, elements)
            return
        peer.waiting.append(elements)
        if len(peer.waiting) > _MOST_WAITING:
            peer.slow_down(_REST_MS / 1000)

    def _serve(self, peer: RemotePeer, elements: list[Any]) -> bool:
        """Serve this; True if a socket's next frame has to wait, for they are answered in their order."""
        if not isinstance(peer, RemoteSocket):
            self._receive(peer, elements)
            return False
        peer.serves()
        answering = self._receive(peer, elements)
        if answering is None:
            peer.served(elements)
            return False
        if peer.waiting is None:
            peer.waiting = deque()
        when_answered(answering, partial(self._served, peer, elements))
        return True

    def _served(self, peer: RemoteSocket, elements: list[Any], _: object) -> None:
        peer.served(elements)
        asyncio.get_running_loop().call_soon(self._serve_next, peer)

    def _serve_next(self, peer: RemotePeer) -> None:
        waiting = peer.waiting
        while waiting and not peer.is_gone:
            if self._serve(peer, waiting.popleft()):
                return
        peer.waiting = None

    def _half_closed(self, peer: RemotePeer, pause_ms: bytes) -> None:
        longest_pause_ms = int.from_bytes(pause_ms)
        if not longest_pause_ms:
            peer.is_half_closed = True  # its connect may still wait for the store
        self._connects.half_closed(peer, longest_pause_ms)

    def _gone(self, peer: RemotePeer) -> None:
        peer.leave()
        if peer.pushes:
            self._connects.socket_closed(peer)
            session, peer.session = peer.session, None
            if session is not None:
                session.forget_peer(peer)
        else:
            self._connects.vanished(peer)

    def lost(self, link: Link) -> None:
        """All its clients have gone, as far as this node knows. The node does not reach this one any more, and clients of
        sessions that are here may wait at it: they get as much more time as after a restart."""
        self._bus.left(link)
        grace_s = self._runtime.settings.delivery.restart_grace_ms / 1000
        self._times.excuse(self._runtime.loop.time() + grace_s)
        for peer in list(self._peers.pop(link).values()):
            self._gone(peer)
