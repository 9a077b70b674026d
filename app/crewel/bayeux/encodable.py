"""What of a value JSON cannot say, and where in the value it stands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import orjson

_DEPTH: Final = 254
"""How deeply orjson nests."""
_KINDS: Final = (bytes, bytearray, memoryview)


def encoded(value: Any, name: str) -> bytes:
    """The JSON of a value. Raises TypeError for what JSON cannot say, naming it and its place below `name`: orjson says
    `null` for numbers that are none."""
    try:
        wire = orjson.dumps(value)
    except TypeError as error:
        raise TypeError(not_encodable(value, name) or f"{name}: {error}") from None
    # Hardly any message has a null in it, so that hardly any is walked through.
    if b"null" in wire and (fault := not_encodable(value, name)):
        raise TypeError(fault)
    return wire


def not_encodable(value: Any, name: str = "") -> str | None:
    """What JSON cannot say of the value, such as `data.price[2] is NaN, which JSON cannot say`; None: nothing."""
    level = [(name, value)]
    for _ in range(_DEPTH + 2):
        if not level:
            return None
        for path, each in level:
            fault = _fault(each)
            if fault:
                return f"{path or 'it'} is {fault}, which JSON cannot say"
        level = [child for path, each in level for child in _children(path, each)]
    return f"{name or 'it'} is nested more than {_DEPTH} deep, or contains itself"


def _fault(value: Any) -> str | None:
    """What is wrong with this value itself, whatever is in it."""
    if isinstance(value, float):
        return None if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, _KINDS):
        return f"{len(value)} bytes"
    if isinstance(value, dict):
        key = next((key for key in value if not isinstance(key, str)), None)
        return None if key is None else f"an object with the key {key!r:.40}"
    if isinstance(value, list | tuple) or dataclasses.is_dataclass(value) or isinstance(value, Enum):
        return None
    try:
        orjson.dumps(value)
    except TypeError:
        if isinstance(value, int):
            return "an integer of more than 64 bits"
        return "text that is no Unicode" if isinstance(value, str) else f"a {type(value).__name__}"
    return None


def _children(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Enum):
        yield path, value.value
    elif isinstance(value, dict):
        for key, each in value.items():
            plain = key.isidentifier()
            yield (f"{path}.{key}" if path else key) if plain else f"{path}[{key!r:.40}]", each
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield f"{path}[{place}]", each
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield f"{path}.{field.name}", getattr(value, field.name)
