"""Text frames in their usual form, a few bytes of head and one payload: nearly all frames that come, and all that go.

What comes in any other form (fragments, control frames, pieces of frames, several at once) is read by `frame_reader`. The heads
are made by websockets.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from websockets.frames import Frame, Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:  # where it could not be compiled
    from websockets.utils import apply_mask

_WHOLE_TEXT: Final = 0x81  # the last fragment, and text (RFC 6455, 5.2)
_MASKED: Final = 0x80
_TWO_BYTES: Final = 126  # the length follows in two bytes
_KNOWN_HEADS: Final = 4096


def whole_text(data: bytes, most: int) -> bytes | None:
    """The payload if the data is one whole text frame of a client, of at most so many bytes, and nothing else; None for
    anything else, be it wrong or not."""
    if data[0] != _WHOLE_TEXT or len(data) < 2:
        return None
    size, start = len(data) - 6, 6
    if size < _TWO_BYTES:
        if data[1] != _MASKED | size:
            return None
    else:
        size, start = size - 2, 8
        if data[1] != _MASKED | _TWO_BYTES or int.from_bytes(data[2:4], "big") != size:
            return None
    return apply_mask(data[start:], data[start - 4 : start]) if size <= most else None


def text_frame(payload: bytes) -> bytes:
    """The frame that carries this text."""
    size = len(payload)
    return (_known_head(size) if size < _KNOWN_HEADS else _head(size)) + payload


def _head(size: int) -> bytes:
    frame = Frame(Opcode.TEXT, bytes(size)).serialize(mask=False)
    return frame[: len(frame) - size]


_known_head: Final = lru_cache(_KNOWN_HEADS)(_head)
