"""The owner of a connection: it reads and answers Bayeux POSTs and upgrades, and has aiohttp as a child for everything else.

A plain POST to the Bayeux path is parsed by httptools and answered straight on the transport; a connect that is held costs
no task and no future. An upgrade makes the connection a WebSocket (`websocket`). Anything else (pages, chunked bodies, refused
origins, what is no HTTP) goes to the child (`http_connection`): a request without a body alone, others with all that comes
behind them. With `http.fast_lane=false` the child gets everything, so nothing is known here that is not known there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final

from crewel.bayeux.codec import decode, join
from crewel.broker.exchange import Peer
from crewel.errors import Fault, PayloadError
from crewel.transports.bodies import elements_of
from crewel.transports.connection_caps import Counted, address_of
from crewel.transports.heads import Head, status_line
from crewel.transports.websocket import Socket

if TYPE_CHECKING:
    from crewel.transports.fast_lane import FastLane
    from crewel.transports.http_connection import Connection

_END_OF_HEAD: Final = b"\r\n\r\n"
_OK: Final = b"HTTP/1.1 200 OK\r\n"
_RESPONSE: Final = _OK + b"%b%bContent-Length: %d\r\n\r\n[%b]"
_WITH_MORE: Final = (b"content-length", b"transfer-encoding", b"\nupgrade:")
"""In heads behind which something may come that is no request."""


class FastConnection(asyncio.Protocol, Peer):
    """One connection, and the peer of the request that it is answering: there is never more than one."""

    __slots__ = (
        "_child",
        "_chunks",
        "_head",
        "_is_busy",
        "_is_clogged",
        "_is_closing",
        "_lane",
        "_needed",
        "_received",
        "_rests_until",
        "_transport",
        "deadline",
        "holder",
        "is_half_closed",
    )

    transport = "long-polling"

    def __init__(self, lane: FastLane) -> None:
        Peer.__init__(self, None)
        self._lane = lane
        self._transport: asyncio.Transport | None = None
        self._child: Connection | None = None  # busy while there is one
        self._head: Head | None = None
        self._chunks: list[bytes] | None = None  # what is kept; most connections never keep anything
        self._received = self._needed = 0  # bytes; needed: without which there is no use in looking at the chunks again
        self._is_busy = self._is_clogged = self._is_closing = self.is_half_closed = False
        self._rests_until = 0.0  # loop time (s) before which nothing is served; 0 if nothing keeps it
        self.holder: str | None = None
        self.deadline = inf
        """Loop time (s) at which the peer is too late: with a request, its body, or its reading."""

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        wire: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's do not inherit from asyncio's
        if not self._lane.caps.admit(self, wire):
            return
        self._transport = wire
        self._lane.connections.add(self)
        self.deadline = self._lane.loop.time() + self._lane.header_timeout

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of the connect that is held here, if there is one."""
        self._lane.left(self)
        self._lane.caps.left(self)
        self._transport = None
        self._lane.broker.mailboxes.connects.vanished(self)
        if self._child is not None:
            self._lane.lent.discard(self)
            self._child.connection_lost(exc)
            self._child = None

    def eof_received(self) -> bool:
        """The peer sends no more: it still gets the answers to what it has sent, and that to a held connect now. True keeps
        the connection open until then."""
        self.is_half_closed, transport = True, self._transport
        if self._child is not None:
            return self._child.serves_one or self._child.eof_received()
        if self._is_busy:
            self._lane.broker.mailboxes.connects.half_closed(self)
        elif self._is_free and transport is not None:
            self._go_on()  # what is kept may be a whole request: the one before it was answered in this very turn
            return not transport.is_closing()
        return self._is_busy or bool(self._chunks)

    def pause_writing(self) -> None:
        """The peer does not read its answers: take no more requests."""
        self._is_clogged = True
        if self._child is not None:
            self._child.pause_writing()
            self._watch_reader()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._is_clogged = False
        if self._lane.readers.pop(self, None) is not None:
            self._watch_reader()
        if self._child is not None:
            self._child.resume_writing()
        self._go_on()

    def slow_down(self, seconds: float) -> None:
        """Take the next request that much later (the longest wish counts), unless it is a proxy's and carries others too."""
        if self.remote == address_of(self._transport):
            is_resting = self._rests_until > 0
            self._rests_until = max(self._rests_until, self._lane.loop.time() + seconds)
            if not is_resting:
                self._rested()

    def _rested(self) -> None:
        if self._lane.loop.time() < self._rests_until:
            self._lane.loop.call_at(self._rests_until, self._rested)
        elif not self._lane.turns.put_off(self.remote, self._rested):
            self._rests_until = 0.0
            self._go_on()

    def _wait_to_arrive(self, data: bytes) -> None:
        self._lane.sockets.arrivals.later(self.remote, self._arrived)
        self._keep(data)
        self._rests_until, self.deadline = self._lane.loop.time(), inf

    def _arrived(self) -> None:
        """The turn among the new clients has come. It waits for no other one: there it would wait for this one again when it
        comes back, and so on while both are full."""
        if self._lane.loop.time() < self._rests_until:
            self._lane.loop.call_at(self._rests_until, self._rested)
        else:
            self._rests_until = 0.0
            self._go_on()

    def close_when_idle(self, *, is_due: bool = True) -> None:
        """Close after the pending answer, and now if there is none; if that is not due, after the next one."""
        self._is_closing = True
        is_idle = not (self._is_busy or (self._chunks and self._rests_until))
        if is_due and is_idle and self._transport is not None:
            self._transport.close()

    def too_late(self) -> None:
        """The deadline has passed: close, with a word to a peer that is in the middle of a body."""
        self.deadline = inf
        if (transport := self._transport) is None:
            return
        if self in self._lane.readers:
            transport.close()  # the watch on them ends it if it does not read
        elif transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()  # it does not read: there is no use in waiting for what it was sent
        elif self._head is not None and self._needed:
            self._lane.broker.metrics.refused_payloads[Fault.TOO_SLOW.name.lower()] += 1
            self._is_closing = True
            self._answer(status_line(Fault.TOO_SLOW.http_status), Fault.TOO_SLOW.text.encode())
        else:
            transport.close()

    def _watch_reader(self) -> None:
        """Watch whether the peer takes what the child wrote, however much that is."""
        if self._transport is not None and (unread := self._transport.get_write_buffer_size()):
            self._lane.readers.setdefault(self, (unread, self._lane.idle_deadline))

    def check_reader(self, unread: int) -> None:
        """The peer had so many bytes left to read, and time to take some: break the connection if it has taken none."""
        if self._child is None and self._lane.loop.time() < self.deadline < inf:
            return  # it had other answers since then, and those have a deadline
        if self._transport is not None and self._transport.get_write_buffer_size() >= unread:
            self._transport.abort()
        else:
            self._watch_reader()

    # Requests

    def data_received(self, data: bytes) -> None:
        """Answer the requests in what came, and keep what is not a whole one yet."""
        if not (self._chunks or self._is_busy or self._is_clogged or self._rests_until):
            turns = self._lane.turns
            turns.unseen -= 1
            if turns.unseen <= 0 and turns.is_over():
                self._put_off(data)
                return
            taken = self._take_request(data)
            if taken and taken < len(data):
                self._serve(data[taken:])
            return
        child = self._child
        if child is not None and not child.serves_one:
            self._feed(child, data)
            return
        self._add(data)
        if self._is_busy or self._is_clogged or self._rests_until:
            # Pipelined behind a request that is not answered yet; how much of it is kept is bounded.
            if self._received > self._lane.settings.bayeux.max_message_bytes and self._transport is not None:
                self._transport.pause_reading()
        elif self._received >= self._needed:
            self._go_on()

    def _add(self, data: bytes) -> None:
        if self._chunks is None:
            self._chunks = []
        self._chunks.append(data)
        self._received += len(data)

    def _put_off(self, data: bytes) -> None:
        self._keep(data)
        self._rests_until = self._lane.loop.time()
        self._lane.turns.later(self.remote, self._rested)

    def _go_on(self) -> None:
        """Serve what was kept, if there is nothing in the way."""
        if self._chunks and self._is_free and self._transport is not None:
            data = b"".join(self._chunks)
            self._keep(b"")
            self._serve(data)
            self._read_on()
        if self.is_half_closed and self._is_free and self._transport is not None:
            self._transport.close()  # all is answered; half a request will never be whole

    def _read_on(self) -> None:
        """Read more, unless much is left that cannot be served now: a flood would be read faster than it is served."""
        if self._transport is None or self.is_half_closed or self._child is not None:
            return  # a child has its own say
        if self._is_free or self._received <= self._lane.settings.bayeux.max_message_bytes:
            self._transport.resume_reading()

    def _serve(self, data: bytes) -> None:
        until = self._lane.turns.portion()
        while data and self._is_free:
            taken = self._take_request(data)
            if not taken:
                return
            data = data[taken:]
            if data and perf_counter() >= until and not self._rests_until:
                self._rests_until = self._lane.loop.time()  # what comes meanwhile is bounded, as behind an open request
                self._lane.turns.later(self.remote, self._rested)
        self._keep(data)

    @property
    def _is_free(self) -> bool:
        """Whether the next request can be served: the one before it has been answered, and was not the last."""
        if self._is_busy or self._is_clogged or self._rests_until:
            return False
        return not (self._transport is None or self._transport.is_closing())

    def _keep(self, data: bytes) -> None:
        self._chunks = [data] if data else None
        self._received = len(data)

    def _take_request(self, data: bytes) -> int:
        """Answer the request at the start of the data and return its length; 0 if it is not complete, and kept, or if
        aiohttp was given it."""
        # A client sends the same head with every request: comparing bytes is cheaper than parsing them.
        head = self._head
        if head is None or not data.startswith(head.raw):
            head = self._read_head(data)
            if head is None:
                return 0
        start = len(head.raw)
        end = start + head.length
        if len(data) < end:
            self._wait_for_body(data, end)
            return 0
        lane = self._lane
        try:
            if head.is_json:
                elements = decode(data[start:end], lane.max_messages, lane.max_depth)
            else:
                elements = elements_of(data[start:end], head.media_type, head.charset, lane.settings)
        # aiohttp finds the same fault again: a refusal is answered in one place.
        except PayloadError:
            self._delegate(data)
            return 0
        self._needed, self._is_busy, self.deadline = 0, True, inf
        self.browser, self.mints_cookie = head.browser, False
        lane.receiver.receive(self, elements)
        if self.is_half_closed and self._is_busy:
            lane.broker.mailboxes.connects.half_closed(self)
        return end

    def _read_head(self, data: bytes) -> Head | None:
        """The head at the start of the data; None if it is not complete yet, or if aiohttp was given it."""
        lane = self._lane
        self._head = None
        is_bayeux = lane.is_bayeux(data)
        end = data.find(_END_OF_HEAD) if is_bayeux else -1
        if is_bayeux is None or (is_bayeux and end < 0 and len(data) <= lane.settings.http.max_header_bytes):
            self._keep(data)
            self._needed = len(data) + 1
            self.deadline = min(self.deadline, lane.loop.time() + lane.header_timeout)
            return None
        head = None
        if is_bayeux and 0 <= end <= lane.settings.http.max_header_bytes:
            raw = data[: end + len(_END_OF_HEAD)]
            if raw.startswith(b"G"):
                self._upgrade(raw, data)
                return None
            # Asking costs a system call.
            address = address_of(self._transport) if lane.endpoint.proxies.are_set else None
            head = lane.heads.read(raw, address, lane.scheme)
        if head is None or head.length > lane.settings.bayeux.max_message_bytes:
            self._delegate(data)
            return None
        self._head = head
        return head

    def _upgrade(self, raw: bytes, data: bytes) -> None:
        """Make the connection a socket, if this is the head of an upgrade that aiohttp need not look at."""
        lane, transport = self._lane, self._transport
        assert transport is not None
        if lane.sockets.arrivals.is_over():
            self._wait_to_arrive(data)
            return
        address = address_of(transport)
        upgrade = None if lane.broker.has_lost_store else lane.heads.upgrade(raw, address, lane.scheme)
        negotiated = None if upgrade is None else lane.sockets.upgrades.negotiated(raw, upgrade)
        if upgrade is None or negotiated is None:
            self._delegate(data)
            return
        transport.write(negotiated.answer(upgrade.key, lane.date))
        socket = Socket(lane.sockets, raw, upgrade.browser, upgrade.client, negotiated.deflate, transport)
        self.becomes(socket)
        socket.begin(data[len(raw) :])
        if self.is_half_closed:
            transport.close()  # a socket ends with either direction

    def _wait_for_body(self, data: bytes, end: int) -> None:
        self._keep(data)
        if self._needed != end:
            self._needed = end
            self.deadline = self._lane.loop.time() + self._lane.body_timeout

    def becomes(self, socket: Counted) -> None:
        """The connection is this socket's from here on."""
        self._lane.caps.move(self, socket)
        self._lane.left(self)
        self._lane.lent.discard(self)
        self._transport = self._child = None

    # The child

    def _delegate(self, data: bytes) -> None:
        """Let aiohttp serve what begins with these bytes."""
        lane, transport = self._lane, self._transport
        assert transport is not None
        if not lane.answers:
            if lane.sockets.arrivals.is_over():
                self._wait_to_arrive(data)
                return
            lane.sockets.arrivals.lend()
        lane.lend(self)
        self._keep(b"")
        self._needed, self._head, self._is_busy = 0, None, True
        self.deadline = lane.loop.time() + lane.header_timeout
        if not self.is_half_closed:
            transport.resume_reading()
        self._child = child = lane.make_connection()
        serves_one = lane.answers and _is_one_request_without_body(data)
        child.serve(self, transport, data, serves_one=serves_one)
        if self.is_half_closed and not child.eof_received():
            transport.close()  # what came is no whole request

    def _feed(self, child: Connection, data: bytes) -> None:
        if not child.is_busy:
            self.deadline = min(self.deadline, self._lane.loop.time() + self._lane.header_timeout)
        child.data_received(data)

    def has_begun(self) -> None:
        """The headers of a request of the child are complete."""
        self.deadline = inf

    def has_answered(self) -> None:
        """The child has written a response."""
        self.deadline = self._lane.idle_deadline
        self._watch_reader()

    def child_ended(self) -> None:
        """Continue behind the one request of the child; nothing comes behind more than one, or behind the last one."""
        child, transport = self._child, self._transport
        if child is None or transport is None:
            return
        self.deadline = min(self.deadline, self._lane.idle_deadline)
        if self._is_closing or not child.continues:
            transport.close()
            return
        self._child, self._is_busy = None, False
        child.connection_lost(None)
        self._lane.take_back(self)
        self._go_on()

    def recognise(self, browser: str) -> None:
        """Keep the session's text of the cookie in place of the one of this head: there are as many as connections."""
        self.browser = browser
        if self._head is not None:
            self._head.recognise(browser)

    # Answers

    def send(self, parts: list[bytes]) -> None:
        """Answer the request with these messages."""
        transport, head = self._transport, self._head
        if transport is None or head is None or self.mints_cookie or self._is_closing or not head.keep_alive:
            self._answer(_OK, join(parts))
            return
        # What nearly every response is, in as few steps as it can be.
        lane = self._lane
        body = b",".join(parts)
        self._is_busy = False
        transport.write(_RESPONSE % (head.lines, lane.date, len(body) + 2, body))
        self.deadline = lane.idle_deadline
        if self._chunks or self.is_half_closed:
            lane.loop.call_soon(self._go_on)

    def supersede(self) -> None:
        """End the held connect as the reference has it: a status that browsers do not repeat."""
        self._answer(status_line(self._lane.settings.bayeux.duplicate_connect_status), b"replaced by a newer connect")

    def _answer(self, status: bytes, body: bytes) -> None:
        transport, head, lane = self._transport, self._head, self._lane
        self._is_busy = False
        if transport is None or head is None:
            return  # the peer has gone
        lines = head.lines
        if self.mints_cookie and self.browser is not None:
            cookie = lane.endpoint.cookie.header(self.browser, is_secure=head.client.is_secure)
            lines += f"Set-Cookie: {cookie}\r\n".encode()
        is_last = self._is_closing or not head.keep_alive
        if is_last:
            lines += b"Connection: close\r\n"
        transport.write(b"%b%b%bContent-Length: %d\r\n\r\n%b" % (status, lines, lane.date, len(body), body))
        self.deadline = lane.idle_deadline  # also for a peer that does not read its last answer
        if is_last:
            transport.close()
        elif self._chunks or self.is_half_closed:
            lane.loop.call_soon(self._go_on)

    def cut_off(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._transport is None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request."""
        return self._head.headers if self._head is not None else {}

    @property
    def remote(self) -> str | None:
        """The address of the client."""
        return (self._head.client.address if self._head is not None else None) or address_of(self._transport)

    @property
    def is_secure(self) -> bool:
        """Whether the client came by TLS."""
        return self._head is not None and self._head.client.is_secure


def _is_one_request_without_body(data: bytes) -> bool:
    """Whether this is a whole request and nothing else. Only after such a one is it certain where the next begins."""
    if not data.startswith((b"GET ", b"HEAD ", b"OPTIONS ")) or not data.endswith(_END_OF_HEAD):
        return False
    lowered = data.lower()
    return data.count(_END_OF_HEAD) == 1 and not any(name in lowered for name in _WITH_MORE)
