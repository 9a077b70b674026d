"""The two transports, and what the session needs of one and gives to it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

import aiohttp
import orjson

from crewel.bayeux.message import Fields
from crewel.bayeux.numbers import parse
from crewel.client.client_message import CONNECT
from crewel.client.errors import (
    WRONG_PATHS,
    MessageTooLargeError,
    PayloadRefusedError,
    ProxyDeniedError,
    RequestTimeoutError,
    SocketClosedError,
    TransportError,
    UntrustedCertificateError,
    UpgradeRefusedError,
    WrongAddressError,
)
from crewel.client.payload import written
from crewel.errors import REFUSED_HEADER
from crewel.outgoing_proxy import HINTS, Proxy, place, refusal, without_password

log = logging.getLogger("crewel.client")

_HEADERS = {"Content-Type": "application/json"}
_CLOSE = aiohttp.ClientWSTimeout(ws_close=1.0)  # pyright: ignore[reportCallIssue] - it does not know what attrs makes
"""How long a peer may take to answer a close frame."""
_NO_SOCKET = ": either the server offers no WebSocket, or a proxy does not forward the Upgrade and Connection headers"
_UPGRADE_HINTS = {400: _NO_SOCKET, 426: _NO_SOCKET, **HINTS}
"""The likely causes, by the status."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PATH_HINT = ": Crewel's path is /cometd, unless the server's bayeux.path names another one"
_ANSWER_HINTS = {
    400: ": this is not the answer of a Bayeux server; a port with TLS needs https",
    403: ": it refuses this origin or host, and its log names the setting",
    **dict.fromkeys(WRONG_PATHS, _PATH_HINT),
    **HINTS,
}
"""What to look at, by the status of an answer that is not Bayeux."""
_KINDS: dict[int, type[TransportError]] = {
    **dict.fromkeys(WRONG_PATHS | _REDIRECTS, WrongAddressError),
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: ProxyDeniedError,
}
"""The error of such an answer, if it has one of its own."""

_LONGEST_REASON = 1000
_DENIALS = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
"""Answers of a proxy to CONNECT that a repeat does not change."""
_ENDS = frozenset({aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED})

Receive = Callable[[list[Fields], bool], None]
"""Takes received messages; the flag says that they are one whole response, not a frame of a stream."""

Lost = Callable[[TransportError], None]
"""Called when a connection breaks on which requests may wait."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a transport works with."""

    url: str
    """The endpoint, http or https."""
    proxy: Proxy | None
    """What stands on the way there."""
    http: aiohttp.ClientSession
    receive: Receive
    lost: Lost
    max_bytes: int
    """The largest response or frame that is taken."""
    limit: Callable[[], int | None]
    """The largest payload that the server takes, in bytes, if known."""

    @property
    def place(self) -> str:
        """The endpoint, and the proxy on the way there, as errors name them."""
        return place(self.url, self.proxy)

    def failed(self, error: Exception) -> TransportError:
        """The error for a connection that failed."""
        kind: type[TransportError] = TransportError
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            kind = UntrustedCertificateError
        elif isinstance(error, aiohttp.ClientHttpProxyError) and error.status in _DENIALS:
            kind = ProxyDeniedError
        return kind(f"{self.place}: {reason_of(error, self.proxy)}")


class Transport(Protocol):
    """Carries payloads; knows nothing of sessions."""

    name: str
    """The `connectionType`."""
    streams: bool
    """Whether replies come apart from the sending, in frames."""

    @property
    def is_lost(self) -> bool:
        """Whether it was open and has to be opened again, so that nothing can be sent."""
        ...

    async def open(self, timeout: float) -> None:
        """Make it ready to send; nothing if it is. Raises TransportError."""

    async def send(self, payload: list[Fields], timeout: float) -> None:
        """Send one payload. Returns once it is written, or, unless it `streams`, once the whole
        response was received. Raises TransportError."""

    async def close(self) -> None:
        """Let go of the connection. The transport can be opened again."""


_NOT_LISTENING = ": no server listens there; start it, or correct the address"
_UNKNOWN_AUTHORITY = frozenset(
    {18, 19, 20, 21}
)  # of X509_V_ERR_…: OpenSSL does not know who has issued the certificate


def reason_of(error: Exception, proxy: Proxy | None = None) -> str:
    """What to show of a failed connection; the HTTP library's own words hide it behind the address, and those about a proxy
    show its password."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return refusal(error.status, error.message)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        verified = error.certificate_error
        is_unknown = getattr(verified, "verify_code", 0) in _UNKNOWN_AUTHORITY
        hint = " (SSL_CERT_FILE names the file of an authority that is not public)" if is_unknown else ""
        return f"certificate verify failed: {getattr(verified, 'verify_message', '') or verified}{hint}"
    if isinstance(error, aiohttp.ClientSSLError):
        # Its errno says nothing; its reason is such as WRONG_VERSION_NUMBER, from a server that does not speak TLS.
        reason = getattr(error.os_error, "reason", None)
        hint = " (does the server speak http?)" if reason == "WRONG_VERSION_NUMBER" else ""
        return f"TLS failed: {reason or error}{hint}"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        number = error.os_error.errno
        # The resolver's numbers are negative, and os.strerror does not know them.
        words = (os.strerror(number) if number > 0 else error.os_error.strerror or str(error)).lower()
        if proxy is not None:  # which alone finds and reaches the server
            return f"the proxy cannot be reached: {words}"
        return words + (_NOT_LISTENING if number == errno.ECONNREFUSED else "")
    return str(error) or type(error).__name__


def redirected(response: aiohttp.ClientResponse) -> str:
    """Where an answer redirects to, and what to do; empty if it does not."""
    target = response.headers.get("Location")
    if response.status not in _REDIRECTS or not target:
        return ""
    return f", a redirect to {without_password(target)}: if the server is there, use that address"


def _encode(payload: list[Fields], limit: int | None) -> bytes:
    """One payload: always an array.

    Raises:
        NotEncodableError: JSON cannot say what is in one of the messages.
        MessageTooLargeError: it has more bytes than `limit`.
    """
    parts = [written(fields) for fields in payload]
    body = b"[" + b",".join(parts) + b"]"
    if limit is not None and len(body) > limit:
        raise _too_large(f"{_named(payload)} has {len(body)} bytes", limit)
    return body


def _too_large(what: str, limit: int | None) -> MessageTooLargeError:
    """The error for what the server does not take for its size."""
    most = "" if limit is None else f" of at most {limit} bytes"
    return MessageTooLargeError(f"{what}: the server takes requests{most} (bayeux.max_message_bytes)")


def _named(payload: list[Fields]) -> str:
    if len(payload) > 1:
        return f"a payload of {len(payload)} messages"
    return f"a message to {payload[0].get('channel')}" if payload else "a payload"


def _decode(body: bytes | str) -> list[Fields]:
    """The messages of a response or frame; a bare object is a list of one, elements that are no objects are skipped.

    Raises:
        TransportError: it is not JSON.
    """
    try:
        value = parse(body)
    except orjson.JSONDecodeError as error:
        raise TransportError(f"the answer is not JSON: {error}") from error
    elements = value if isinstance(value, list) else [value]
    return [element for element in elements if isinstance(element, dict)]


class LongPolling:
    """The `long-polling` transport: one POST a payload, the reply in its response. Every server answers at the endpoint.

    Connects are held by the server and have a connection of their own. All other payloads take turns on a second one, so that
    they arrive in the order they were sent in.
    """

    name = "long-polling"
    streams = False

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        # Not a guard of shared state: the lock is the lane itself. It is fair, a cancelled waiter leaves it,
        # and each holder is bounded by its time-out.
        self._lane = asyncio.Lock()

    @property
    def is_lost(self) -> bool:
        """No: each request has a connection of its own."""
        return False

    async def open(self, timeout: float) -> None:
        """Nothing to do: connections are made when needed."""

    async def send(self, payload: list[Fields], timeout: float) -> None:
        """POST the payload and hand over the whole response."""
        # A held connect would keep publishes waiting behind it.
        if payload[0].get("channel") == CONNECT:
            await self._post(payload, timeout)
            return
        async with self._lane:
            await self._post(payload, timeout)

    async def close(self) -> None:
        """Nothing to do: a request is ended by cancelling its sender."""

    async def _post(self, payload: list[Fields], timeout: float) -> None:
        body = _encode(payload, self._wiring.limit())
        try:
            async with asyncio.timeout(timeout):
                answer = await self._exchange(body)
        except TimeoutError as error:
            raise RequestTimeoutError(f"no answer from {self._wiring.place} within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._wiring.failed(error) from None  # its text has the reason
        self._wiring.receive(_decode(answer), True)

    async def _exchange(self, body: bytes) -> bytes:
        # A redirect that is followed makes a GET of a POST (301 to 303), or shows the token of a handshake to another server.
        async with self._wiring.http.post(
            self._wiring.url, data=body, headers=_HEADERS, allow_redirects=False
        ) as response:
            if response.status == 413:
                raise _too_large(f"{self._wiring.place} refused {len(body)} bytes", self._wiring.limit())
            if response.status == 400 and REFUSED_HEADER in response.headers:  # else it is not about the payload
                reason = (await response.content.read(_LONGEST_REASON)).decode(errors="replace")
                raise PayloadRefusedError(f"{self._wiring.place} refused the request: {reason}")
            if response.status != 200:
                hint = redirected(response) or _ANSWER_HINTS.get(response.status, "")
                error = _KINDS.get(response.status, TransportError)
                raise error(f"{self._wiring.place} answered {response.status} {response.reason}{hint}")
            return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        # A body cut short raises ClientPayloadError: it is never taken for a short answer.
        parts = bytearray()
        async for part in response.content.iter_any():
            parts += part
            if len(parts) > self._wiring.max_bytes:
                raise TransportError(f"the answer is larger than {self._wiring.max_bytes} bytes")
        return bytes(parts)


class WebSocket:
    """The `websocket` transport: one socket, each payload as one text frame, and frames in.

    A task reads the socket from `open` to `close`. A socket that ends from the other side is reported to the session at once,
    so that nothing waits for replies that cannot come.
    """

    name = "websocket"
    streams = True

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the socket has ended."""
        return self._socket is not None and self._socket.closed

    async def open(self, timeout: float) -> None:
        """Make the upgrade, unless the socket is open.

        Raises:
            UpgradeRefusedError: the server answered, but not as a WebSocket.
            TransportError: it did not answer.
        """
        if self._socket is not None and not self._socket.closed:
            return
        await self.close()
        place = self._wiring.place
        try:
            async with asyncio.timeout(timeout):
                socket = await self._wiring.http.ws_connect(
                    self._wiring.url, timeout=_CLOSE, autoclose=False, max_msg_size=self._wiring.max_bytes
                )
        except TimeoutError as error:
            raise RequestTimeoutError(f"no WebSocket from {place} within {timeout:g} s") from error
        except aiohttp.WSServerHandshakeError as error:
            # An upgrade is a GET, and aiohttp follows its redirects.
            led = f", redirected to {without_password(str(error.request_info.real_url))}," if error.history else ""
            text = f"{place}{led} answered {error.status} to the upgrade{_UPGRADE_HINTS.get(error.status, '')}"
            raise UpgradeRefusedError(text, error.status) from None  # it has the headers, with the password of a proxy
        except (aiohttp.ClientError, OSError) as error:
            raise self._wiring.failed(error) from None
        self._socket = socket
        self._reader = asyncio.create_task(self._read(socket), name="crewel-client-websocket")

    async def send(self, payload: list[Fields], timeout: float) -> None:
        """Write the payload; its replies come in frames."""
        body = _encode(payload, self._wiring.limit()).decode()
        socket = self._socket
        if socket is None or socket.closed:
            raise TransportError("the socket is closed")
        try:
            async with asyncio.timeout(timeout):
                await socket.send_str(body)
        except TimeoutError as error:
            raise RequestTimeoutError(f"{self._wiring.place} did not read within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            raise self._wiring.failed(error) from error

    async def close(self) -> None:
        """Close the socket and end its reader; requests that wait for a reply fail."""
        # Forgotten only once it is done: if this is cancelled half-way, the next close takes up the rest.
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            self._reader = None
            self._wiring.lost(TransportError("the socket was closed"))
        if self._socket is not None:
            await self._socket.close()
            self._socket = None

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        error = TransportError("the socket was closed")
        try:
            while (frame := await socket.receive()).type not in _ENDS:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._wiring.receive(_decode(frame.data), False)
                elif frame.type is aiohttp.WSMsgType.ERROR:  # then aiohttp closes the socket
                    raise _unreadable(frame.data, self._wiring.max_bytes)
            error = _end_of(socket, frame)
        except TransportError as malformed:
            error = malformed
            await socket.close(code=aiohttp.WSCloseCode.INVALID_TEXT)
        except Exception as fault:
            # The reader is the only one to notice: what it cannot handle must not leave requests waiting.
            log.exception("a received frame could not be processed")
            error = TransportError(f"a received frame could not be processed: {fault}")
        finally:
            self._wiring.lost(error)  # first: to close takes up to a second, in which nothing may be sent
            await socket.close()


def _unreadable(fault: object, max_bytes: int) -> TransportError:
    """The error for a frame of the server that this client does not take."""
    if isinstance(fault, aiohttp.WebSocketError) and fault.code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
        return TransportError(f"the server sent more than {max_bytes} bytes in one message (max_bytes)")
    return TransportError(f"the server sent a frame that cannot be read: {fault}")


def _end_of(socket: aiohttp.ClientWebSocketResponse, last: aiohttp.WSMessage) -> TransportError:
    fault = socket.exception()
    if fault is not None:
        return TransportError(f"the socket broke: {fault}")
    if last.type is not aiohttp.WSMsgType.CLOSE:
        return TransportError("the socket ended without a close frame")
    if last.data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
        return SocketClosedError(last.data, "a message was larger than the server takes")
    return SocketClosedError(last.data, str(last.extra or ""))
