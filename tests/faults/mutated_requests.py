"""Requests over HTTP with one message each, wrong in none, one or some of their parts."""

from __future__ import annotations

import random
import re

STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) |\"id\":\"(\w+)\"")
"""What is compared: the status of each answer, and the ids of the messages that are answered with it."""
_TARGETS = (
    "/cometd",
    "/cometd",
    "/cometd",
    "/cometd/",
    "/cometd?a=b",
    "http://localhost/cometd",
    "//cometd",
    "/c%6fmetd",
    "/none",
)
_METHODS = ("POST", "POST", "POST", "POST", "GET", "post", "HEAD", "OPTIONS", "PUT", "P\tOST")
_VERSIONS = (
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/1.2",
    "HTTP/2.0",
    "http/1.1",
    "",
)
_NAMES = (
    "Content-Length: {}",
    "content-length:{}",
    "Content-Length : {}",
    "Content-Length:\t{}",
    " Content-Length: {}",
)
_SIZES = ("{}", "{}", "{}", "{}", "+{}", "-{}", "0{}", "0x{}", "{},{}", "{} {}", "{}.0", "{}\x0b", "")
_CODINGS = (
    *(
        "Transfer-Encoding: chunked",
        "transfer-encoding:chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: xchunked",
    ),
    *(
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: gzip, chunked",
    ),
    *(
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding: chunked\x00",
        "Transfer-Encoding: CHUNKED",
        "Transfer-Encoding:",
    ),
    *("Transfer-Encoding:\r\n chunked", 'Transfer-Encoding: "chunked"', "Transfer_Encoding: chunked"),
)
_OTHERS = (
    *("Connection: close", "Connection: keep-alive", "Connection: close, keep-alive", "Connection: Content-Length"),
    *("Host: localhost", "Host: localhost:80", "Host:", "Host: a.example", "Expect: 100-continue", "Expect: x"),
    *("X: a\r\n b", "X\x00: a", "X: \x00", "X: \r", "X: a\n", "X", ": a", "X Y: a", "\x0bX: a", "X: \u00e9"),
    *("Content-Encoding: gzip", "Content-Type: text/plain", "Upgrade: h2c", "Cookie: BAYEUX_BROWSER=b1; a=b"),
)  # fmt: skip
_ENDS = ("\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n", "\n\r\n")


def requests(rng: random.Random, number: str) -> list[bytes]:
    """One to three requests for one connection, whose messages have this number and their place as an id."""
    return [_request(rng, f"{number}{each}") for each in range(rng.randrange(1, 4))]


def _request(rng: random.Random, number: str) -> bytes:
    """A request with one message, wrong in none, one or some of its parts."""
    body = b'[{"channel":"/a","clientId":"none","id":"%b"}]' % number.encode()
    is_odd = rng.random() < 0.5
    lines = ["Host: localhost"]
    if is_odd and rng.random() < 0.4:
        lines.append(rng.choice(_CODINGS))
        if rng.random() < 0.7:
            body = _chunked(rng, body)
    if not is_odd or rng.random() < 0.8:
        size = str(len(body) + (rng.choice((-1, 1, 30)) if is_odd and rng.random() < 0.1 else 0))
        form = rng.choice(_SIZES) if is_odd else "{}"
        name = rng.choice(_NAMES) if is_odd and rng.random() < 0.2 else _NAMES[0]
        for _ in range(2 if is_odd and rng.random() < 0.1 else 1):
            lines.append(name.format(form.replace("{}", size)))
    if is_odd and rng.random() < 0.5:
        lines.append(rng.choice(_OTHERS))
    rng.shuffle(lines)
    first = ("POST", "/cometd", "HTTP/1.1")
    if is_odd and rng.random() < 0.3:
        first = rng.choice(_METHODS), rng.choice(_TARGETS), rng.choice(_VERSIONS)
    ends = [rng.choice(_ENDS) if is_odd and rng.random() < 0.1 else "\r\n" for _ in range(len(lines) + 2)]
    return "".join(map(str.__add__, (" ".join(first), *lines, ""), ends)).encode() + body


def _chunked(rng: random.Random, body: bytes) -> bytes:
    """The body in chunks, which may be wrong as well."""
    place = rng.randrange(1, len(body))
    sizes = [f"{len(part):x}".encode() for part in (body[:place], body[place:])]
    if rng.random() < 0.3:
        sizes[rng.randrange(2)] += rng.choice((b";a=b", b" ", b"\t", b"\x0b", b";\n", b"_", b"0", b"\r"))
    end = rng.choice(
        (b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: a\r\n\r\n", b"0\n\n", b"0\r\n", b"00\r\n\r\n", b"")
    )
    return b"".join((sizes[0], b"\r\n", body[:place], b"\r\n", sizes[1], b"\r\n", body[place:], b"\r\n", end))
