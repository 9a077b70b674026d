"""Requests that come from other nodes (decision 0261).

The owner of a session has a `Guest` for each, a peer like any other to the broker; the node that the client has reached has a
`Relay` (`nodes.forwarding`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson
from multidict import CIMultiDict

from crewel.broker.inbound import Answering, when_answered
from crewel.broker.mailboxes.exchange import CONNECT_CHANNEL, Peer
from crewel.broker.mailboxes.outbound import Outbound
from crewel.nodes.bus import Bus
from crewel.nodes.calls import Calls
from crewel.nodes.forwarding import SETTLED
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import Link

_MOST_WAITING: Final = 32
"""Frames of one WebSocket that wait for the one before them; beyond that its client is slowed down."""
_REST_MS: Final = 200
_ANSWER: Final = Kind.ANSWER
"""Asked for with each request: a member of an enumeration is a slow look-up."""


class Guest(Peer):
    """A request of a client that has reached another node."""

    transport = "long-polling"
    __slots__ = ("_fields", "_guests", "_is_gone", "link", "stream", "waiting")

    def __init__(self, link: Link, stream: int, fields: dict[str, Any], guests: dict[int, Guest]) -> None:
        """`guests` are those of the link, by stream: this one is among them until it is answered."""
        super().__init__(fields["browser"])
        self.link = link
        self.stream = stream
        self._fields = fields
        self._guests = guests
        self._is_gone = False
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
        self._guests.pop(self.stream, None)

    def supersede(self) -> None:
        """End the held connect."""
        self._guests.pop(self.stream, None)
        self.link.send(Kind.SUPERSEDED, self.stream)

    def refuse(self, elements: list[Any]) -> None:
        """Its session is not here: give back what it sent."""
        self.leave()
        self.link.send(Kind.REFUSED, self.stream, orjson.dumps(elements))

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
        self._guests.pop(self.stream, None)

    @property
    def is_gone(self) -> bool:
        """Whether the client has gone, as far as this node knows."""
        return self._is_gone

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that the other node was sent; none of a connect alone."""
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


class CallbackGuest(Guest):
    """A request of a script."""

    transport = "callback-polling"
    connect_only = True
    __slots__ = ()


class SocketGuest(Guest):
    """A WebSocket."""

    transport = "websocket"
    pushes = True
    __slots__ = ("_held", "_served", "_serves")

    def __init__(self, link: Link, stream: int, fields: dict[str, Any], guests: dict[int, Guest]) -> None:
        super().__init__(link, stream, fields, guests)
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

    def _settle(self, *, held: bool) -> None:
        self._held = held
        if not self.is_gone:
            self.link.send(Kind.SETTLED, self.stream, SETTLED.pack(self._served, held))

    def supersede(self) -> None:
        """A connect that a newer one replaced gets no reply on a socket."""
        self._check_held()


_GUESTS: Final[Mapping[str, type[Guest]]] = {each.transport: each for each in (Guest, CallbackGuest, SocketGuest)}


class Arrivals:
    """The requests that other nodes forward to this one."""

    def __init__(
        self,
        outbound: Outbound,
        receive: Callable[[Guest, list[Any]], Answering | None],
        lost: Callable[[], None],
        leaves: Callable[[str], None],
        addressed: Callable[[Frame], None],
    ) -> None:
        """`receive` takes what a guest sends; it never forwards it. `lost` is called when a node reaches this one no more,
        `leaves` with the token of one that ends, and `addressed` with what is for certain sessions, or waits for some."""
        self._outbound = outbound
        self._receive = receive
        self._lost = lost
        self._guests: dict[Link, dict[int, Guest]] = {}
        self.bus: Bus
        self.calls: Calls
        self._on_addressed = addressed
        self._by_kind: Mapping[int, Callable[[Link, Frame], None]] = {
            Kind.REQUEST: self._requested,
            Kind.ASK: self._asked,
            Kind.ADDRESSED: self._addressed,
            Kind.QUEUES: self._addressed,
            Kind.MESSAGE: self._for_bus,
            Kind.CONFIRM: self._for_bus,
            Kind.DEAD_LETTERS: self._for_bus,
            Kind.LEAVING: lambda link, _: leaves(link.token),
        }
        self._by_kind_of_stream: Mapping[int, Callable[[Guest, bytes], None]] = {
            Kind.FRAME: lambda guest, payload: self._take_further(guest, orjson.loads(payload)),
            Kind.GONE: lambda guest, _: self._gone(guest),
            Kind.HALF_CLOSED: lambda guest, payload: outbound.half_closed(guest, int.from_bytes(payload)),
            Kind.PAUSE: lambda guest, _: self._writable(guest, is_writable=False),
            Kind.RESUME: lambda guest, _: self._writable(guest, is_writable=True),
        }
        """What is done with a frame of a stream that was opened before."""

    def __len__(self) -> int:
        return sum(map(len, self._guests.values()))

    def opened(self, link: Link) -> None:
        """Requests come from there."""
        self._guests[link] = {}
        self.bus.joined(link)

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
        guest = self._guests[link].get(frame.stream)
        if take_of_stream is not None and guest is not None:
            take_of_stream(guest, frame.payload)

    def _requested(self, link: Link, frame: Frame) -> None:
        guests, fields = self._guests[link], orjson.loads(frame.payload)
        guest = guests[frame.stream] = _GUESTS[fields["transport"]](link, frame.stream, fields, guests)
        if guest.pushes:
            self._serve(guest, fields.pop("elements"))
        else:
            self._receive(guest, fields.pop("elements"))
        if link.is_clogged:
            link.pause_reading()

    def _asked(self, link: Link, frame: Frame) -> None:
        self.calls.asked(link, frame)

    def _addressed(self, _: Link, frame: Frame) -> None:
        self._on_addressed(frame)

    def _for_bus(self, link: Link, frame: Frame) -> None:
        self.bus.take(link, frame)

    def _writable(self, guest: Guest, *, is_writable: bool) -> None:
        guest.is_writable = is_writable
        session = guest.session
        if is_writable and session is not None and session.mailbox.urgent:
            self._outbound.make_ready(session)

    def _take_further(self, guest: Guest, elements: list[Any]) -> None:
        if guest.waiting is None:
            self._serve(guest, elements)
            return
        guest.waiting.append(elements)
        if len(guest.waiting) > _MOST_WAITING:
            guest.slow_down(_REST_MS / 1000)

    def _serve(self, guest: Guest, elements: list[Any]) -> bool:
        """Serve this; True if a socket's next frame has to wait, for they are answered in their order."""
        if not isinstance(guest, SocketGuest):
            self._receive(guest, elements)
            return False
        guest.serves()
        answering = self._receive(guest, elements)
        if answering is None:
            guest.served(elements)
            return False
        if guest.waiting is None:
            guest.waiting = deque()
        when_answered(answering, partial(self._served, guest, elements))
        return True

    def _served(self, guest: SocketGuest, elements: list[Any], _: object) -> None:
        guest.served(elements)
        asyncio.get_running_loop().call_soon(self._serve_next, guest)

    def _serve_next(self, guest: Guest) -> None:
        waiting = guest.waiting
        while waiting and not guest.is_gone:
            if self._serve(guest, waiting.popleft()):
                return
        guest.waiting = None

    def _gone(self, guest: Guest) -> None:
        guest.leave()
        if guest.pushes:
            self._outbound.socket_closed(guest)
            session, guest.session = guest.session, None
            if session is not None:
                session.forget_peer(guest)
        else:
            self._outbound.vanished(guest)

    def lost(self, link: Link) -> None:
        """All its clients have gone, as far as this node knows."""
        self.bus.left(link)
        self._lost()
        for guest in list(self._guests.pop(link).values()):
            self._gone(guest)
