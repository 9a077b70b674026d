"""Text frames in their usual form, a few bytes of head and one payload: nearly all frames that come, and all that go. Those are
compressed if that is agreed on and worth it.

What comes in any other form (fragments, control frames, pieces of frames, several at once) is read by `frame_reader`. The heads
are made by websockets, which also decompresses.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final

from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode

from crewel.bayeux.codec import join
from crewel.transports.frame_reader import WINDOW_BITS

try:
    from websockets.speedups import apply_mask
except ImportError:  # where it could not be compiled
    from websockets.utils import apply_mask

_WHOLE_TEXT: Final = 0x81  # the last fragment, and text (RFC 6455, 5.2)
_WHOLE_DEFLATED: Final = 0xC1  # the same of a compressed text (RFC 7692, 6)
_MASKED: Final = 0x80
_MASKED_TWO_BYTES: Final = 0xFE
"""The length follows in two bytes."""
_SHORTEST_HEAD: Final = 6  # bytes, with the mask
_TWO_BYTES: Final = 126  # the length follows in two bytes
_KNOWN_HEADS: Final = 4096
_WORTH_DEFLATING: Final = 256  # bytes
_MEMORY_LEVEL: Final = 6
_COMPRESSED: Final = 0x40  # the bit of a frame's first byte (RFC 7692, 6)
# No client keeps a context between messages, and the largest window reads what was compressed with any.
_INFLATER: Final = PerMessageDeflate(True, True, 15, 15)


def whole_text(data: bytes, most: int, first: int = _WHOLE_TEXT) -> bytes | None:
    """The payload if the data is one whole text frame of a client, of at most so many bytes, and nothing else. None for
    anything else, be it wrong or not."""
    size, start = len(data) - _SHORTEST_HEAD, _SHORTEST_HEAD
    if data[0] != first or size < 0:
        return None
    if size < _TWO_BYTES:
        if data[1] != _MASKED | size:
            return None
    else:
        size, start = size - 2, start + 2
        if data[1] != _MASKED_TWO_BYTES or data[2] << 8 | data[3] != size:
            return None
    return apply_mask(data[start:], data[start - 4 : start]) if size <= most else None


def whole_deflated(data: bytes, most: int) -> bytes | None:
    """The uncompressed payload of such a frame where permessage-deflate was agreed on: the frame may be compressed."""
    if data[0] != _WHOLE_DEFLATED:
        return whole_text(data, most)
    deflated = whole_text(data, most, _WHOLE_DEFLATED)
    if deflated is None:
        return None
    try:
        return bytes(_INFLATER.decode(Frame(Opcode.TEXT, deflated, rsv1=True), max_size=most).data)
    except (PayloadTooBig, ProtocolError):
        return None


def text_frame(payload: bytes) -> bytes:
    """The frame that carries this text."""
    return text_head(len(payload)) + payload


@lru_cache(_KNOWN_HEADS)
def text_head(size: int) -> bytes:
    """The head of the frame that carries a text of so many bytes."""
    frame = Frame(Opcode.TEXT, bytes(size)).serialize(mask=False)
    return frame[: len(frame) - size]


class Frames:
    """Ready frames. The last one is remembered: a message goes to all its receivers one after another. Each compressed frame is
    compressed alone, so that sockets need no compressor of their own, which is most of what one would cost."""

    def __init__(self) -> None:
        self._part = b""
        self._frame = b""
        self._deflated_part = b""
        self._deflated_frame = b""

    def of(self, parts: list[bytes]) -> bytes:
        """The text frame that carries these messages."""
        if len(parts) > 1:
            payload = b"[" + b",".join(parts) + b"]"  # `join` and `text_frame`, without a call
            return text_head(len(payload)) + payload
        # By identity: all receivers of a message get the same bytes object, one after another.
        part = parts[0]
        if part is not self._part:
            self._part = part
            self._frame = text_frame(b"[" + part + b"]")
        return self._frame

    def deflated(self, parts: list[bytes]) -> bytes:
        """The text frame for sockets that have agreed on permessage-deflate; short messages are not compressed."""
        if sum(map(len, parts)) < _WORTH_DEFLATING:
            return self.of(parts)
        if len(parts) > 1:
            return _deflated(join(parts))
        if parts[0] != self._deflated_part:  # links bring a copy for each of their receivers
            self._deflated_part = parts[0]
            self._deflated_frame = _deflated(join(parts))
        return self._deflated_frame


def _deflated(payload: bytes) -> bytes:
    # No context is kept between frames: a compressor for each socket would take 117 KiB.
    compressor = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -WINDOW_BITS, _MEMORY_LEVEL)
    data = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    frame = text_frame(data[:-4])  # less the mark that every flush ends with
    return bytes((frame[0] | _COMPRESSED,)) + frame[1:]
