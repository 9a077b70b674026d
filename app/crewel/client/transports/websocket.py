"""The `websocket` transport: one socket, payloads out and frames in.

A task of its own reads the socket from `open` to `close`; a socket that ends
from the other side is reported to the session at once, so that nothing waits for replies
that cannot come.
"""

from __future__ import annotations

import asyncio
import logging

import aiohttp

from crewel.bayeux.message import Fields
from crewel.client.errors import RequestTimeoutError, TransportError, UpgradeRefusedError
from crewel.client.transports import Wiring, decode, encode, reason

log = logging.getLogger("crewel.client")

_CLOSE = aiohttp.ClientWSTimeout(ws_close=1.0)
"""How long a peer may take to answer a close frame."""


class WebSocket:
    """Sends each payload as one text frame."""

    name = "websocket"
    streams = True

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None

    async def open(self, timeout: float) -> None:
        """Make the upgrade, unless the socket is open.

        Raises:
            UpgradeRefusedError: the server answered, but not as a WebSocket.
            TransportError: it did not answer.
        """
        if self._socket is not None and not self._socket.closed:
            return
        await self.close()
        url = self._wiring.url
        try:
            async with asyncio.timeout(timeout):
                socket = await self._wiring.http.ws_connect(url, timeout=_CLOSE, max_msg_size=self._wiring.max_bytes)
        except TimeoutError as error:
            raise RequestTimeoutError(f"no WebSocket from {url} within {timeout:g} s") from error
        except aiohttp.WSServerHandshakeError as error:
            raise UpgradeRefusedError(f"{url} answered {error.status} to the upgrade", error.status) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"{url}: {reason(error)}") from error
        self._socket = socket
        self._reader = asyncio.create_task(self._read(socket), name="crewel-client-websocket")

    async def send(self, payload: list[Fields], timeout: float) -> None:
        """Write the payload; its replies come in frames."""
        body = encode(payload, self._wiring.limit()).decode()
        socket = self._socket
        if socket is None or socket.closed:
            raise TransportError("the socket is closed")
        try:
            async with asyncio.timeout(timeout):
                await socket.send_str(body)
        except TimeoutError as error:
            raise RequestTimeoutError(f"{self._wiring.url} did not read within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            raise TransportError(f"{self._wiring.url}: {reason(error)}") from error

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
            async for frame in socket:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._wiring.receive(decode(frame.data), False)
            error = _end_of(socket)
        except TransportError as malformed:
            error = malformed
            await socket.close(code=aiohttp.WSCloseCode.INVALID_TEXT)
        except Exception as fault:
            # The reader is the only one to notice: what it cannot handle must not leave requests waiting.
            log.exception("a received frame could not be processed")
            error = TransportError(f"a received frame could not be processed: {fault}")
            await socket.close()
        finally:
            self._wiring.lost(error)


def _end_of(socket: aiohttp.ClientWebSocketResponse) -> TransportError:
    fault = socket.exception()
    if fault is not None:
        return TransportError(f"the socket broke: {fault}")
    if socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
        return TransportError("the server closed the socket with code 1009: a message was larger than it takes")
    return TransportError(f"the socket was closed with code {socket.close_code}")
