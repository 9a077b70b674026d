"""Request heads of the fast lane: parsed by httptools, and kept as the answers to what the lane asks of them.

A client sends the same head again and again, so a connection remembers its last one and compares bytes before it parses.
Many clients send the same head with different cookies, so the lane remembers what the last ones said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple

import httptools
from multidict import CIMultiDict

from crewel.settings.server_settings import Bayeux
from crewel.transports.bodies import MAX_LENGTH_DIGITS, media_type
from crewel.transports.cookies import BrowserCookie
from crewel.transports.forwarded import Client, TrustedProxies
from crewel.transports.origins import Hosts, Origins
from crewel.transports.request_paths import is_plain

_TEXT: Final = ("utf-8", "surrogateescape")  # as aiohttp reads header values: what is no UTF-8 goes through unchanged
_LINES: Final = b"Content-Type: application/json\r\nCache-Control: no-cache, no-store\r\n"

_COOKIE: Final = b"\r\nCookie: "
_KEY: Final = b"\r\nSec-WebSocket-Key: "
_VALUES_AT: Final = {name: len(name) for name in (_COOKIE, _KEY)}
_NAME_OF_KEY: Final = b"sec-websocket-key"
_KEYS: Final = re.compile(r"[A-Za-z0-9+/]{22}==", re.ASCII)
_KNOWN_HEADS: Final = 256
_KNOWN_STATUSES: Final = frozenset(int(status) for status in HTTPStatus)
_KNOWN_LENGTH: Final = 2048  # bytes; with the number, the bound of what foreign heads can make the server remember

# A request with one of these needs more than "read so many bytes and answer": aiohttp serves it.
_UNUSUAL: Final = frozenset((b"transfer-encoding", b"expect", b"content-encoding", b"upgrade"))
# Nor is an upgrade with one of these, or with a body, answered here.
_NO_UPGRADE: Final = _UNUSUAL - {b"upgrade"} | {b"content-length"}


class Head:
    """One head: what it says of the body and of the client, and the lines that begin every response to it."""

    __slots__ = ("browser", "charset", "client", "is_json", "keep_alive", "length", "lines", "media_type", "raw")

    def __init__(
        self, raw: bytes, browser: str | None, length: int, client: Client, content_type: str, *, keep_alive: bool
    ) -> None:
        self.raw = raw
        self.browser = browser
        self.length = length
        """The length of the body in bytes."""
        self.client = client
        self.keep_alive = keep_alive
        self.media_type, self.charset = media_type(content_type)
        self.is_json = self.media_type == "application/json" and self.charset in (None, "utf-8")
        """Whether the body can be nothing but JSON in UTF-8."""
        self.lines = _LINES

    def of(self, raw: bytes, browser: str | None) -> Head:
        """The head that says the same, but for its cookie."""
        head: Head = Head.__new__(Head)
        head.raw = raw
        head.browser = browser
        head.length = self.length
        head.client = self.client
        head.keep_alive = self.keep_alive
        head.media_type = self.media_type
        head.charset = self.charset
        head.is_json = self.is_json
        head.lines = self.lines
        return head

    def recognise(self, browser: str) -> None:
        """Share the session's text of its cookie."""
        self.browser = browser

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; few ask for them, so they are parsed again instead of kept."""
        return headers_of(self.raw)


class Upgrade(NamedTuple):
    """The head of a request for a WebSocket, and what it says of the client."""

    browser: str | None
    client: Client
    key: str
    """`Sec-WebSocket-Key`; empty if it is not what this header should be."""
    plain: bytes
    """The head less its cookie and key: what it has in common with those of other clients of its kind."""


def headers_of(raw: bytes) -> Mapping[str, str]:
    """The headers of this head, which was parsed before."""
    collector = _Collector()
    with suppress(httptools.HttpParserUpgrade):
        httptools.HttpRequestParser(collector).feed_data(raw)
    return CIMultiDict((name.decode(), value.decode(*_TEXT)) for name, value in collector.lines)


class Heads:
    """Reads heads. The clients of one kind send the same few, but for their cookies: each of those is parsed once."""

    def __init__(
        self,
        bayeux: Bayeux,
        cookie: BrowserCookie,
        bound_page: Callable[[Mapping[str, str], Client], str | None],
        hosts: Hosts,
        origins: Origins,
        proxies: TrustedProxies,
    ) -> None:
        """`bound_page` returns what stands for the browser of a request without the cookie."""
        self._cookie = cookie
        self._bound_page = bound_page
        self._hosts = hosts
        self._origins, self._proxies = origins, proxies
        self._post = f"POST {bayeux.path}".encode()
        self._posts = tuple(self._post + end for end in (b" ", b"/", b"?"))
        self._get = f"GET {bayeux.path}".encode() if "websocket" in bayeux.transports else self._post
        self._known: dict[tuple[bytes, str | None, str], Head] = {}
        """Heads without a cookie, by all that they were made from. Their browser is the page, if it is of another site."""
        self._upgrading: dict[tuple[bytes, str | None, str], Client] = {}
        """The clients of upgrades, by all that they were made from."""

    def is_bayeux(self, data: bytes) -> bool | None:
        """Whether these bytes begin a POST to the Bayeux path, or a GET (an upgrade, perhaps); None if there are too few."""
        if data.startswith(self._posts):
            return True
        target = self._get if data.startswith(b"G") else self._post
        if len(data) <= len(target):
            return None if target.startswith(data) else False
        return data.startswith(target) and data[len(target)] in b" /?"

    def read(self, raw: bytes, remote: str | None, scheme: str) -> Head | None:
        """The head, or None if aiohttp has to serve the request. It serves what is no plain HTTP/1.1 POST of a known length, or
        no HTTP at all, or whose path, host or origin is refused. So whatever is refused is refused in one place."""
        plain, cookie = _without(_COOKIE, raw)
        known = self._known.get((plain, remote, scheme))
        if known is not None:
            return known if cookie is None else known.of(raw, self._cookie.value(cookie) or known.browser)
        parsed = self._parse(raw, remote, scheme)
        if parsed is None:
            return None
        head, page = parsed
        if len(plain) <= _KNOWN_LENGTH and (cookie is not None or b"cookie" not in raw.lower()):
            # Dropping all is simpler than choosing, and what is in use is back after one request.
            if len(self._known) >= _KNOWN_HEADS:
                self._known.clear()
            self._known[plain, remote, scheme] = head.of(plain, page)
        return head

    def upgrade(self, raw: bytes, remote: str | None, scheme: str) -> Upgrade | None:
        """The head of an upgrade, or None if aiohttp has to answer it: it is refused, repeats a header, or is none."""
        less_cookie, cookie = _without(_COOKIE, raw)
        plain, key = _without(_KEY, less_cookie)
        # As with other heads: in storms, clients of one kind come from few addresses, those of proxies.
        client = self._upgrading.get((plain, remote, scheme))
        if client is not None and key is not None and _KEYS.fullmatch(key):
            return Upgrade(None if cookie is None else self._cookie.value(cookie), client, key, plain)
        upgrade = self._parse_upgrade(raw, remote, scheme, plain)
        lowered = plain.lower()
        if (
            upgrade is not None
            and len(plain) <= _KNOWN_LENGTH
            and b"cookie" not in lowered
            and _NAME_OF_KEY not in lowered
        ):
            if len(self._upgrading) >= _KNOWN_HEADS:
                self._upgrading.clear()
            self._upgrading[plain, remote, scheme] = upgrade.client
        return upgrade

    def _parse_upgrade(self, raw: bytes, remote: str | None, scheme: str, plain: bytes) -> Upgrade | None:
        collector = _Collector()
        parser = httptools.HttpRequestParser(collector)
        try:
            parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            return None
        else:
            return None
        headers = collector.headers
        if (
            collector.repeats
            or not is_plain(collector.target)
            or not raw.isascii()
            or b"host" not in headers
            or parser.get_http_version() != "1.1"
            or not _NO_UPGRADE.isdisjoint(headers)
        ):
            return None
        text = collector.text()
        client = self._proxies.client(text, remote, scheme)
        if not (self._hosts.allows(text["host"], remote) and self._origins.allows(text, client)):
            return None
        key = text.get("sec-websocket-key", "")
        return Upgrade(self._cookie.read(text), client, key if _KEYS.fullmatch(key) else "", plain)

    def _parse(self, raw: bytes, remote: str | None, scheme: str) -> tuple[Head, str | None] | None:
        """The head, and what stands for the browser if no cookie does."""
        collector = _Collector()
        parser = httptools.HttpRequestParser(collector)
        try:
            parser.feed_data(raw)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        length = collector.headers.get(b"content-length", b"")
        if (
            collector.repeats
            or not is_plain(collector.target)
            or not _UNUSUAL.isdisjoint(collector.headers)
            or b"host" not in collector.headers
            or parser.get_http_version() != "1.1"
            or not length.isdigit()
            or len(length) > MAX_LENGTH_DIGITS
        ):
            return None
        headers = collector.text()
        client = self._proxies.client(headers, remote, scheme)
        if not (self._hosts.allows(headers["host"], remote) and self._origins.allows(headers, client)):
            return None
        cors = self._origins.cors(headers)
        content_type = headers.get("content-type", "")
        page = self._bound_page(headers, client)
        browser = self._cookie.read(headers) or page
        head = Head(raw, browser, int(length), client, content_type, keep_alive=parser.should_keep_alive())
        head.lines += "".join(f"{name}: {value}\r\n" for name, value in cors.items()).encode(*_TEXT)
        return head, page


class _Collector:
    """The callbacks of httptools."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.lines: list[tuple[bytes, bytes]] = []
        self.target = b""

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.lines.append((name, value))
        self.headers[name.lower()] = value

    @property
    def repeats(self) -> bool:
        """Whether a header stands there more than once."""
        return len(self.lines) > len(self.headers)

    def text(self) -> dict[str, str]:
        """The headers by their names in lower case."""
        return {name.decode(): value.decode(*_TEXT) for name, value in self.headers.items()}


def _without(name: bytes, raw: bytes) -> tuple[bytes, str | None]:
    """The head less this header, and its value. The whole head and None if there is none, or none that can be taken out without
    parsing: of printable ASCII, on one line."""
    start = raw.find(name)
    if start < 0:
        return raw, None
    begin = start + _VALUES_AT[name]
    end = raw.find(b"\r\n", begin)
    value = raw[begin:end]
    # A line that begins with white space continues the one before it, which would then be another line.
    if not value.isascii() or raw[end + 2] in b" \t":
        return raw, None
    text = value.decode()
    return (raw[:start] + raw[end:], text) if text.isprintable() else (raw, None)


def status_line(status: int) -> bytes:
    """The first line of a response with this status."""
    phrase = HTTPStatus(status).phrase if status in _KNOWN_STATUSES else "Refused"
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()
