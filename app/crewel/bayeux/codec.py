"""JSON in and out: bytes to a list of elements, values to bytes, ready parts to one payload. It says too what of a value JSON
cannot say, and where in the value that stands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Final

import orjson

from crewel.bayeux.flaws import depth_of, malformed, taken_apart, too_deep, where
from crewel.bayeux.numbers import fragment, may_have_exact, parse, read_exactly
from crewel.errors import Fault, PayloadError

_MAX_DEPTH: Final = 254
"""How deeply orjson nests."""
_BINARY: Final = (bytes, bytearray, memoryview)
_SIMPLE: Final = frozenset((str, int, bool, type(None)))
"""Types of values that nest nothing, and that orjson reads exactly: an integer beyond 64 bits becomes a float."""
_SIMPLE_DEPTH: Final = 3
"""The batch, the message, and its `data`."""
HANDSHAKE_NAMES: Final = ("/meta/handshake", "/meta/handshake/")
"""A trailing slash names the same channel."""


encode: Final[Callable[[Any], bytes]] = partial(orjson.dumps, default=fragment)
"""Returns the JSON of one message. Raises TypeError for what JSON cannot say."""
encode_plain: Final[Callable[[Any], bytes]] = orjson.dumps
"""Returns the JSON of one message in half of the time of `encode`. Raises TypeError for an exact number too: `encode` knows
then."""


def decode(body: bytes | str, max_messages: int, max_depth: int) -> list[Any]:
    """The elements of one payload: a JSON array, or a bare object as a list of one. An element need not be an object;
    that is one message's fault and not the payload's. `max_depth` counts levels of arrays and objects, the batch's own
    included. Raises PayloadError."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _malformed(error, body, max_messages, max_depth) from None
    if type(value) is not list:
        if type(value) is not dict:
            raise PayloadError(Fault.EMPTY if value is None else Fault.MALFORMED)
        value = [value]
    # A batch of one, which nearly all are, needs no check.
    if len(value) != 1:
        if not value:
            raise PayloadError(Fault.EMPTY)
        check_batch(value, max_messages=max_messages)
        value = _with_exact(body, value)
    elif type(first := value[0]) is dict and "data" in first:  # connects, which are most of what comes, have none
        if max_depth >= _SIMPLE_DEPTH and _is_simple(first):
            return value
        value = _with_exact(body, value)
    # What is nested so deep has that many brackets on either side; most bodies are shorter than they would be.
    if len(body) >= 2 * max_depth and _openings(body) >= max_depth and depth_of(value) > max_depth:
        raise too_deep(value, max_depth)
    return value


def _with_exact(body: bytes | str, value: list[Any]) -> list[Any]:
    """The value of the body, which orjson has read, with its exact numbers."""
    if not may_have_exact(body):
        return value
    elements: list[Any] = read_exactly(body, value)
    return elements


def _is_simple(message: dict[str, Any]) -> bool:
    """Whether the values of this message are simple ones and objects of these. Then orjson has changed no number, and nothing
    is nested deeper than `_SIMPLE_DEPTH`."""
    for value in message.values():
        if type(value) is str:  # as most are
            continue
        if type(value) is dict:
            for part in value.values():
                if type(part) not in _SIMPLE:
                    return False
        elif type(value) not in _SIMPLE:
            return False
    return True


def too_many(count: int, max_messages: int) -> PayloadError:
    """The error for so many messages in one payload, with the limit and its name."""
    return PayloadError(Fault.TOO_MANY, f"{count}; bayeux.max_batch_messages is {max_messages}")


def check_batch(elements: list[Any], *, max_messages: int) -> None:
    """Raises PayloadError if these cannot be processed together: too many, or a handshake that is not alone."""
    if len(elements) > max_messages:
        raise too_many(len(elements), max_messages)
    if len(elements) > 1 and any(is_handshake(element) for element in elements):
        raise PayloadError(Fault.HANDSHAKE_IN_BATCH)


def reread(wire: bytes) -> dict[str, Any]:
    """The message that `encode` made this JSON of."""
    fields: dict[str, Any] = parse(wire)
    return fields


def join(parts: Iterable[bytes]) -> bytes:
    """One payload of ready messages: always an array."""
    return b"[" + b",".join(parts) + b"]"


def is_handshake(element: object) -> bool:
    """Whether this element asks for a session."""
    return isinstance(element, dict) and element.get("channel") in HANDSHAKE_NAMES


def _malformed(error: orjson.JSONDecodeError, body: bytes | str, max_messages: int, max_depth: int) -> PayloadError:
    parts = taken_apart(body)
    if len(parts) > 1:
        check_batch([element for element, _ in parts], max_messages=max_messages)
    return malformed(parts, where(error, body), max_depth)


def _openings(body: bytes | str) -> int:
    # The depth at most (a bare object's batch not counted), for next to nothing; only what has many brackets is walked.
    if isinstance(body, str):
        return body.count("[") + body.count("{")
    return body.count(b"[") + body.count(b"{")


def encoded(value: Any, name: str) -> bytes:
    """The JSON of a value. Raises TypeError for what JSON cannot say, naming it and its place below `name`: orjson says
    `null` for numbers that are none."""
    try:
        wire = encode(value)
    except TypeError as error:
        raise TypeError(not_encodable(value, name) or f"{name}: {error}") from None
    # Hardly any message has a null in it, so that hardly any is walked through.
    if b"null" in wire and (fault := not_encodable(value, name)):
        raise TypeError(fault)
    return wire


def not_encodable(value: Any, name: str = "") -> str | None:
    """What JSON cannot say of the value, such as `data.price[2] is NaN, which JSON cannot represent`; None: nothing."""
    level = [(name, value)]
    for _ in range(_MAX_DEPTH + 2):
        if not level:
            return None
        for path, each in level:
            fault = _fault(each)
            if fault:
                return f"{path or 'it'} is {fault}, which JSON cannot represent"
        level = [child for path, each in level for child in _parts(path, each)]
    return f"{name or 'it'} is nested more than {_MAX_DEPTH} deep, or contains itself"


def _fault(value: Any) -> str | None:
    """What is wrong with this value itself, whatever is in it."""
    if isinstance(value, float):
        return None if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, _BINARY):
        return f"{len(value)} bytes"
    if isinstance(value, dict):
        key = next((key for key in value if not isinstance(key, str)), None)
        return None if key is None else f"an object with the key {key!r:.40}"
    if isinstance(value, list | Enum) or type(value) is tuple or _is_record(value):
        return None
    try:
        orjson.dumps(value)
    except TypeError:
        if isinstance(value, int):
            return "an integer of more than 64 bits"
        kind = type(value).__name__
        return (
            "text that is not valid Unicode"
            if isinstance(value, str)
            else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        )
    return None


def _is_record(value: Any) -> bool:
    """Whether this is an instance of a dataclass, and not the class itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Enum):
        yield path, value.value
    elif isinstance(value, dict):
        for key, each in value.items():
            plain = key.isidentifier()
            yield (f"{path}.{key}" if path else key) if plain else f"{path}[{key!r:.40}]", each
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield f"{path}[{place}]", each
    elif _is_record(value):
        for field in dataclasses.fields(value):
            yield f"{path}.{field.name}", getattr(value, field.name)
