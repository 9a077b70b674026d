"""Request bodies: every form in which clients send messages over HTTP, and the limits on them."""

from __future__ import annotations

import asyncio
import codecs
import re
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from crewel.bayeux.codec import check_batch, decode, too_many
from crewel.errors import Fault, PayloadError
from crewel.settings import Settings
from crewel.transports.http_connection import Connection

_FORM = "application/x-www-form-urlencoded"
MAX_LENGTH_DIGITS = 18
"""Digits of a `Content-Length` that is looked at; one of more says nothing that could be accepted."""

_PLAIN = ("", "identity")  # values of Content-Encoding for a body that is sent as it is
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^";\s]*)', re.IGNORECASE)

# Real character sets by their codec's name. Python has codecs that no document is written in, some of them slow enough to
# be a weapon (punycode, idna).
_CHARSETS = ("utf-16", "utf-32", "ascii", "iso8859", "cp", "koi8", "shift_jis", "euc_", "gb", "big5")


async def read_body(request: web.Request, settings: Settings) -> bytes:
    """The body. Raises PayloadError if it is compressed or larger than `bayeux.max_message_bytes`, before it is read where
    its length is announced, or does not arrive within `http.body_timeout_ms`."""
    _refuse_coded(request)
    # What is announced as too large is refused before it is sent.
    limit = settings.bayeux.max_message_bytes
    announced = request.headers.get("Content-Length", "")
    if len(announced) > MAX_LENGTH_DIGITS:  # Python reads no number of thousands of digits
        raise too_large(settings)
    if announced and int(announced) > limit:
        raise too_large(settings)
    try:
        async with asyncio.timeout(settings.http.body_timeout_ms / 1000):
            chunks, size = [], 0
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > limit:
                    raise too_large(settings)
                chunks.append(chunk)
    except TimeoutError:
        raise PayloadError(Fault.TOO_SLOW) from None
    except (HttpProcessingError, web.RequestPayloadError, ConnectionError):  # the last: the peer has gone
        request.content.feed_eof()  # else aiohttp reads on, and logs as its own failure what is answered here
        raise PayloadError(Fault.MALFORMED) from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _refuse_coded(request: web.Request) -> None:
    """Raise PayloadError for a body that says it is compressed. None is ever inflated: a thousandth of what would come of
    it is all that its sender pays for."""
    coding = ",".join(request.headers.getall("Content-Encoding", ())).strip().lower()
    if coding in _PLAIN:
        return
    if not isinstance(request.protocol, Connection):
        request.content.feed_eof()  # in another server aiohttp inflates what it reads, so it must read no more
    raise PayloadError(Fault.CODED)


def too_large(settings: Settings) -> PayloadError:
    """The error for a body or frame beyond the limit, with the limit and its name."""
    return PayloadError(Fault.TOO_LARGE, f"bayeux.max_message_bytes is {settings.bayeux.max_message_bytes}")


@lru_cache(maxsize=64)
def media_type(header: str) -> tuple[str, str | None]:
    """The media type and the charset of a `Content-Type`, in lower case."""
    charset = _CHARSET.search(header)
    return header.partition(";")[0].strip().lower(), charset[1].lower() if charset else None


def elements_of(body: bytes, media_type: str, charset: str | None, settings: Settings) -> list[Any]:
    """The elements of a POST. The media type decides little: clients send JSON under any name (`curl -d` under that of a
    form), and forms as text/plain. Raises PayloadError."""
    text = _text(body, charset)
    if _is_form(text, media_type):
        return _elements_of_form(text, settings)
    return _decode(text, settings)


def elements_of_values(values: list[str], settings: Settings) -> list[Any]:
    """The elements of `message` parameters, which may repeat; each is an object or an array. Raises PayloadError."""
    if not values:
        raise PayloadError(Fault.EMPTY)
    elements = [element for value in values for element in _decode(value, settings)]
    check_batch(elements, max_messages=settings.bayeux.max_batch_messages)
    return elements


def _decode(text: bytes | str, settings: Settings) -> list[Any]:
    return decode(text, max_messages=settings.bayeux.max_batch_messages, max_depth=settings.bayeux.max_depth)


def _elements_of_form(text: bytes | str, settings: Settings) -> list[Any]:
    separators = text.count(b"&") if isinstance(text, bytes) else text.count("&")
    count, most = separators + 1, settings.bayeux.max_batch_messages
    if count > most:  # before they are read
        raise too_many(count, most)
    try:
        form = text.decode() if isinstance(text, bytes) else text
        fields = parse_qs(form, strict_parsing=True, errors="strict")
    except ValueError:
        raise PayloadError(Fault.MALFORMED) from None
    return elements_of_values(fields.get("message", []), settings)


def _is_form(text: bytes | str, media_type: str) -> bool:
    if isinstance(text, str):
        return text.startswith("message=") or (media_type == _FORM and not text.lstrip().startswith(("[", "{")))
    return text.startswith(b"message=") or (media_type == _FORM and not text.lstrip().startswith((b"[", b"{")))


def _text(body: bytes, charset: str | None) -> bytes | str:
    """The body as the parser takes it: UTF-8 as it is, other charsets decoded. Raises PayloadError."""
    if charset is None:
        return body
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):  # the latter for what cannot be a name at all
        raise PayloadError(Fault.CHARSET) from None
    if name == "utf-8":
        return body
    if not name.startswith(_CHARSETS):
        raise PayloadError(Fault.CHARSET)
    try:
        return str(body, name)
    except UnicodeError:
        raise PayloadError(Fault.MALFORMED) from None
