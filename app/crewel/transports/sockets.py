"""What the WebSockets of a server share."""

from __future__ import annotations

from asyncio import Transport
from typing import Final

from crewel.bayeux.codec import encode
from crewel.broker.exchange import Peer
from crewel.broker.inbound import Answering, Receiver
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.refusals import refused_alone
from crewel.broker.runtime import Runtime
from crewel.errors import Fault, PayloadError
from crewel.fair_turns import FairTurns
from crewel.transports.bodies import too_large
from crewel.transports.connection_caps import ConnectionCaps
from crewel.transports.control_frames import ControlFrames
from crewel.transports.frame_reader import FrameReader, Parameters
from crewel.transports.shared_buffer import SharedBuffer
from crewel.transports.socket_watch import SocketWatch
from crewel.transports.text_frames import Frames
from crewel.transports.upgrades import Upgrades

CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds that a peer has to answer our close."""


class Sockets:
    """Those of one server."""

    def __init__(
        self, runtime: Runtime, outbound: Outbound, receiver: Receiver, arrivals: FairTurns, caps: ConnectionCaps
    ) -> None:
        settings = runtime.settings
        self.loop = runtime.loop
        self.metrics = runtime.metrics
        self.turns = runtime.turns
        self.arrivals = arrivals
        self.caps = caps
        self.receiver = receiver
        self.outbound = outbound
        self.bayeux = settings.bayeux
        self.max_message_bytes = settings.bayeux.max_message_bytes  # at hand, because each frame needs it
        self.connects = outbound.connects
        self.hold_bare = self.connects.hold_bare
        frames = Frames()
        self.frame, self.deflated_frame = frames.of, frames.deflated
        self._too_large = str(too_large(settings))
        self.shared = SharedBuffer(self.turns, arrivals, self.loop)
        self.buffer = self.shared.whole  # at hand, because each frame needs it
        self.upgrades = Upgrades(settings.websocket)
        self.control_frames = ControlFrames(settings.limits, self.metrics, self.loop)
        self.watch = SocketWatch(settings.websocket, self.metrics, self.loop)

    def reader(self, deflate: Parameters | None) -> FrameReader:
        """A reader of all forms of frames. A message over the limit is refused in the words of the other transports, and
        counted."""
        return FrameReader(self.max_message_bytes, self._refused_large, deflate)

    def _refused_large(self) -> str:
        self.metrics.refused_payloads[Fault.TOO_LARGE.name.lower()] += 1
        return self._too_large

    def receive_flawed(self, peer: Peer, error: PayloadError) -> Answering | None:
        """Refuse the messages of a frame that are to blame for its refusal, each with a reply, and process the others."""
        answering = self.receiver.receive(peer, list(error.others)) if error.others else None
        if error.flaws:
            peer.send([encode(refused_alone(flaw)) for flaw in error.flaws])
        return answering

    def closes(self, socket: Peer) -> None:
        """This socket is sent nothing more, although its connection may last a while: messages stay in the queue."""
        socket.writer = None
        self.connects.socket_closed(socket)

    def abort_unread(self, transport: Transport) -> None:
        """A transport that is being closed waits until the peer has read all: cut off one that does not read."""
        if transport.get_write_buffer_size():
            self.loop.call_later(2 * CLOSE_TIMEOUT_S, transport.abort)
