"""Upgrades that aiohttp reads: those of `attach` and of `http.fast_lane=false`, and what the fast lane leaves to it.

aiohttp answers, so that whatever the application adds to its answers comes with this one as well. Then it has to let go of the
connection: for the application the request has ended, and the socket lives without a handler, a task or a request.
"""

from __future__ import annotations

from typing import cast

from aiohttp import web
from aiohttp.http_websocket import WebSocketReader
from websockets.datastructures import Headers
from websockets.http11 import Request

from crewel.transports.forwarded import Client
from crewel.transports.http_connection import Connection
from crewel.transports.sockets import Sockets
from crewel.transports.upgrades import SWITCHING
from crewel.transports.websocket import Socket


class _Tail:
    """What came behind the head of an upgrade. aiohttp gives it to its reader of frames."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Keep this."""
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """aiohttp has let go of the connection."""


def is_upgrade(request: web.Request) -> bool:
    """Whether the request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def answer(sockets: Sockets, request: web.Request, client: Client, browser: str | None) -> web.StreamResponse:
    """Answer an upgrade, and give the connection to a socket if it is accepted. `browser` is the value of the cookie."""
    version = f"HTTP/{request.version.major}.{request.version.minor}"
    # Whatever the bytes are: what is not ASCII is refused where it matters.
    headers = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers)
    answered, deflate = sockets.upgrades.answer(Request("", headers, request.method, version))
    if answered.status_code != SWITCHING:
        return _refused(answered.status_code, answered.body.decode())
    if request.body_exists:  # aiohttp would take frames for it
        return _refused(400, "a request for a WebSocket has no body")
    response = web.StreamResponse(status=SWITCHING, headers=dict(answered.headers.raw_items()))
    response.force_close()  # for aiohttp there is no next request
    await response.prepare(request)
    connection, tail = request.protocol, _Tail()
    connection.set_parser(cast("WebSocketReader", tail))
    transport = connection.wire if isinstance(connection, Connection) else request.transport
    assert transport is not None
    head = b"\r\n".join((f"GET {request.raw_path} HTTP/1.1".encode(), *map(b": ".join, request.raw_headers), b"", b""))
    socket = Socket(sockets, head, browser, client, deflate, transport)
    if isinstance(connection, Connection):
        connection.owner.becomes(socket)
    connection.transport = None  # else aiohttp would close it
    request.task.add_done_callback(lambda _: connection.connection_lost(None))
    socket.begin(tail.data)
    return response


def _refused(status: int, text: str) -> web.Response:
    response = web.Response(status=status, text=text)
    response.force_close()
    return response
