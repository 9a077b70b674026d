"""What WebSockets share: what they need of the endpoint."""

from __future__ import annotations

from asyncio import Transport
from typing import TYPE_CHECKING, Final

from crewel.broker.exchange import Peer
from crewel.errors import Fault
from crewel.transports.bodies import too_large
from crewel.transports.control_frames import ControlFrames
from crewel.transports.frame_reader import FrameReader, Parameters
from crewel.transports.shared_buffer import SharedBuffer
from crewel.transports.socket_watch import SocketWatch
from crewel.transports.text_frames import Frames
from crewel.transports.upgrades import Upgrades

if TYPE_CHECKING:
    from crewel.transports.endpoint import Endpoint

CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds that a peer has to answer our close."""


class Sockets:
    """Those of one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        broker, settings = endpoint.broker, endpoint.settings
        self.endpoint = endpoint
        self.loop = broker.loop
        self.turns = broker.runtime.turns
        self.arrivals = endpoint.arrivals
        self.bayeux = settings.bayeux
        self.max_message_bytes = settings.bayeux.max_message_bytes  # at hand, because each frame needs it
        self.hold_known = broker.mailboxes.outbound.hold_known
        frames = Frames()
        self.frame, self.deflated_frame = frames.of, frames.deflated
        self._too_large = str(too_large(settings))
        self.shared = SharedBuffer(self.turns, self.arrivals, self.loop)
        self.buffer = self.shared.whole  # at hand, because each frame needs it
        self.upgrades = Upgrades(settings.websocket)
        self.control_frames = ControlFrames(settings.limits, broker.metrics, self.loop)
        self.watch = SocketWatch(settings.websocket, broker.metrics, self.loop)

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

    def abort_unread(self, transport: Transport) -> None:
        """A transport that is being closed waits until the peer has read all: cut off one that does not read."""
        if transport.get_write_buffer_size():
            self.loop.call_later(2 * CLOSE_TIMEOUT_S, transport.abort)
