"""The `long-polling` transport: one POST a payload, the reply in its response.

Connects are held by the server and have a connection of their own. All other
payloads take turns on a second one, so that they arrive in the order they
were sent in.
"""

from __future__ import annotations

import asyncio

import aiohttp

from crewel.bayeux.message import Fields
from crewel.client.errors import RequestTimeoutError, TransportError
from crewel.client.message import CONNECT
from crewel.client.transports import Wiring, decode, encode, reason, too_large

_HEADERS = {"Content-Type": "application/json"}


class LongPolling:
    """POSTs to the endpoint, whatever the message: every server answers there."""

    name = "long-polling"
    streams = False

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        # Not a guard of shared state: the lock is the lane itself. It is fair, a cancelled waiter leaves it,
        # and each holder is bounded by its time-out.
        self._lane = asyncio.Lock()

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
        body = encode(payload, self._wiring.limit())
        try:
            async with asyncio.timeout(timeout):
                answer = await self._exchange(body)
        except TimeoutError as error:
            raise RequestTimeoutError(f"no answer from {self._wiring.url} within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"{self._wiring.url}: {reason(error)}") from error
        self._wiring.receive(decode(answer), True)

    async def _exchange(self, body: bytes) -> bytes:
        async with self._wiring.http.post(self._wiring.url, data=body, headers=_HEADERS) as response:
            if response.status == 413:
                raise too_large(f"{self._wiring.url} refused {len(body)} bytes", self._wiring.limit())
            if response.status != 200:
                raise TransportError(f"{self._wiring.url} answered {response.status} {response.reason}")
            return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        # A body cut short raises ClientPayloadError: it is never taken for a short answer.
        parts = bytearray()
        async for part in response.content.iter_any():
            parts += part
            if len(parts) > self._wiring.max_bytes:
                raise TransportError(f"the answer is larger than {self._wiring.max_bytes} bytes")
        return bytes(parts)
