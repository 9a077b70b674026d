"""What the WebSockets of the fast lane share: what they need of the endpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from crewel.broker.exchange import Peer
from crewel.errors import Fault
from crewel.transports.bodies import too_large
from crewel.transports.frame_reader import FrameReader, Parameters
from crewel.transports.upgrades import Upgrades
from crewel.transports.websocket import CLOSE_TIMEOUT_S

if TYPE_CHECKING:
    from crewel.transports.endpoint import Endpoint


class FastSockets:
    """Those of one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        settings = endpoint.settings
        self.endpoint = endpoint
        self.loop = endpoint.broker.loop
        self.turns = endpoint.broker.runtime.turns
        self.arrivals = endpoint.arrivals
        self.bayeux = settings.bayeux
        self.max_message_bytes = settings.bayeux.max_message_bytes  # at hand, because each frame needs it
        self.hold_bare = endpoint.broker.mailboxes.outbound.hold_bare
        self.frame, self.deflated_frame = endpoint.frames.of, endpoint.frames.deflated
        self._too_large = str(too_large(settings))
        self.shared = endpoint.shared_buffer
        self.buffer = self.shared.whole  # at hand, because each frame needs it
        self.upgrades = Upgrades(settings.websocket)
        self.control_frames = endpoint.control_frames
        self.watch = endpoint.watch

    def reader(self, deflate: Parameters | None) -> FrameReader:
        """A reader of all forms of frames. A message over the limit is refused in the words of the other transports, and
        counted."""
        return FrameReader(self.max_message_bytes, self._refused_large, deflate)

    def _refused_large(self) -> str:
        self.endpoint.broker.metrics.refused_payloads[Fault.TOO_LARGE.name.lower()] += 1
        return self._too_large

    def closes(self, socket: Peer) -> None:
        """This socket is sent nothing more, although its connection may last a while: messages stay in the queue."""
        socket.writer = None
        self.endpoint.broker.mailboxes.outbound.socket_closed(socket)

    def abort_unread(self, transport: asyncio.Transport) -> None:
        """A transport that is being closed waits until the peer has read all: cut off one that does not read."""
        if transport.get_write_buffer_size():
            self.loop.call_later(2 * CLOSE_TIMEOUT_S, transport.abort)
