"""What the session needs of a transport, and what it gives to one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import orjson

from crewel.bayeux.codec import encoded
from crewel.bayeux.message import Fields
from crewel.client.errors import MessageTooLargeError, NotEncodableError, TransportError

Receive = Callable[[list[Fields], bool], None]
"""Takes received messages; the flag says that they are one whole response, not a frame of a stream."""

Lost = Callable[[TransportError], None]
"""Called when a connection breaks on which requests may wait."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a transport works with."""

    url: str
    """The endpoint, http or https."""
    http: aiohttp.ClientSession
    receive: Receive
    lost: Lost
    max_bytes: int
    """The largest response or frame that is taken."""
    limit: Callable[[], int | None]
    """The largest payload that the server takes, in bytes, if known."""


class Transport(Protocol):
    """Carries payloads; knows nothing of sessions."""

    name: str
    """The `connectionType`."""
    streams: bool
    """Whether replies come apart from the sending, in frames."""

    async def open(self, timeout: float) -> None:
        """Make it ready to send; nothing if it is. Raises TransportError."""

    async def send(self, payload: list[Fields], timeout: float) -> None:
        """Send one payload. Returns once it is written, or, unless it `streams`, once the whole
        response was received. Raises TransportError."""

    async def close(self) -> None:
        """Let go of the connection. The transport can be opened again."""


def reason(error: Exception) -> str:
    """What to show of a failed connection; the HTTP library's own words hide it behind the address."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        verified = error.certificate_error
        return f"certificate verify failed: {getattr(verified, 'verify_message', '') or verified}"
    if isinstance(error, aiohttp.ClientSSLError):
        # Its errno says nothing; its reason is such as WRONG_VERSION_NUMBER, from a server that does not speak TLS.
        return f"TLS failed: {getattr(error.os_error, 'reason', None) or error}"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        number = error.os_error.errno
        # The resolver's numbers are negative, and os.strerror does not know them.
        return (os.strerror(number) if number > 0 else error.os_error.strerror or str(error)).lower()
    return str(error) or type(error).__name__


def encode(payload: list[Fields], limit: int | None) -> bytes:
    """One payload: always an array.

    Raises:
        NotEncodableError: JSON cannot say what is in one of the messages.
        MessageTooLargeError: it has more bytes than `limit`.
    """
    try:
        parts = [encoded(fields, "") for fields in payload]
    except TypeError as error:
        raise NotEncodableError(str(error)) from None
    body = b"[" + b",".join(parts) + b"]"
    if limit is not None and len(body) > limit:
        raise too_large(f"{_named(payload)} has {len(body)} bytes", limit)
    return body


def too_large(what: str, limit: int | None) -> MessageTooLargeError:
    """The error for what the server does not take for its size."""
    most = "" if limit is None else f" of at most {limit} bytes"
    return MessageTooLargeError(f"{what}: the server takes requests{most} (bayeux.max_message_bytes)")


def _named(payload: list[Fields]) -> str:
    if len(payload) > 1:
        return f"a payload of {len(payload)} messages"
    return f"a message to {payload[0].get('channel')}" if payload else "a payload"


def decode(body: bytes | str) -> list[Fields]:
    """The messages of a response or frame; a bare object is a list of one, elements that are no objects are skipped.

    Raises:
        TransportError: it is not JSON.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise TransportError(f"the answer is not JSON: {error}") from error
    elements = value if isinstance(value, list) else [value]
    return [element for element in elements if isinstance(element, dict)]
