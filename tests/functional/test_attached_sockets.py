"""WebSockets of Crewel mounted in an aiohttp application of somebody else's, with its middlewares, signals and log."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError, web
from aiohttp.typedefs import Handler, Middleware
from pytest_aiohttp import AiohttpClient, AiohttpServer

import crewel.extensions.ack
import crewel.extensions.replay
import crewel.extensions.timesync
import crewel.extensions.update  # noqa: F401 - imported by name when a server is made, which would block the loop of a test
from crewel import server
from crewel.transports.websocket import Socket
from tests.functional.test_attach import without_store

HANDSHAKE = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["websocket"], "id": "1"}
LIMIT_S = 10.0


async def shaken(socket: ClientWebSocketResponse) -> bool:
    """Whether a handshake over the socket is answered."""
    await socket.send_json([HANDSHAKE])
    (reply,) = await socket.receive_json(timeout=LIMIT_S)
    return bool(reply["successful"])


@web.middleware
async def adds_a_header_behind(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    response.headers["X-Behind"] = "1"
    return response


@web.middleware
async def answers_itself(request: web.Request, handler: Handler) -> web.StreamResponse:
    await handler(request)
    return web.Response(text="something else")


@web.middleware
async def fails(request: web.Request, handler: Handler) -> web.StreamResponse:
    await handler(request)
    raise RuntimeError("behind the upgrade")


@web.middleware
async def takes_long(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    request.app[ENDS].add(ended := asyncio.Event())
    await ended.wait()
    return response


ENDS: web.AppKey[set[asyncio.Event]] = web.AppKey("ends")


@pytest.mark.parametrize("middleware", [adds_a_header_behind, answers_itself, fails, takes_long])
async def test_a_socket_lives_whatever_a_middleware_does_behind_it(
    aiohttp_client: AiohttpClient, middleware: Middleware
) -> None:
    """aiohttp's test tools also cancel handlers whose peer has gone (`handler_cancellation`)."""
    app = web.Application(middlewares=[middleware])
    app[ENDS] = set()
    server.attach(app, without_store())
    client = await aiohttp_client(app)
    async with client.ws_connect("/cometd") as socket:
        assert await shaken(socket)
        await asyncio.sleep(0)
        for ended in app[ENDS]:
            ended.set()
        assert await shaken(socket)
        assert len(app[server.ENDPOINT].sockets.watch.sockets) == 1
        await socket.close()
        assert socket.close_code == 1000


async def test_an_upgrade_passes_what_the_application_has_before_it_and_at_its_answer(
    aiohttp_client: AiohttpClient,
) -> None:
    @web.middleware
    async def lets_in(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await handler(request) if "token" in request.query else web.Response(status=401)

    async def marks(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["X-Mark"] = "1"

    app = web.Application(middlewares=[lets_in])
    app.on_response_prepare.append(marks)
    server.attach(app, without_store())
    client = await aiohttp_client(app)
    with pytest.raises(WSServerHandshakeError) as refused:
        await client.ws_connect("/cometd")
    assert refused.value.status == 401
    async with client.ws_connect("/cometd?token") as socket:
        assert socket._response.headers["X-Mark"] == "1"
        assert await shaken(socket)


async def test_an_upgrade_is_a_line_in_the_log_of_the_application(
    aiohttp_client: AiohttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aiohttp.access")
    app = web.Application()
    server.attach(app, without_store())
    client = await aiohttp_client(app)
    async with client.ws_connect("/cometd") as socket:
        assert await shaken(socket)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "aiohttp.access"]
    assert '"GET /cometd HTTP/1.1" 101 ' in line


async def test_sockets_are_closed_with_the_application(
    aiohttp_server: AiohttpServer, aiohttp_client: AiohttpClient
) -> None:
    app = web.Application()
    server.attach(app, without_store())
    client = await aiohttp_client(running := await aiohttp_server(app))
    sockets = [await client.ws_connect("/cometd") for _ in range(3)]
    assert all([await shaken(socket) for socket in sockets])
    closing = asyncio.create_task(running.close())
    for socket in sockets:
        closed = await socket.receive(timeout=LIMIT_S)
        assert (closed.type, closed.data, closed.extra) == (WSMsgType.CLOSE, 1001, "the server is going down")
    async with asyncio.timeout(LIMIT_S):
        await closing


@pytest.fixture
def secure() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a server and its clients need for TLS."""
    authority = trustme.CA()
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(serving)
    authority.configure_trust(asking)
    return serving, asking


@pytest.mark.parametrize("compress", [0, 15], ids=["plain", "deflate"])
async def test_sockets_work_over_tls(
    aiohttp_server: AiohttpServer,
    aiohttp_client: AiohttpClient,
    secure: tuple[ssl.SSLContext, ssl.SSLContext],
    compress: int,
) -> None:
    app = web.Application()
    server.attach(app, without_store())
    client = await aiohttp_client(await aiohttp_server(app, ssl=secure[0]))
    async with client.ws_connect("/cometd", ssl=secure[1], compress=compress) as socket:
        assert bool(socket.compress) is bool(compress)
        assert await shaken(socket)
        (peer,) = app[server.ENDPOINT].sockets.watch.sockets
        assert isinstance(peer, Socket)
        assert peer.is_secure
        await socket.send_json([{**HANDSHAKE, "ext": {"long": "x" * 60_000}}])
        (reply,) = await socket.receive_json(timeout=LIMIT_S)
        assert reply["successful"] is True


async def test_a_frame_that_is_not_masked_closes_a_socket(aiohttp_client: AiohttpClient) -> None:
    app = web.Application()
    server.attach(app, without_store())
    client = await aiohttp_client(app)
    async with client.ws_connect("/cometd") as socket:
        assert await shaken(socket)
        socket._writer.transport.write(b"\x81\x02[]")
        closed = await socket.receive(timeout=LIMIT_S)
        assert (closed.data, closed.extra) == (1002, "incorrect masking")
