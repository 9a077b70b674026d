"""Requests that come from other nodes (decision 0261): the owner of a session has a `RemotePeer` for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final

import orjson

from crewel.bayeux.numbers import parse
from crewel.broker.inbound import when_answered
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.nodes.bus import Bus
from crewel.nodes.calls import Calls
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import Link
from crewel.nodes.remote_destinations import RemoteDestinations
from crewel.nodes.remote_peer import KINDS, RemotePeer, RemoteSocket
from crewel.nodes.remote_presence import RemotePresence
from crewel.nodes.request_router import Router

_MOST_WAITING: Final = 32
"""Frames of one WebSocket that wait for the one before them; beyond that its client is slowed down."""
_REST_MS: Final = 200
_DATA: Final = b'"data"'
"""The field of messages that can have a number of a user."""


class RemotePeers:
    """The requests that other nodes forward to this one."""

    def __init__(
        self,
        runtime: Runtime,
        mailboxes: Mailboxes,
        router: Router,
        bus: Bus,
        calls: Calls,
        addressed: RemoteDestinations,
        presence: RemotePresence,
    ) -> None:
        self._runtime = runtime
        self._turns = runtime.turns
        self._outbound, self._connects, self._times = mailboxes.outbound, mailboxes.connects, mailboxes.times
        self._receive = router.receive_forwarded
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
            Kind.LEAVING: lambda link, _: router.on_leaving(link.token),
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
        peer = peers[frame.stream] = KINDS[fields["transport"]](link, frame.stream, fields, peers)
        elements = fields.pop("elements")
        turns = self._turns
        turns.unseen -= 1
        if turns.unseen <= 0 and turns.is_over():
            self._put_off(peer, elements)
        elif peer.pushes:
            self._serve(peer, elements)
        else:
            self._receive(peer, elements)
        if link.is_clogged:
            link.pause_reading()

    def _writable(self, peer: RemotePeer, *, is_writable: bool) -> None:
        peer.is_writable = is_writable
        session = peer.session
        if is_writable and session is not None:
            self._outbound.leave_soon(session)

    def _take_further(self, peer: RemotePeer, elements: list[Any]) -> None:
        turns = self._turns
        turns.unseen -= 1
        if peer.waiting is not None:
            peer.waiting.append(elements)
            if len(peer.waiting) > _MOST_WAITING:
                peer.slow_down(_REST_MS / 1000)
        elif turns.unseen <= 0 and turns.is_over():
            self._put_off(peer, elements)
        else:
            self._serve(peer, elements)

    def _put_off(self, peer: RemotePeer, elements: list[Any]) -> None:
        """Serve this in one of the later turns."""
        peer.waiting = deque((elements,))
        self._turns.later(peer.remote, partial(self._serve_next, peer))

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
        until = self._turns.portion() if peer.waiting else 0.0
        while peer.waiting:
            if self._serve(peer, peer.waiting.popleft()):
                return
            if peer.waiting and perf_counter() >= until:
                self._turns.later(peer.remote, partial(self._serve_next, peer))
                return
        peer.waiting = None
        if peer.is_gone:
            self._part(peer)

    def _half_closed(self, peer: RemotePeer, pause_ms: bytes) -> None:
        longest_pause_ms = int.from_bytes(pause_ms)
        if not longest_pause_ms:
            peer.is_half_closed = True  # its connect may still wait for the store
        self._connects.half_closed(peer, longest_pause_ms)

    def _gone(self, peer: RemotePeer) -> None:
        """The client has gone. What came on a socket before is still carried out."""
        peer.leave()
        if peer.pushes:
            self._connects.socket_closed(peer)
            self._part(peer)
        else:
            peer.waiting = None
            self._connects.vanished(peer)

    def _part(self, peer: RemotePeer) -> None:
        session, peer.session = peer.session, None
        if session is not None:
            session.forget_peer(peer)

    def lost(self, link: Link) -> None:
        """All its clients have gone, as far as this node knows. The node does not reach this one any more, and clients of
        sessions that are here may wait at it: they get as much more time as after a restart."""
        self._bus.left(link)
        grace_s = self._runtime.settings.delivery.restart_grace_ms / 1000
        self._times.excuse(self._runtime.loop.time() + grace_s)
        for peer in list(self._peers.pop(link).values()):
            self._gone(peer)
