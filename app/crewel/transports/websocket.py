"""WebSockets (reference, section 4): text frames of messages both ways, pushed at any time.

Frames are read by websockets' sans-I/O core at the connection, and written straight on it. A socket has no task, no queue and
no timer of its own. `http_fast` and `websocket_aiohttp` answer upgrades and give it the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from time import perf_counter
from typing import Final

from websockets.frames import Frame, Opcode

from crewel.bayeux.codec import decode
from crewel.broker.exchange import Peer
from crewel.broker.inbound import when_answered
from crewel.broker.mailboxes.known_connect import KnownConnect
from crewel.errors import Fault, PayloadError
from crewel.fair_turns import FairTurns
from crewel.limits import Bucket
from crewel.transports.control_frames import TOO_MANY
from crewel.transports.forwarded import Client
from crewel.transports.frame_reader import FrameReader, Parameters
from crewel.transports.heads import headers_of
from crewel.transports.shared_buffer import LEAST
from crewel.transports.socket_watch import GOING_AWAY, GOING_DOWN, POLICY_VIOLATION
from crewel.transports.sockets import CLOSE_TIMEOUT_S, Sockets
from crewel.transports.text_frames import whole_deflated, whole_text

_FIRST_FRAMES: Final = 3  # a handshake, subscriptions with a first connect, and the connect that is held
_MOST_IN_FIRST: Final = 8  # messages in one of these
_PIECE: Final = 4096  # bytes that are kept in one piece
_FRAMES: Final = 32  # that are parsed at once: less than a millisecond
_BINARY_REFUSED: Final = 1003  # RFC 6455, 7.4.1
_LONGEST_REASON: Final = 123  # bytes of a close frame (RFC 6455, 5.5)


class Socket(asyncio.BufferedProtocol, Peer):
    """One WebSocket. The broker waits for no reader: what a slow one does not take stays in the session's bounded queue."""

    __slots__ = (
        "_client",
        "_closed",
        "_controls",
        "_deflate",
        "_first_frames",
        "_fragments",
        "_head",
        "_is_busy",
        "_is_flooded",
        "_is_heard",
        "_is_lost",
        "_is_resting",
        "_known",
        "_protocol",
        "_rest_s",
        "_sockets",
        "_transport",
        "_waiting",
        "_whole",
        "frame",
        "heard_at",
        "holder",
        "is_heard_from",
    )

    transport = "websocket"
    pushes = True

    def __init__(
        self,
        sockets: Sockets,
        head: bytes,
        browser: str | None,
        client: Client,
        deflate: Parameters | None,
        transport: asyncio.Transport,
    ) -> None:
        """`head` is that of the upgrade, which has been answered, and `deflate` what was agreed on."""
        Peer.__init__(self, browser)
        self._sockets = sockets
        self._head = head
        self._client = client
        # Its memory is most of what a socket would take, and nearly all frames are read without it.
        self._protocol: FrameReader | None = None
        self._deflate = deflate
        self._whole = whole_text if deflate is None else whole_deflated
        self._transport = transport
        self.writer = transport
        """None as soon as either side closes the socket: the peer may be sent no message then."""
        self.frame = sockets.frame if deflate is None else sockets.deflated_frame
        self._waiting: deque[Frame | bytes] | None = None
        """What has come and is not answered yet, in its order: frames, and bytes that are not parsed yet. A flood of small
        frames would take too long for one turn."""
        self._fragments: list[bytes] | None = None
        self._known: KnownConnect | None = None
        self._is_heard = True
        """Whether what the peer has sent is answered: until this side closes the socket."""
        self._is_lost = self._is_busy = False
        self._first_frames = _FIRST_FRAMES
        """How many of the next frames are those of a new client."""
        self._is_resting, self._rest_s = False, 0.0
        self._controls: Bucket | None = None
        self._is_flooded = False
        """Whether it was closed for frames without a message: nothing more is received."""
        self._closed: asyncio.Future[None] | None = None
        self.holder: str | None = None
        self.is_heard_from = True
        """Whether a message has come since the last look at all sockets."""
        self.heard_at = 0.0
        """Loop time (s) of the last look that found one."""
        sockets.watch.add(self)

    # The connection

    def begin(self, data: bytes) -> None:
        """The connection is this socket's: read what came behind the upgrade."""
        self._transport.set_protocol(self)
        self._read(True)
        buffer = self._sockets.buffer
        for start in range(0, len(data), len(buffer)):
            part = data[start : start + len(buffer)]
            buffer[: len(part)] = part
            self.buffer_updated(len(part))

    def cut_off(self) -> None:
        """Break the connection."""
        self._sockets.closes(self)
        self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone. What came before is still carried out; what is to be sent stays in the session's queue."""
        self._is_lost = True
        self._sockets.watch.discard(self)
        self._sockets.caps.left(self)
        self._sockets.closes(self)
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self.is_writable = True  # there is no reader to wait for
        self._go_on()

    def _part(self) -> None:
        """Take apart what refers to itself, so that a closed socket is gone at once and not when all garbage is looked at."""
        session, self.session, self._known = self.session, None, None
        if session is not None:
            session.forget_peer(self)

    def eof_received(self) -> bool:
        """A socket ends with either direction."""
        self._sockets.closes(self)
        self._sockets.abort_unread(self._transport)
        return False

    def pause_writing(self) -> None:
        """The peer does not read what it is sent: it is not read either, for its replies would pile up here."""
        self.is_writable = False
        if self.writer is not None:
            self._read(False)

    def resume_writing(self) -> None:
        """The peer reads again."""
        self.is_writable = True
        session = self.session
        if self.relay is not None:
            self.relay.caught_up()
        elif session is not None:
            self._sockets.outbound.leave_soon(session)
        self._go_on()

    def slow_down(self, seconds: float) -> None:
        """Answer the next frame that much later; of several wishes about one frame, the longest counts."""
        self._rest_s = max(self._rest_s, seconds)

    def _rest(self) -> None:
        if not self._is_resting:
            self._is_resting = True
            # And then in the turn of its address: the rests of many sockets end together.
            self._sockets.loop.call_later(self._rest_s, self._sockets.turns.later, self.remote, self._rested)
        self._rest_s = 0.0

    def _rested(self) -> None:
        self._is_resting = False
        self._go_on()

    # What comes

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._sockets.shared.room

    def buffer_updated(self, nbytes: int) -> None:
        """Answer the frames in what came, and keep what has to wait. The next socket uses the buffer again."""
        sockets = self._sockets
        data = sockets.buffer[:nbytes]
        turns = sockets.turns
        turns.unseen -= 1
        if self._waiting is None:
            if not self._is_resting:
                if self._first_frames and sockets.arrivals.is_over():
                    self._put_off(data, sockets.arrivals)
                    return
                if turns.unseen <= 0 and turns.is_over():
                    self._put_off(data, turns)
                    return
            # `_is_free`, without a call.
            is_next = self._is_heard and self.is_writable and not (self._is_busy or self._is_resting)
            if is_next and self._protocol is None:
                payload = self._whole(data, sockets.max_message_bytes)
                if payload is not None:
                    self._answer(payload)
                    return
            if len(data) <= _PIECE:
                frames, rest = self._parse(data)
                if is_next and len(frames) == 1 and not rest:
                    self._take(frames[0])
                    return
                if not (frames or rest):
                    return
                self._waiting = deque[Frame | bytes](frames)
                if rest:
                    self._waiting.append(rest)
                self._go_on()
                return
        self._keep(data)
        self._go_on()

    def _put_off(self, data: bytes, turns: FairTurns) -> None:
        """Keep this for one of the later turns. Of a flood, no more is read until then."""
        turns.later(self.remote, self._rested)
        self._is_resting = True
        self._sockets.shared.receive_less()
        self._keep(data)
        if len(data) >= LEAST:
            self._read(False)

    def _keep(self, data: bytes) -> None:
        if self._waiting is None:
            self._waiting = deque()
        if len(data) <= _PIECE:
            self._waiting.append(data)
        else:
            self._waiting.extend(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))

    def _parse(self, data: bytes) -> tuple[list[Frame], bytes]:
        """The first frames in the data, and the bytes behind them. Beyond the limit of frames without a message, the socket
        is closed."""
        protocol = self._reader()
        if protocol.eof_sent:
            return [], b""  # it is being closed: nothing is looked at any more
        heads = protocol.heads
        end = heads.cut(data, _FRAMES)
        controls, heads.controls = heads.controls, 0
        if controls and self._has_too_many(controls):
            return [], b""
        rest = data[end:]
        frames = protocol.read(data[:end] if rest else data)
        self._flush(protocol, has_frames=len(frames) > (protocol.close_rcvd is not None))
        if protocol.is_done and not rest:
            self._protocol = None
        self._sockets.turns.unseen -= len(frames)  # each takes as long as a short request
        return frames, rest

    def _has_too_many(self, controls: int) -> bool:
        """Count frames without a message. If they are too many, the socket is closed, and what else comes is not read."""
        limit = self._sockets.control_frames
        if self._controls is None:
            self._controls = limit.bucket()
        if not limit.are_too_many(self._controls, controls):
            return False
        self._is_heard, self._is_flooded = False, True
        protocol = self._reader()
        protocol.fail(POLICY_VIOLATION, TOO_MANY)
        self._flush(protocol)
        self._read(False)  # to receive the rest of a flood costs as well
        return True

    def _reader(self) -> FrameReader:
        """What reads frames of all forms."""
        if self._protocol is None:
            self._protocol = self._sockets.reader(self._deflate)
        return self._protocol

    @property
    def has_session(self) -> bool:
        """Whether it belongs to a session, here or at another node."""
        return self.session is not None or self.relay is not None

    @property
    def waits_for_server(self) -> bool:
        """Whether the client has sent something, takes the answer, and has none yet."""
        return self._is_busy or (self._waiting is not None and self.is_writable)

    @property
    def _is_free(self) -> bool:
        """Whether the next frame can be answered: the one before it has been."""
        return not (self._is_busy or self._is_resting) and self.is_writable

    def _go_on(self) -> None:
        """Answer the queued requests, if there is nothing in the way, and read more when all is answered."""
        waiting = self._waiting
        until = self._sockets.turns.portion() if waiting else 0.0
        while waiting and (self._is_free or not (self._is_heard or self._is_resting)):
            item = waiting.popleft()
            if isinstance(item, bytes):
                is_next = self._is_heard and self._protocol is None
                payload = self._whole(item, self._sockets.max_message_bytes) if is_next else None
                if payload is None:
                    frames, rest = self._parse(item)
                    if rest:
                        waiting.appendleft(rest)
                    waiting.extendleft(reversed(frames))
                else:
                    self._answer(payload)
            elif self._is_heard:
                self._take(item)
            if waiting and perf_counter() >= until and not self._is_resting:
                self._is_resting = True
                self._sockets.turns.later(self.remote, self._rested)
        if waiting:
            self._read(False)
            return
        self._waiting = None
        if self._is_lost:
            if self._is_free:
                self._part()
        elif self.is_writable and not self._is_flooded:
            self._read(True)

    def _read(self, is_on: bool) -> None:
        """Read what the peer sends, or leave it to wait in its own buffers."""
        if self._transport.is_closing():
            return
        if is_on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _take(self, frame: Frame) -> None:
        """Answer the text that this frame ends, if it is the last of one."""
        opcode = frame.opcode
        if opcode is Opcode.BINARY:
            self.shut(_BINARY_REFUSED, "binary frames are not part of the protocol")
        elif opcode is Opcode.TEXT and frame.fin:
            self._answer(bytes(frame.data))
        elif opcode is Opcode.TEXT:
            self._fragments = [bytes(frame.data)]
        elif opcode is Opcode.CONT and self._fragments is not None:
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                fragments, self._fragments = self._fragments, None
                self._answer(b"".join(fragments))

    def _answer(self, payload: bytes) -> None:
        known = self._known if self.relay is None else None
        if (
            known is not None
            and (bare_id := known.id_in(payload))
            and self._sockets.hold_bare(known.session, self, bare_id)
        ):
            self.is_heard_from = True
            return
        bayeux = self._sockets.bayeux
        try:
            if not payload:
                raise PayloadError(Fault.MALFORMED)
            elements = decode(payload, bayeux.max_batch_messages, bayeux.max_depth)
        except PayloadError as error:
            self._refuse(error)
            return
        self.is_heard_from = True
        if self._first_frames:
            if len(elements) > _MOST_IN_FIRST:
                self._join_others(payload)
                return
            self._first_frames -= 1
        answering = self._sockets.receiver.receive(self, elements)
        if answering is not None:
            self._is_busy = True
            when_answered(answering, self._answered)
            return
        if self._rest_s:
            self._rest()
        session, known = self.session, self._known
        if session is not None and session.plain and not (self._first_frames or (known and known.session is session)):
            self._known = KnownConnect.of(session, payload, elements)

    def _join_others(self, payload: bytes) -> None:
        """Answer this in the turns of those that are there. Those of new clients begin another one whatever has begun for the
        address: of a thousand, each would have all messages of a batch in memory."""
        self._first_frames = 0
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.appendleft(Frame(Opcode.TEXT, payload))
        self._is_resting = True
        self._sockets.turns.later(self.remote, self._rested)

    def _refuse(self, error: PayloadError) -> None:
        """Close the socket, or answer the messages if the error says which of them are to blame."""
        fault = error.fault
        self._sockets.metrics.refused_payloads[fault.name.lower()] += 1
        if not error.is_answerable:
            self.shut(fault.close_code, str(error))
        elif not self._has_too_many(1):
            self.is_heard_from = True  # it keeps the socket alive
            answering = self._sockets.receive_flawed(self, error)
            if answering is not None:
                self._is_busy = True
                when_answered(answering, self._answered)
            elif self._rest_s:
                self._rest()

    def _answered(self, _: object) -> None:
        """The frame has been answered. The next one has to wait for the end of what the store has answered."""
        self._is_busy = False
        if self._rest_s:
            self._rest()
        if (self._waiting is not None or self._is_lost) and not self._is_resting:
            self._is_resting = True
            self._sockets.turns.later(self.remote, self._rested)  # the store answers many sockets together

    # What goes

    def send(self, parts: list[bytes]) -> None:
        """Send one frame with these messages."""
        if self.writer is not None:
            self.writer.write(self.frame(parts))

    def supersede(self) -> None:
        """A connect that a newer one replaced gets no reply on a socket."""

    def _flush(self, protocol: FrameReader, *, has_frames: bool = False) -> None:
        """Send what the protocol has to say, and end the connection where it demands it. `has_frames`: frames that came before
        are carried out next."""
        parts = protocol.data_to_send()
        if not parts:
            return
        if not self._transport.is_closing():
            self._transport.write(b"".join(parts))  # many pongs, at once
        if not parts[-1]:
            self._end(protocol, has_frames=has_frames)

    def _end(self, protocol: FrameReader, *, has_frames: bool) -> None:
        if has_frames and self.relay is not None:
            # They go to another node, which must not be notified of the end before.
            self.writer = None
            self._sockets.loop.call_soon(self._sockets.closes, self)
        else:
            self._sockets.closes(self)
        if protocol.close_rcvd is not None or self._transport.is_closing():
            self._transport.close()
            self._sockets.abort_unread(self._transport)
            return
        # Closed at once, with something unread, the reason might never reach the peer.
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._read(True)
        self._sockets.loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    def shut(self, code: int, reason: str) -> None:
        """Close the socket; the reason is for people. A peer that does not answer is cut off."""
        self._is_heard = False
        if self.writer is None:
            return
        self._sockets.closes(self)
        said = reason.encode(errors="replace")[:_LONGEST_REASON].decode(errors="ignore")
        protocol = self._reader()
        protocol.send_close(code, said)
        self._flush(protocol)
        self._read(True)
        self._sockets.loop.call_later(2 * CLOSE_TIMEOUT_S, self._transport.abort)

    def end_well(self) -> None:
        """Close the socket for the end of the server."""
        self.shut(GOING_AWAY, GOING_DOWN)

    async def close(self, code: int, reason: str) -> None:
        """Close the socket, and wait until it is gone."""
        if self not in self._sockets.watch.sockets:
            return
        if self._closed is None:
            self._closed = self._sockets.loop.create_future()
        self.shut(code, reason)
        await self._closed

    # What the broker asks for

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended, or is being closed: what is sent arrives nowhere."""
        return self.writer is None or self._transport.is_closing()

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the upgrade."""
        return headers_of(self._head)

    @property
    def remote(self) -> str | None:
        """The address of the client."""
        return self._client.address

    @property
    def is_secure(self) -> bool:
        """Whether the client came by TLS."""
        return self._client.is_secure
