"""One connection of the server: aiohttp's own protocol, with what a server of held requests needs on top.

- A peer that does not finish its headers is cut off (`http.header_timeout_ms`).
- A peer that does not read its answers is cut off, too (`http.keepalive_ms`).
- A peer that closed only its own direction still gets its answer (asyncio alone would close both).
- A connection that came from the fast lane goes back to it with its next Bayeux request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from errno import ENAMETOOLONG
from functools import partial
from math import inf
from typing import Any, Final, Protocol, cast

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import ERROR, RequestHandler

from crewel.broker.exchange import Take
from crewel.event_loop import GRACE_S, has_stalled
from crewel.fair_turns import FairTurns
from crewel.transports.connection_caps import ConnectionCaps, Counted, address_of

_MOST_KEPT: Final = 1 << 20  # bytes
_CONDITIONS = ("If-Modified-Since", "If-Unmodified-Since", "If-Range")


class FastOwner(Counted, Protocol):
    """The connection of the fast lane that a connection of aiohttp came from."""

    def wants(self, data: bytes) -> bool:
        """Whether it can serve the request that begins with this."""
        ...

    def take_back(self, transport: asyncio.Transport, data: bytes) -> None:
        """Serve from here on, beginning with what came."""
        ...

    def gone(self) -> None:
        """The connection has ended."""
        ...


class Connection(RequestHandler):
    """aiohttp's protocol for one connection, watched."""

    __slots__ = (
        "_answered",
        "_arrivals",
        "_body",
        "_caps",
        "_fast",
        "_first_bytes",
        "_header_timeout",
        "_header_timer",
        "_is_away",
        "_is_busy",
        "_is_half_closed",
        "_kept",
        "_may_return",
        "_muted",
        "_reader_timer",
        "_unanswered",
        "_unread",
        "_whole_until",
        "_wire",
        "holder",
    )

    def __init__(
        self,
        manager: web.Server,
        *,
        header_timeout: float,
        caps: ConnectionCaps,
        arrivals: FairTurns,
        can_move: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(manager, **options)
        self._caps = caps
        self._arrivals = arrivals
        self.holder: str | None = None
        self._first_bytes: list[bytes] | None = [] if can_move else None
        self._kept = 0  # of them, in bytes
        self._whole_until = 0  # `_answered` when these bytes began
        self._muted: _Muted | None = None
        self._header_timeout = header_timeout
        self._header_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._unread: float = 0  # bytes that the peer had not taken when its time began
        self._wire: asyncio.Transport | None = None  # aiohttp forgets the transport that it closes
        self._is_busy = False  # between the end of a request's headers and the end of its response
        self._answered = 0  # of aiohttp's _request_count
        self._is_half_closed = False
        self._body: StreamReader | None = None  # of the request whose headers came last
        self._fast: FastOwner | None = None
        self._is_away = False  # the fast lane has taken it back
        self._may_return = True  # all bytes so far were whole requests, and each has been answered
        self._unanswered = False
        assert self._request_factory is not None
        self._request_factory = partial(_request, self._request_factory)

    @property
    def is_half_closed(self) -> bool:
        """Whether the peer sends no more; most that do so are gone."""
        return self._is_half_closed

    @property
    def wire(self) -> asyncio.Transport | None:
        """The transport, also of a connection that says nothing."""
        return self._wire

    def becomes(self, socket: Counted) -> bool:
        """The connection is this socket's from here on. Return whether it may be given to another process."""
        self._caps.move(self if self._fast is None else self._fast, socket)
        return self._first_bytes is not None

    def hold_reading(self) -> None:
        """Leave what the peer sends in its own buffers."""
        if self._wire is not None and not self._wire.is_closing():
            self._wire.pause_reading()

    def read_on(self) -> None:
        """Read again, unless aiohttp holds it."""
        if self._wire is not None and not (self._wire.is_closing() or self._reading_paused):
            self._wire.resume_reading()

    def pause_writing(self) -> None:
        """The peer does not read."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        self._unread = inf

    def begin(self, request: web.BaseRequest) -> None:
        """The headers of a request are complete."""
        self._is_busy = True
        self._body = request.content
        self._stop_timer()
        if self._is_half_closed and not request.content.is_eof() and self._wire is not None:
            self._wire.close()  # the rest of the body will never come, and aiohttp would wait for it

    def log_access(self, request: web.BaseRequest, response: web.StreamResponse, time: float | None) -> None:
        """aiohttp calls this when a response has been written, whether or not it is logged."""
        self._is_busy = False
        self._unanswered = False
        self._answered += 1
        self._watch_reader()
        if self._is_half_closed and self._answered == self._request_count:
            response.force_close()
        super().log_access(request, response, time)

    def keep_bytes(self) -> None:
        """The next bytes begin a request: keep them while it is not answered, if connections can move at all."""
        if self._is_away:
            self._is_away = False
            self.keep_alive(True)  # stops a timer that aiohttp has started meanwhile
        if self._first_bytes is not None:
            self._first_bytes.clear()
            self._kept = 0
            self._whole_until = self._answered

    def _keep(self, data: bytes) -> None:
        assert self._first_bytes is not None
        if self._answered == self._whole_until:
            self._first_bytes.append(data)
            self._kept += len(data)
            if self._kept > _MOST_KEPT:
                self.stay()

    def stay(self) -> None:
        """Keep no more bytes: this connection stays."""
        self._first_bytes = None

    def part_with(self, take: Take) -> bool:
        """Do what `Peer.part_with` says, while all that came since `keep_bytes` is kept and not answered."""
        wire, kept = self._wire, self._first_bytes
        if wire is None or not kept or self._answered != self._whole_until:
            return False
        if wire.get_extra_info("sslcontext") is not None or wire.get_write_buffer_size():
            return False
        wire.pause_reading()
        self._loop.call_soon(self._depart, take)
        return True

    def _depart(self, take: Take) -> None:
        if self._wire is not None and self._first_bytes is not None:
            take(self._wire, b"".join(self._first_bytes), False)
            self._wire.abort()

    def has_upgraded(self) -> None:
        """The next bytes repeat an upgrade that another process has answered: say nothing."""
        self._muted = _Muted()

    def comes_from(self, fast: FastOwner) -> None:
        """The fast lane handed this connection over and takes it back when it can."""
        self._fast = fast

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time for the first headers."""
        if self._fast is None and not self._caps.admit(self, cast("asyncio.Transport", transport)):
            return  # another protocol has it from here on
        self._wire = cast("asyncio.Transport", transport)
        if self._muted is not None:
            self._muted.transport = self._wire
        super().connection_made(cast("asyncio.Transport", self._muted or transport))
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Pass on what came; if it begins a request, its headers must be complete in time."""
        fast = self._fast
        # The fast lane takes over at the start of a request only, so that two parsers never disagree (smuggling).
        if fast is not None and self._may_return and not (self._unanswered or self.writing_paused) and fast.wants(data):
            self._return(fast, data)
        elif not self._request_count and fast is None and self._muted is None:
            self._arrive(data)
        else:
            self.serve(data)

    def _arrive(self, data: bytes) -> None:
        """Take these bytes, which begin the first request, now or in a later turn: of a storm of connections, aiohttp would
        begin with all in one."""
        address = None if self._wire is None else address_of(self._wire)
        if self._arrivals.put_off(address, partial(self._arrived, data)):
            self.hold_reading()
        else:
            self._arrivals.lend()
            self.serve(data)

    def _arrived(self, data: bytes) -> None:
        if self._wire is not None:
            self._arrivals.lend()
            self.serve(data)
            self.read_on()

    def serve(self, data: bytes) -> None:
        """Take these bytes, whatever they are."""
        if self._may_return:
            self._may_return = not self._unanswered and _is_one_request_without_body(data)
            self._unanswered = True
        if self._first_bytes is not None:
            self._keep(data)
        if not self._is_busy and self._header_timer is None:
            self._start_timer()
        super().data_received(data)

    def _return(self, fast: FastOwner, data: bytes) -> None:
        self._is_away = True  # aiohttp starts its own timer a moment after its response, which may be only now
        self._stop_timer()
        self._stop_reader_timer()
        self.keep_alive(True)  # stops aiohttp's own timer: the fast lane watches from here on
        assert self.transport is not None
        fast.take_back(self.transport, data)

    def _process_keepalive(self) -> None:
        """aiohttp's own timer has fired."""
        if not self._is_away:
            super()._process_keepalive()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The peer sends no more. True keeps the connection open while it still has an answer to get."""
        request = self._current_request
        # asyncio closes both directions when one ends; a client that half-closes still waits for its response.
        if self._upgraded or (request is not None and not request.content.is_eof()):
            return False  # a socket ends with either direction; the rest of a body will never come
        self._is_half_closed = True
        return self._answered < self._request_count

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        self._stop_timer()
        self._stop_reader_timer()
        self._wire = None
        super().connection_lost(exc)
        self._body = None
        self._caps.left(self)
        if self._fast is not None:
            self._fast.gone()
            self._fast = None

    def force_close(self) -> None:
        """The connection ends, or has ended. After an answer that came before the end of a body aiohttp reads the rest, and
        fails where there is no connection any more: so the body ends too. A handler that still reads it gets an error."""
        super().force_close()
        if self._body is not None and not self._is_busy:
            self._body.feed_eof()

    def let_go(self) -> None:
        """The fast lane has made a socket of the connection: forget it, and leave it open."""
        self.transport = None  # aiohttp would close it
        self.connection_lost(None)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no HTTP, or to a failure of ours. The first is a peer's affair, and no error to log; so is
        a connection that is lost."""
        if isinstance(exc, UnicodeEncodeError) and "Expect" in request.headers:
            status = 417  # aiohttp repeats the expectation in its answer, also one that is no text
        elif not isinstance(exc, HttpProcessingError | ConnectionError):
            return super().handle_error(request, status, exc, message)
        response = web.Response(status=status, text="not a request in HTTP")
        response.force_close()
        return response

    def _start_timer(self, seconds: float | None = None) -> None:
        after = self._header_timeout if seconds is None else seconds
        self._header_timer = self._loop.call_later(after, self._cut_off)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _cut_off(self) -> None:
        timer, self._header_timer = self._header_timer, None
        if timer is not None and has_stalled(timer.when(), self._loop.time()):
            self._start_timer(GRACE_S)  # the rest of the headers may have come, and has not been read
        elif not self._is_busy:
            self.force_close()

    def _watch_reader(self) -> None:
        if self._reader_timer is None and self._wire is not None and not self._upgraded:
            self._unread = self._wire.get_write_buffer_size()
            if self._unread:
                self._reader_timer = self._loop.call_later(self.keepalive_timeout, self._check_reader)

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _check_reader(self) -> None:
        self._reader_timer = None
        if self._wire is not None and self._wire.get_write_buffer_size() >= self._unread:
            self._wire.abort()
        else:
            self._watch_reader()


class _Muted:
    """A transport that drops what is written."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def write(self, data: bytes) -> None:
        """Drop it."""

    def writelines(self, lines: Iterable[bytes]) -> None:
        """Drop them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


def _request(make: Callable[..., web.BaseRequest], message: RawRequestMessage, *others: Any) -> web.BaseRequest:
    """The request of this head. aiohttp's parser gives a CONNECT without a target no URL, and its request needs one."""
    return make(message if message.url is not None else message._replace(path="/", url=ERROR.url), *others)


@web.middleware
async def mark_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection that the headers of a request are complete. Refuse values that aiohttp fails on when it prepares a
    file: dates that no clock reaches, and names that no directory can have."""
    connection = request.protocol
    if isinstance(connection, Connection):
        connection.begin(request)
    if any(name in request.headers for name in _CONDITIONS) and not _has_dates(request):
        raise web.HTTPBadRequest(text="a condition of the request has an invalid date")
    try:
        return await handler(request)
    except OSError as error:
        if error.errno != ENAMETOOLONG:
            raise
        raise web.HTTPNotFound from None


def _has_dates(request: web.Request) -> bool:
    try:
        _ = request.if_modified_since, request.if_unmodified_since, request.if_range
    except (OverflowError, ValueError):
        return False
    return True


def _is_one_request_without_body(data: bytes) -> bool:
    """Whether this is a whole request and nothing else. Only after such a one is it certain where the next begins."""
    if not data.startswith((b"GET ", b"HEAD ", b"OPTIONS ")) or not data.endswith(b"\r\n\r\n"):
        return False
    lowered = data.lower()
    return data.count(b"\r\n\r\n") == 1 and b"content-length" not in lowered and b"transfer-encoding" not in lowered
