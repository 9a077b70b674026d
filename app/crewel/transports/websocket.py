"""WebSockets where aiohttp has the connection (reference, section 4): text frames of messages both ways, pushed at any time.

`attach` serves with this, and `serve` with `http.fast_lane=false` and for upgrades that `websocket_fast` leaves to it.
`Frames` makes the frames of the fast lane.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import deque
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from crewel.bayeux.codec import decode, join
from crewel.errors import Fault, PayloadError
from crewel.fair_turns import PORTION_S
from crewel.limits import Bucket
from crewel.transports.bodies import too_large
from crewel.transports.control_frames import TOO_MANY
from crewel.transports.frame_reader import WINDOW_BITS
from crewel.transports.http_aiohttp import ParsedPeer
from crewel.transports.http_connection import Connection
from crewel.transports.paced_reader import PacedReader, Parser
from crewel.transports.socket_watch import POLICY_VIOLATION
from crewel.transports.text_frames import text_frame, text_head

if TYPE_CHECKING:
    from crewel.broker.exchange import Take
    from crewel.transports.endpoint import Endpoint
    from crewel.transports.forwarded import Client

log = logging.getLogger(__name__)

_HEADERS = (
    "Connection",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Protocol",
)
_MAX_HEADER = 1024  # characters: aiohttp reads numbers in them
CLOSE_TIMEOUT_S = 2.0  # seconds that a peer has to answer our close
_WORTH_DEFLATING = 256  # bytes
_MEMORY_LEVEL = 6
_DEFLATED_AT_ONCE = 16_384  # bytes: what is longer, aiohttp compresses in a thread
_ENDS = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED})
_COMPRESSED = 0x40  # the bit of a frame's first byte (RFC 7692, 6)
BINARY_REFUSED = 1003
GOING_DOWN = "the server is going down"
LONGEST_REASON = 123  # bytes of a close frame (RFC 6455, 5.5)


class Frames:
    """Ready frames. The last one is remembered: a message goes to all its receivers one after another. Each compressed frame is
    compressed alone, so that sockets need no compressor of their own, which is most of what one would cost."""

    def __init__(self) -> None:
        self._part = b""
        self._frame = b""
        self._deflated_part = b""
        self._deflated_frame = b""

    def of(self, parts: list[bytes]) -> bytes:
        """The text frame that carries these messages."""
        if len(parts) > 1:
            payload = b"[" + b",".join(parts) + b"]"  # `join` and `text_frame`, without a call
            return text_head(len(payload)) + payload
        # By identity: all receivers of a message get the same bytes object, one after another.
        part = parts[0]
        if part is not self._part:
            self._part = part
            self._frame = text_frame(b"[" + part + b"]")
        return self._frame

    def deflated(self, parts: list[bytes]) -> bytes:
        """The text frame for sockets that have agreed on permessage-deflate; short messages are not compressed."""
        if sum(map(len, parts)) < _WORTH_DEFLATING:
            return self.of(parts)
        if len(parts) > 1:
            return _deflated(join(parts))
        if parts[0] is not self._deflated_part:
            self._deflated_part = parts[0]
            self._deflated_frame = _deflated(join(parts))
        return self._deflated_frame


def _deflated(payload: bytes) -> bytes:
    # No context is kept between frames: a compressor for each socket would take 117 KiB.
    compressor = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -WINDOW_BITS, _MEMORY_LEVEL)
    data = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    frame = text_frame(data[:-4])  # less the mark that every flush ends with
    return bytes((frame[0] | _COMPRESSED,)) + frame[1:]


class _Response(web.WebSocketResponse):
    """aiohttp closes a socket for a frame that is too large without a reason: this gives it one."""

    def __init__(self, too_large: bytes, **options: Any) -> None:
        super().__init__(**options)
        self._too_large = too_large

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        """Close it, as `WebSocketResponse` does."""
        if code == WSCloseCode.MESSAGE_TOO_BIG and not message:
            message = self._too_large
        return await super().close(code=code, message=message, drain=drain)


class Socket(ParsedPeer):
    """One WebSocket. A task of its own writes to it, for compression may have to be waited for; the broker waits for no reader:
    what a slow one does not take stays in the session's bounded queue."""

    __slots__ = (
        "_caught_up",
        "_closing",
        "_controls",
        "_has_parted",
        "_is_busy",
        "_is_first",
        "_paced",
        "_payloads",
        "_reason",
        "_receiving",
        "_rest_s",
        "_size",
        "_wake",
        "_ws",
        "heard_at",
        "is_heard_from",
    )

    transport = "websocket"
    pushes = True

    def __init__(self, endpoint: Endpoint, request: web.Request, client: Client) -> None:
        super().__init__(endpoint, request, client)
        settings = endpoint.settings
        protocol = settings.websocket.protocol
        self._ws = _Response(
            str(too_large(settings)).encode(),
            timeout=CLOSE_TIMEOUT_S,
            protocols=(protocol,) if protocol else (),
            compress=settings.websocket.compression,
            max_msg_size=settings.bayeux.max_message_bytes + 1,  # aiohttp refuses what is as long as this
            decode_text=False,
            autoping=False,  # it would answer all that have come in one turn
        )
        self._caught_up = asyncio.Event()
        self._payloads: deque[bytes] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._rest_s = 0.0
        self._controls: Bucket | None = None
        self._paced: PacedReader | None = None
        self._reason: tuple[int, str] | None = None  # since `shut`, what the socket is closed with
        self._closing: asyncio.Task[None] | None = None
        self._receiving: asyncio.Timeout | None = None  # while the reader waits for a frame
        self._is_busy = self._has_parted = False
        self._is_first = endpoint.can_move  # no frame has been processed
        self.is_heard_from = True
        """Whether a message has come since the last look at all sockets."""
        self.heard_at = 0.0
        """Loop time (s) of the last look that found one."""

    def send(self, parts: list[bytes]) -> None:
        """Send one frame with these messages."""
        payload = join(parts)
        self._payloads.append(payload)
        self._waits(len(payload))
        self._wake.set()

    def supersede(self) -> None:
        """A connect that a newer one replaced gets no reply on a socket."""

    def slow_down(self, seconds: float) -> None:
        """Read the next frame that much later."""
        self._rest_s = max(self._rest_s, seconds)

    def _waits(self, size: int) -> None:
        """So many bytes more (or less) wait for the writer; the reader keeps up while that is less than a full response."""
        self._size += size
        self.is_writable = self._size < self._endpoint.settings.bayeux.max_response_bytes

    def lost(self) -> None:
        """The connection is gone. What comes from now on stays in the session's queue."""
        self._endpoint.broker.mailboxes.outbound.socket_closed(self)

    def _push_more(self) -> None:
        session = self.session
        if self.relay is not None:
            self.relay.caught_up()
        elif session is not None:
            self._endpoint.broker.mailboxes.outbound.leave_soon(session)

    async def run(self) -> web.WebSocketResponse:
        """Open, serve until it is closed, and let go of the session."""
        connection = self._request.protocol
        if isinstance(connection, Connection):
            connection.becomes(self)
        await self._ws.prepare(self._request)
        watch = self._endpoint.watch
        watch.add(self)
        if isinstance(connection, Connection):
            connection.speak()
            connection.carries(self)
        writer = asyncio.create_task(self._write())
        try:
            with suppress(ConnectionError):  # the answer to a ping or a close did not go out
                await self._read()
            if self._closing is not None:
                # aiohttp ends the connection after this. With something unread, the reason might never reach the peer.
                await asyncio.wait([self._closing])
        finally:
            watch.discard(self)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            self._endpoint.broker.mailboxes.outbound.socket_closed(self)
            self._part()
            if self._paced is not None:
                self._paced.end()
                self._paced = None  # they refer to each other
        return self._ws

    def _part(self) -> None:
        """Take apart what refers to itself, so that a closed socket is gone at once and not when all garbage is looked at."""
        session, self.session = self.session, None
        if session is not None:
            session.forget_peer(self)
        failure = self._ws.exception()
        if failure is not None:
            failure.__traceback__ = failure.__context__ = None

    async def close(self, code: int, reason: str) -> None:
        """Close the socket; the reason is for people. A peer that does not read is cut off."""
        transport = self._request.transport
        if self._paced is not None:
            self._paced.end()
        try:
            async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                await self._ws.close(code=code, message=reason.encode(errors="replace")[:LONGEST_REASON])
        except TimeoutError:
            if transport is not None:
                transport.abort()

    async def _read(self) -> None:
        broker = self._endpoint.broker
        turns, busy = broker.runtime.turns, 0.0  # seconds of work since others had their turn: frames are there at once
        while (frame := await self._next_frame()) is not None:
            if busy >= PORTION_S or turns.is_over():
                await turns.rest(self.remote, has_begun=False)
                busy = 0.0
            began = perf_counter()
            if self._paced is not None:
                self._paced.taken()
            if frame.type is WSMsgType.ERROR:  # aiohttp has closed the socket with the code that fits
                if getattr(frame.data, "code", None) == Fault.TOO_LARGE.close_code:
                    broker.metrics.refused_payloads[Fault.TOO_LARGE.name.lower()] += 1
                return
            if frame.type is WSMsgType.PING or frame.type is WSMsgType.PONG:
                if self._paced is None and self._has_too_many(1):  # else they are counted before
                    await self.close(POLICY_VIOLATION, TOO_MANY)
                    return
                if frame.type is WSMsgType.PING:
                    await self._ws.pong(frame.data)
                busy += perf_counter() - began
                continue
            if frame.type is not WSMsgType.TEXT:
                await self.close(BINARY_REFUSED, "binary frames are not part of the protocol")
                return
            is_empty = False
            try:
                answering = self._endpoint.receiver.receive(self, self._elements(frame.data))
            except PayloadError as error:
                fault = error.fault
                broker.metrics.refused_payloads[fault.name.lower()] += 1
                if not error.is_answerable:
                    await self.close(fault.close_code, str(error))
                    return
                if self._has_too_many(1):
                    await self.close(POLICY_VIOLATION, TOO_MANY)
                    return
                answering, is_empty = self._endpoint.receive_flawed(self, error), not error.flaws
            self.is_heard_from = True  # also by a frame without a message
            busy += perf_counter() - began
            if answering is not None:
                self._is_busy = True
                await answering  # frames of one socket are answered in their order
                self._is_busy, busy = False, 0.0
            if self._is_first and not is_empty and await self._has_moved():
                return
            if self._rest_s:
                await asyncio.sleep(self._rest_s)
                self._rest_s = 0.0
            while not self.is_writable:
                # A peer that does not read its replies is not read either: they would pile up here.
                self._caught_up.clear()
                await self._caught_up.wait()

    async def _next_frame(self) -> WSMessage | None:
        """Wait for it; none comes once the socket has ended, or is being closed."""
        if self._reason is None:
            try:
                async with asyncio.timeout(None) as self._receiving:
                    frame = await self._ws.receive()
            except TimeoutError:
                pass  # `shut` has ended it
            else:
                return None if frame.type in _ENDS else frame
            finally:
                self._receiving = None
        if self._closing is None and self._reason is not None:
            await self.close(*self._reason)
        return None

    async def _has_moved(self) -> bool:
        """After the first frame: whether another process has the connection. If so, this returns once it has."""
        self._is_first = False
        connection = self._request.protocol
        if not self._has_parted:
            if isinstance(connection, Connection):
                connection.stay()
            return False
        async for _ in self._ws:  # until the connection ends here; the other process has these frames too
            pass
        return True

    def part_with(self, take: Take) -> bool:
        """Give up the connection if this is its first frame."""
        self._has_parted = self._is_first and super().part_with(take)
        return self._has_parted

    def _elements(self, frame: bytes) -> list[object]:
        bayeux = self._endpoint.settings.bayeux
        if not frame:
            raise PayloadError(Fault.MALFORMED)
        if len(frame) > bayeux.max_message_bytes:
            raise too_large(self._endpoint.settings)
        return decode(frame, max_messages=bayeux.max_batch_messages, max_depth=bayeux.max_depth)

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._payloads:
                    payload = self._payloads.popleft()
                    await self._send(payload)
                    self._waits(-len(payload))
                self._caught_up.set()
                self._push_more()
        except ConnectionError:
            self._payloads.clear()
            self._waits(-self._size)
            self._caught_up.set()  # the reader finds that the socket has ended
        except Exception:
            log.exception("a message could not be written, and its socket is closed")
            if self._request.transport is not None:
                self._request.transport.abort()

    async def _send(self, payload: bytes) -> None:
        if len(payload) <= _DEFLATED_AT_ONCE or not self._ws.compress:
            await self._ws.send_frame(payload, WSMsgType.TEXT)
            return
        # aiohttp compresses it in a thread, in a task whose error is logged as unhandled if the writer is cancelled meanwhile.
        # So the writer waits for a task of its own, which is not cancelled and whose error is read.
        sending = asyncio.create_task(self._ws.send_frame(payload, WSMsgType.TEXT))
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([sending])
        await sending

    # What is asked of it while it is open

    def paced(self, parser: Parser, connection: Connection) -> PacedReader:
        """The reader of this socket's frames, which gives them to aiohttp's. From now on the connection receives into the
        buffer of all sockets."""
        turns = self._endpoint.broker.runtime.turns
        buffer = self._endpoint.shared_buffer
        connection.receive_into(buffer)
        self._paced = PacedReader(
            parser, connection, turns, self.remote, self._are_allowed, buffer.receive_less, self.shut
        )
        return self._paced

    def _are_allowed(self, controls: int) -> bool:
        """Whether so many frames without a message may come; else the socket is closed."""
        if self._has_too_many(controls):
            self.shut(POLICY_VIOLATION, TOO_MANY)
        return self._reason is None

    def _has_too_many(self, controls: int) -> bool:
        """Count frames without a message. If they are too many, nothing more is read."""
        limit = self._endpoint.control_frames
        if self._controls is None:
            self._controls = limit.bucket()
        if self._reason is not None or not limit.are_too_many(self._controls, controls):
            return False
        if self._paced is not None:
            self._paced.stop()
        return True

    @property
    def has_session(self) -> bool:
        """Whether it belongs to a session, here or at another node."""
        return self.session is not None or self.relay is not None

    @property
    def waits_for_server(self) -> bool:
        """Whether the client has sent something, takes the answer, and has none yet."""
        return self._is_busy or (self.is_writable and self._paced is not None and self._paced.is_behind)

    def shut(self, code: int, reason: str) -> None:
        """Close the socket; the reason is for people."""
        if self._reason is not None:
            return
        self._reason = code, reason
        if self._receiving is not None:
            # The reader closes it: while it waits for a frame, aiohttp would end the connection without waiting for the peer.
            self._receiving.reschedule(0)
        else:
            self._closing = self._endpoint.broker.spawn(self.close(code, reason))


def is_upgrade(request: web.Request) -> bool:
    """Whether the request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def answer(endpoint: Endpoint, request: web.Request, client: Client) -> web.StreamResponse:
    """Answer an upgrade; the socket is served in here until it closes."""
    for name in _HEADERS:
        if not all(value.isascii() and len(value) <= _MAX_HEADER for value in request.headers.getall(name, ())):
            return web.Response(status=400, text=f"{name} must be ASCII of at most {_MAX_HEADER} characters")
    wanted = endpoint.settings.websocket.protocol
    if wanted and wanted not in _offered(request):
        return web.Response(status=400, text=f"this server speaks the sub-protocol {wanted} only")
    return await Socket(endpoint, request, client).run()


def _offered(request: web.Request) -> list[str]:
    offers = request.headers.getall("Sec-WebSocket-Protocol", [])
    return [offer.strip() for line in offers for offer in line.split(",")]
