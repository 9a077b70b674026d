"""JSON in and out: bytes to a list of elements, values to bytes, ready parts to one payload."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import orjson

from crewel.errors import Fault, PayloadError

_NO_NUMBER = re.compile(r"NaN|Infinity")
_HANDSHAKE = ("/meta/handshake", "/meta/handshake/")  # a trailing slash names the same channel


def decode(body: bytes | str, *, max_messages: int, max_depth: int) -> list[Any]:
    """The elements of one payload: a JSON array, or a bare object as a list of one. An element need not be an object;
    that is one message's fault and not the payload's. `max_depth` counts levels of arrays and objects, the batch's own
    included. Raises PayloadError."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise PayloadError(Fault.MALFORMED, _where(error, body)) from None
    if type(value) is dict:
        value = [value]
    elif type(value) is not list:
        raise PayloadError(Fault.EMPTY if value is None else Fault.MALFORMED)
    if not value:
        raise PayloadError(Fault.EMPTY)
    if len(value) > 1:
        check_batch(value, max_messages=max_messages)
    # What is nested so deep has that many brackets on either side; most bodies are shorter than they would be.
    if len(body) > 2 * max_depth - 2 and _openings(body) >= max_depth and _depth(value) > max_depth:
        raise PayloadError(Fault.TOO_DEEP)
    return value


def check_batch(elements: list[Any], *, max_messages: int) -> None:
    """Raises PayloadError if these cannot be processed together: too many, or a handshake that is not alone."""
    if len(elements) > max_messages:
        raise PayloadError(Fault.TOO_MANY)
    if len(elements) > 1 and any(is_handshake(element) for element in elements):
        raise PayloadError(Fault.HANDSHAKE_IN_BATCH)


def encode(value: Any) -> bytes:
    """The JSON of one message. Raises TypeError for what JSON cannot say."""
    return orjson.dumps(value)


def reread(wire: bytes) -> dict[str, Any]:
    """The message that `encode` made this JSON of."""
    fields: dict[str, Any] = orjson.loads(wire)
    return fields


def join(parts: Iterable[bytes]) -> bytes:
    """One payload of ready messages: always an array."""
    return b"[" + b",".join(parts) + b"]"


def is_handshake(element: object) -> bool:
    """Whether this element asks for a session."""
    return isinstance(element, dict) and element.get("channel") in _HANDSHAKE


def _where(error: orjson.JSONDecodeError, body: bytes | str) -> str:
    """What the parser did not take, and where. Numbers that are none are named: many writers of JSON make them."""
    text = body if isinstance(body, str) else body.decode(errors="replace")
    word = _NO_NUMBER.match(text, error.pos)
    return f"{word[0]} is no number of JSON, character {error.pos}" if word else f"{error.msg}, character {error.pos}"


def _openings(body: bytes | str) -> int:
    # The depth at most (a bare object's batch not counted), for next to nothing; only what has many brackets is walked.
    if isinstance(body, str):
        return body.count("[") + body.count("{")
    return body.count(b"[") + body.count(b"{")


def _depth(value: Any) -> int:
    depth = 0
    level: list[Any] = [value]
    while level:
        depth += 1
        level = [child for parent in level for child in _children(parent) if isinstance(child, dict | list)]
    return depth


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
