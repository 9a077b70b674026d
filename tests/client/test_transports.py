"""What a transport makes of the ways in which a connection ends, and of answers that are not Bayeux."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from crewel.client import PayloadRefusedError, TransportError
from crewel.client.errors import SocketClosedError
from crewel.client.transports import LongPolling, WebSocket, Wiring
from tests.client.support import LIMIT_S

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
MOST = 1000


@asynccontextmanager
async def wired(answer: Answer) -> AsyncIterator[tuple[Wiring, asyncio.Future[TransportError]]]:
    """What a transport works with at a server that answers so, and why the connection was lost."""
    lost: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()
    app = web.Application()
    app.router.add_route("*", "/", answer)

    def lose(error: TransportError) -> None:
        if not lost.done():
            lost.set_result(error)

    async with TestServer(app) as server, aiohttp.ClientSession() as http:
        url = str(server.make_url("/"))
        yield Wiring(url, None, http, lambda messages, whole: None, lose, MOST, lambda: None), lost


@pytest.mark.server
@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"\x81\x7e\x07\xd0" + b"x" * 2000, "the server sent more than 1000 bytes in one message"),
        (b"\x81\x01\xff", "the server sent a frame that cannot be read"),
    ],
)
async def test_a_frame_that_the_client_does_not_take_is_no_refusal_by_the_server(frame: bytes, words: str) -> None:
    async def send(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert request.transport is not None
        request.transport.write(frame)
        await socket.receive()
        return socket

    async with wired(send) as (wiring, lost):
        transport = WebSocket(wiring)
        await transport.open(LIMIT_S)
        error = await asyncio.wait_for(lost, LIMIT_S)
        await transport.close()
    assert words in str(error)
    assert not isinstance(error, SocketClosedError)


@pytest.mark.server
@pytest.mark.parametrize(("headers", "is_refusal"), [({"Crewel-Refused": "too_deep"}, True), ({}, False)])
async def test_a_400_refuses_a_payload_only_if_it_says_so(headers: dict[str, str], is_refusal: bool) -> None:
    """Those of proxies may be plain text too."""

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=400, text="bad request", headers=headers)

    async with wired(refuse) as (wiring, _):
        with pytest.raises(TransportError) as raised:
            await LongPolling(wiring).send([{"channel": "/a"}], LIMIT_S)
    assert isinstance(raised.value, PayloadRefusedError) is is_refusal
