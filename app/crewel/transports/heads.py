"""Request heads of the fast lane: parsed by httptools, and kept as the answers to what the lane asks of them.

A client sends the same head again and again, so a connection remembers its last one and compares bytes before it parses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import httptools
from multidict import CIMultiDict

from crewel.transports.bodies import media_type

if TYPE_CHECKING:
    from crewel.transports.endpoint import Endpoint
    from crewel.transports.origins import Client

__all__ = ["Head", "read_head"]

_TEXT: Final = ("utf-8", "surrogateescape")  # as aiohttp reads header values: what is no UTF-8 goes through unchanged
_LINES: Final = b"Content-Type: application/json\r\nCache-Control: no-cache, no-store\r\n"

# A request with one of these needs more than "read so many bytes and answer": aiohttp serves it.
_UNUSUAL: Final = frozenset((b"transfer-encoding", b"expect", b"content-encoding", b"upgrade"))


class Head:
    """One head: what it says of the body and of the client, and the lines that begin every response to it."""

    __slots__ = ("browser", "charset", "client", "is_json", "keep_alive", "length", "lines", "media_type", "raw")

    def __init__(self, endpoint: Endpoint, raw: bytes, headers: Mapping[str, str], length: int, client: Client) -> None:
        self.raw = raw
        self.length = length
        """The length of the body in bytes."""
        self.client = client
        self.keep_alive = True
        self.browser = endpoint.cookie.read(headers)
        self.media_type, self.charset = media_type(headers.get("content-type", ""))
        self.is_json = self.media_type == "application/json" and self.charset in (None, "utf-8")
        """Whether the body can be nothing but JSON in UTF-8."""
        self.lines = _LINES
        if "origin" in headers:
            cors = endpoint.origins.cors(headers)
            self.lines += "".join(f"{name}: {value}\r\n" for name, value in cors.items()).encode(*_TEXT)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; few ask for them, so they are parsed again instead of kept."""
        collector = _Collector()
        httptools.HttpRequestParser(collector).feed_data(self.raw)
        return CIMultiDict(collector.text())


class _Collector:
    """The callbacks of httptools."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.is_unusual = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self.headers or name in _UNUSUAL:
            self.is_unusual = True
        self.headers[name] = value

    def text(self) -> dict[str, str]:
        """The headers by their names in lower case."""
        return {name.decode(): value.decode(*_TEXT) for name, value in self.headers.items()}


def read_head(endpoint: Endpoint, raw: bytes, remote: str | None, scheme: str) -> Head | None:
    """The head, or None if aiohttp has to serve the request: it is no plain HTTP/1.1 POST of a known length, its origin is
    refused, or it is no HTTP at all. So whatever is refused is refused in one place."""
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    try:
        parser.feed_data(raw)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    length = collector.headers.get(b"content-length", b"")
    if (
        collector.is_unusual
        or b"host" not in collector.headers
        or parser.get_http_version() != "1.1"
        or not length.isdigit()
    ):
        return None
    headers = collector.text()
    client = endpoint.origins.client(headers, remote, scheme)
    if not endpoint.origins.allows(headers, client):
        return None
    head = Head(endpoint, raw, headers, int(length), client)
    head.keep_alive = parser.should_keep_alive()
    return head
