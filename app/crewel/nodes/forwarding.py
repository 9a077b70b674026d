"""Requests that go to another node (decision 0261).

The node that a client has reached has a `Relay` for each request that it forwards, and for each WebSocket; the owner of the
session has a `RemotePeer` (`nodes.remote_peer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from crewel.bayeux.codec import encode
from crewel.bayeux.numbers import parse
from crewel.broker.cluster import LONGEST_PAUSE_MS
from crewel.broker.exchange import CONNECT_CHANNEL, Peer
from crewel.nodes.bus import Bus
from crewel.nodes.calls import Calls
from crewel.nodes.frames import LAST_STREAM, Frame, Kind
from crewel.nodes.link import Link, OpenLinks

_REQUEST: Final = Kind.REQUEST
_ANSWER: Final = Kind.ANSWER
"""Asked for with each request: a member of an enumeration is a slow look-up."""
SETTLED: Final = Struct("!I?")
"""The payload of a frame of that kind."""


class Relay:
    """One forwarded request, or one WebSocket, where the client has reached the cluster.

    A connect alone may be sent again to another node; all else might be done twice. So this keeps which frames of a socket
    the owner has not answered: if that is at most a connect, the socket outlives the owner of its session.
    """

    __slots__ = (
        "_connect",
        "_connect_at",
        "_holds",
        "_link",
        "_others_at",
        "_relays",
        "_sent",
        "_settled",
        "_stream",
        "peer",
    )

    def __init__(
        self, link: Link, relays: dict[int, Relay], peer: Peer, elements: list[Any], *, needs_cookie: bool = True
    ) -> None:
        stream = link.streams % LAST_STREAM + 1
        while stream in relays:  # sockets have theirs for days
            stream = stream % LAST_STREAM + 1
        link.streams = stream
        self._link, self._relays, self._stream = link, relays, stream
        self.peer = peer
        self._connect: list[Any] | None = None
        """The last connect that came alone."""
        self._sent = self._connect_at = self._others_at = self._settled = 0
        """How many frames were sent; which of them was that connect, and which the last one that was something else; how many
        have been answered."""
        self._holds = False
        """Whether the connect was not among those answered, although it was counted."""
        self._note(elements)
        relays[self._stream] = self
        peer.relay = self
        # By the headers of a connect that lacks the cookie the owner logs what helps its client.
        with_headers = peer.pushes or (needs_cookie and peer.browser is None) or self._connect is None
        link.send(_REQUEST, self._stream, _described(peer, elements, with_headers=with_headers))

    def _note(self, elements: list[Any]) -> None:
        self._sent += 1
        if len(elements) == 1 and elements[0].get("channel") == CONNECT_CHANNEL.name:
            self._connect, self._connect_at = elements, self._sent
        else:
            self._others_at = self._sent

    def goes_to(self, link: Link) -> bool:
        """Whether it goes over this link."""
        return self._link is link

    def forward(self, elements: list[Any]) -> None:
        """Forward a further frame of the socket."""
        self._note(elements)
        self._link.send(Kind.FRAME, self._stream, encode(elements))

    def gone(self) -> None:
        """The client has gone, or its socket has nothing more to do with that node."""
        self._end()
        self._link.send(Kind.GONE, self._stream)

    def half_closed(self, longest_pause_ms: int = 0) -> None:
        """The client sends no more; with a pause, this node is about to end."""
        self._link.send(Kind.HALF_CLOSED, self._stream, longest_pause_ms.to_bytes(4) if longest_pause_ms else b"")

    def caught_up(self) -> None:
        """The client takes again what it is sent."""
        self._link.send(Kind.RESUME, self._stream)

    def _end(self) -> None:
        self._relays.pop(self._stream, None)
        if self.peer.relay is self:
            self.peer.relay = None

    def take(self, frame: Frame) -> list[Any] | None:
        """Do what the other node says. Returns the elements that it would not take."""
        peer, payload = self.peer, frame.payload
        if frame.kind == _ANSWER:
            self._answer(payload)
        elif frame.kind == Kind.SETTLED:
            self._settled, self._holds = SETTLED.unpack(payload)
        elif frame.kind == Kind.SLOW:
            peer.slow_down(int.from_bytes(payload) / 1000)
        elif frame.kind in (Kind.SUPERSEDED, Kind.END, Kind.REFUSED):
            self._end()
            if frame.kind == Kind.SUPERSEDED:
                peer.supersede()
            elif frame.kind == Kind.END:
                peer.cut_off()
            elif peer.pushes and self._sent > self._settled:
                peer.cut_off()  # further frames met no one: nothing would answer them
            else:
                elements: list[Any] = parse(payload)
                return elements
        return None

    def _answer(self, payload: bytes) -> None:
        peer, begin = self.peer, 1 + payload[0]
        if begin > 1:
            peer.mint(payload[1:begin].decode())
        parts = [payload[begin:]] if len(payload) > begin else []
        if not peer.pushes:
            self._end()
        peer.send(parts)
        if peer.pushes and not peer.is_writable:
            self._link.send(Kind.PAUSE, self._stream)

    def lost(self) -> list[Any] | None:
        """The link has ended. Returns the connect that was not answered, which can be sent again. If anything else was not,
        the client's connection is cut off, for its outcome is unknown."""
        self._end()
        if self._others_at > self._settled:
            self.peer.cut_off()
            return None
        return self._connect if self._holds or self._connect_at > self._settled else None


def _described(peer: Peer, elements: list[Any], *, with_headers: bool) -> bytes:
    """What the owner has to know, as JSON. Header values that are no UTF-8 lose what is not. A connect alone goes without its
    headers, unless it is refused anyway: to parse them again and again would cost more than all else."""
    fields = {
        "transport": peer.transport,
        "browser": peer.browser,
        "remote": peer.remote,
        "secure": peer.is_secure,
        "elements": elements,
        "headers": list(peer.headers.items()) if with_headers else (),
    }
    try:
        return encode(fields)
    except TypeError:
        fields["headers"] = [(name, value.encode(errors="replace").decode()) for name, value in peer.headers.items()]
        return encode(fields)


class ForwarderListener(Protocol):
    """Gets what happens to requests on their way."""

    def on_open(self) -> None:
        """There is a way for the queued requests."""

    def on_refused(self, token: str, peer: Peer, elements: list[Any]) -> None:
        """The node with this token has not taken it."""

    def on_lost(self, token: str, waiting: list[tuple[Peer, list[Any]]]) -> None:
        """The link to the node with this token has ended; these connects waited for it."""

    def on_leaving(self, token: str) -> None:
        """The node with this token ends."""


class Ways(NamedTuple):
    """What leads to other nodes."""

    links: OpenLinks
    bus: Bus
    calls: Calls


class Forwarder:
    """The requests that this node forwards, and what the other nodes subscribe to."""

    def __init__(self, listener: ForwarderListener, bus: Bus, calls: Calls, *, needs_cookie: bool = True) -> None:
        """`needs_cookie`: whether a connect without the browser cookie is refused."""
        self._listener = listener
        self._needs_cookie = needs_cookie
        self._calls = calls
        self._relays: dict[Link, dict[int, Relay]] = {}
        self._is_draining = False
        self._by_kind: Mapping[int, Callable[[Link, Frame], None]] = {
            Kind.LEAVING: lambda link, _: self._listener.on_leaving(link.token),
            Kind.TOLD: calls.on_answer,
            Kind.ALL_PATTERNS: bus.on_patterns,
            Kind.SUBSCRIBE: bus.on_patterns,
            Kind.UNSUBSCRIBE: bus.on_patterns,
        }
        """What is done with a frame that belongs to no stream of a client."""

    def __len__(self) -> int:
        return sum(map(len, self._relays.values()))

    def forward(self, link: Link, peer: Peer, elements: list[Any]) -> None:
        """Forward what this peer has sent."""
        relay = peer.relay
        if relay is not None and peer.pushes:
            if isinstance(relay, Relay) and relay.goes_to(link):
                relay.forward(elements)
                self._let_go(relay)
                return
            relay.gone()
        relay = Relay(link, self._relays[link], peer, elements, needs_cookie=self._needs_cookie)
        if peer.pushes and peer.is_gone:
            relay.gone()  # what a lost socket had sent is carried out, and nothing is sent to it
        elif self._is_draining:
            self._let_go(relay)
        elif peer.is_half_closed:
            relay.half_closed()

    def drain(self) -> None:
        """Let the owners answer the connects that they hold, from now on all at once: this node ends."""
        self._is_draining = True
        for relays in self._relays.values():
            for relay in relays.values():
                self._let_go(relay)

    def _let_go(self, relay: Relay) -> None:
        if self._is_draining:
            relay.half_closed(LONGEST_PAUSE_MS)

    def opened(self, link: Link) -> None:
        """Requests can be sent there."""
        self._relays[link] = {}
        self._listener.on_open()

    def caught_up(self, link: Link) -> None:
        """They can be again."""
        self._listener.on_open()

    def take(self, link: Link, frame: Frame) -> None:
        """The owner has answered."""
        take = self._by_kind.get(frame.kind)
        if take is not None:
            take(link, frame)
            return
        relay = self._relays[link].get(frame.stream)
        elements = None if relay is None else relay.take(frame)
        if relay is not None and elements is not None:
            self._listener.on_refused(link.token, relay.peer, elements)

    def lost(self, link: Link) -> None:
        """The requests queued there are lost, but for connects."""
        self._calls.lost(link)
        waiting = []
        for relay in list(self._relays.pop(link).values()):
            connect = relay.lost()
            if connect is not None:
                waiting.append((relay.peer, connect))
        self._listener.on_lost(link.token, waiting)
