"""aiohttp as the child of a connection: it reads and answers what its owner (`http_fast`) leaves to it.

The owner has the wire, its deadlines and its ends. A child has a transport that writes through, and whose end is its own. It
lives for one request without a body, or for all that still comes: the rest of a body is found by one parser, so that two never
disagree (smuggling).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from errno import ENAMETOOLONG
from functools import partial
from typing import Any, Protocol, cast

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import ERROR, RequestHandler

from crewel.transports.connection_caps import Counted

_CONDITIONS = ("If-Modified-Since", "If-Unmodified-Since", "If-Range")


class Owner(Protocol):
    """The connection that a child serves."""

    is_half_closed: bool
    """Whether the peer sends no more; most that do so are gone."""

    def has_begun(self) -> None:
        """The headers of a request are complete."""
        ...

    def has_answered(self) -> None:
        """A response has been written."""
        ...

    def child_ended(self) -> None:
        """The child takes and writes no more."""
        ...

    def becomes(self, socket: Counted) -> None:
        """The connection is this socket's from here on."""
        ...


class Connection(RequestHandler):
    """aiohttp's protocol, as the child of a connection."""

    __slots__ = ("_body", "answered", "continues", "is_busy", "owner", "serves_one", "wire")

    owner: Owner
    wire: asyncio.Transport
    """The transport of the owner."""

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self.serves_one = False
        """Whether it is there for one request without a body."""
        self.continues = False
        """Whether it has answered that one, and the peer may send another."""
        self.is_busy = False
        """Between the end of a request's headers and the end of its response."""
        self.answered = 0
        """How many of its requests."""
        self._body: StreamReader | None = None  # of the request whose headers came last
        assert self._request_factory is not None
        self._request_factory = partial(_request, self._request_factory)

    def serve(self, owner: Owner, wire: asyncio.Transport, data: bytes, *, serves_one: bool) -> None:
        """Begin with these bytes."""
        self.owner, self.wire, self.serves_one = owner, wire, serves_one
        self.connection_made(cast("asyncio.Transport", _Line(owner, wire)))
        self.data_received(data)

    def begin(self, request: web.BaseRequest) -> None:
        """The headers of a request are complete."""
        self.is_busy = True
        self._body = request.content
        self.owner.has_begun()
        if self.owner.is_half_closed and not request.content.is_eof():
            self.wire.close()  # the rest of the body will never come, and aiohttp would wait for it

    def log_access(self, request: web.BaseRequest, response: web.StreamResponse, time: float | None) -> None:
        """aiohttp calls this when a response has been written, whether or not it is logged."""
        self.is_busy = False
        self.answered += 1
        if self.answered == self._request_count:
            self.continues = self.serves_one and bool(response.keep_alive)
            if self.serves_one or self.owner.is_half_closed:
                response.force_close()  # its headers are sent: this ends the child alone
        self.owner.has_answered()
        super().log_access(request, response, time)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The peer sends no more. True keeps the connection open while it still has an answer to get."""
        request = self._current_request
        # asyncio closes both directions when one ends; a client that half-closes still waits for its response.
        if self._upgraded or (request is not None and not request.content.is_eof()):
            return False  # a socket ends with either direction; the rest of a body will never come
        return self.answered < self._request_count

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone, or the child is."""
        super().connection_lost(exc)
        self._body = None

    def force_close(self) -> None:
        """The connection ends, or has ended. After an answer that came before the end of a body aiohttp reads the rest, and
        fails where there is no connection any more: so the body ends too. A handler that still reads it gets an error."""
        super().force_close()
        if self._body is not None and not self.is_busy:
            self._body.feed_eof()

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


class _Line:
    """The transport of a child: that of its owner, but for its end."""

    def __init__(self, owner: Owner, wire: asyncio.Transport) -> None:
        self._owner = owner
        self._wire = wire
        self._is_closed = False

    def close(self) -> None:
        """The child has done; its owner decides about the connection."""
        if not self._is_closed:
            self._is_closed = True
            self._owner.child_ended()

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._is_closed or self._wire.is_closing()

    @property
    def _sendfile_compatible(self) -> Any:
        # asyncio would take the wire. What no transport has implemented makes aiohttp write the file itself.
        return asyncio.BaseTransport().is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)


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
