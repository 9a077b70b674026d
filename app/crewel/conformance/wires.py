"""How messages travel: long-polling, callback-polling and WebSocket, each as a `Wire` of one client.

A wire carries payloads and hands every message that arrives to its owner, in order of arrival. It knows nothing of sessions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import aiohttp

from crewel.conformance.verdicts import CALLBACK_POLLING, WEBSOCKET, Failed, Gone
from crewel.outgoing_proxy import Proxy, refusal, without_password

Fields = dict[str, Any]
Arrived = Callable[[Fields], None]
Broken = Callable[[Failed], None]
CALLBACK: Final = "crewel_conformance"


@dataclass(frozen=True, slots=True)
class Site:
    """The server that is tried."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request, such as `Authorization`."""
    limit_s: float = 5.0
    """How long an answer may take that is due at once."""
    proxy: Proxy | None = None
    """The proxy on the way to it."""

    @property
    def shown(self) -> str:
        """Its address, without a password."""
        return without_password(self.url)

    def session(self) -> aiohttp.ClientSession:
        """A user agent of its own, with its own cookies, also from a numeric address."""
        jar = aiohttp.CookieJar(unsafe=True, quote_cookie=False)
        through = None if self.proxy is None else self.proxy.url
        return aiohttp.ClientSession(cookie_jar=jar, headers=self.headers, trace_configs=[_tracing()], proxy=through)


def _tracing() -> aiohttp.TraceConfig:
    """Set the event that a request was given, as soon as the request has been written."""
    tracing = aiohttp.TraceConfig()

    async def written(_: aiohttp.ClientSession, context: Any, parameters: Any) -> None:
        is_all = parameters.method == "GET" or isinstance(parameters, aiohttp.TraceRequestChunkSentParams)
        if is_all and isinstance(context.trace_request_ctx, asyncio.Event):
            context.trace_request_ctx.set()

    tracing.on_request_headers_sent.append(written)
    tracing.on_request_chunk_sent.append(written)
    return tracing


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response."""

    status: int
    content_type: str
    charset: str | None
    body: str

    def messages(self) -> list[Fields]:
        """The messages in it. Raises Failed."""
        return messages_of(self.body, f"HTTP {self.status}")


def messages_of(text: str, where: str) -> list[Fields]:
    """The messages of one payload. Raises Failed if it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        raise Failed(f"expected a JSON array of messages, got {where} {text[:120]!r}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Failed(f"expected a JSON array of messages, got {where} {text[:120]!r}")
    return found


class Wire(Protocol):
    """What a client speaks through."""

    async def post(self, messages: Sequence[Fields], written: asyncio.Event | None = None) -> None:
        """Send one payload; `written` is set when it is on its way. Over HTTP this returns when the response was read; over a
        socket, when the frame was sent."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class Polling:
    """Long-polling, and callback-polling: a response for each request."""

    def __init__(
        self, site: Site, transport: str, arrived: Arrived, agent: aiohttp.ClientSession | None = None
    ) -> None:
        """`agent` is shared by clients that are in one browser."""
        self._site = site
        self._is_callback = transport == CALLBACK_POLLING
        self._arrived = arrived
        self._owns_agent = agent is None
        self._agent = agent if agent is not None else site.session()

    async def post(self, messages: Sequence[Fields], written: asyncio.Event | None = None) -> None:
        """Send them; hand over what the response has. Raises Failed if it is no answer."""
        payload = json.dumps(messages, ensure_ascii=False)
        if self._is_callback:
            response = await request(
                self._agent,
                "GET",
                f"{self._site.url}?{urlencode({'jsonp': CALLBACK, 'message': payload})}",
                written=written,
            )
            text = unwrapped(response.body, CALLBACK)
        else:
            response = await request(
                self._agent, "POST", self._site.url, payload.encode(), {"Content-Type": "application/json"}, written
            )
            text = response.body
        for each in messages_of(text, f"HTTP {response.status}"):
            self._arrived(each)

    async def close(self) -> None:
        """Close its connections."""
        if self._owns_agent:
            await self._agent.close()


class Socket:
    """WebSocket: frames in both directions. A frame that is no payload is reported, and ends the socket."""

    def __init__(self, site: Site, arrived: Arrived, broken: Broken) -> None:
        self._site = site
        self._arrived = arrived
        self._broken = broken
        self._agent = site.session()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reading: asyncio.Task[None] | None = None

    async def post(self, messages: Sequence[Fields], written: asyncio.Event | None = None) -> None:
        """Send one frame, over a new socket if the server has closed the last one. Raises Failed if there is no socket."""
        if self._socket is None or self._socket.closed:
            self._socket = await open_socket(self._agent, self._site)
            self._reading = asyncio.create_task(self._read(self._socket))
        await self._socket.send_str(json.dumps(messages, ensure_ascii=False))
        if written is not None:
            written.set()

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        try:
            async for frame in socket:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    for each in messages_of(frame.data, "a frame"):
                        self._arrived(each)
        except Failed as failed:
            self._broken(failed)
            await socket.close()

    async def close(self) -> None:
        """Close it."""
        if self._socket is not None and self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            await self._socket.close()
        await self._agent.close()


async def open_socket(agent: aiohttp.ClientSession, site: Site) -> aiohttp.ClientWebSocketResponse:
    """A WebSocket to the server. Raises Failed, and Gone if nothing listens."""
    try:
        return await agent.ws_connect("ws" + site.url.removeprefix("http"), autoping=True)
    except aiohttp.ClientConnectorError as error:
        raise Gone(str(error)) from None
    except aiohttp.ClientHttpProxyError as error:  # whose own text has the password of the proxy
        raise Gone(refusal(error.status, error.message)) from None
    except aiohttp.ClientError as error:
        raise Failed(f"expected a WebSocket at {site.shown}, got {error}") from None


def wire(
    site: Site, transport: str, arrived: Arrived, broken: Broken, agent: aiohttp.ClientSession | None = None
) -> Wire:
    """The wire of a transport. `broken` learns what was received that is no payload, unless `post` raises it."""
    return Socket(site, arrived, broken) if transport == WEBSOCKET else Polling(site, transport, arrived, agent)


async def request(
    agent: aiohttp.ClientSession,
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    written: asyncio.Event | None = None,
) -> Response:
    """One HTTP exchange. Raises Failed if the connection breaks, and Gone if there is none."""
    try:
        async with agent.request(method, url, data=body, headers=headers, trace_request_ctx=written) as response:
            text = await response.text(errors="replace")
            return Response(response.status, response.content_type, response.charset, text)
    except aiohttp.ClientConnectorError as error:
        raise Gone(str(error)) from None
    except aiohttp.ClientHttpProxyError as error:  # whose own text has the password of the proxy
        raise Gone(refusal(error.status, error.message)) from None
    except aiohttp.ClientError as error:
        raise Failed(f"expected an HTTP response, got {type(error).__name__}: {error}") from None


def unwrapped(body: str, callback: str) -> str:
    """What a JSONP response calls its callback with. Raises Failed."""
    text = body.strip().removeprefix("/**/").strip().removesuffix(";")
    if not (text.startswith(f"{callback}(") and text.endswith(")")):
        raise Failed(f"expected a call of {callback}(…), got {body[:120]!r}")
    return text[len(callback) + 1 : -1]
