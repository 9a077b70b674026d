"""PURE. The heads of the frames that a client sends: where frames end, and how many of them carry no message.

They are counted before anything is parsed, so that a flood of frames that ask for nothing costs little more than to receive
it. What breaks the protocol is found when it is parsed.
"""

from __future__ import annotations

from typing import Final

SMALL: Final = 64
"""Bytes of a fragment from which on it is not counted: shorter ones cost what pings cost."""

_FINAL: Final = 0x80  # RFC 6455, 5.2
_COMPRESSED: Final = 0x40  # RFC 7692, 6
_CONTROL: Final = 0x08
_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
_TWO_BYTES: Final = 126
_MASK: Final = 4


class FrameHeads:
    """The place between two pieces of what a socket receives."""

    __slots__ = ("_head", "_left", "controls", "is_amid")

    def __init__(self) -> None:
        self._head = b""  # what has come of a head that is not whole
        self._left = 0  # bytes of a frame, behind its head, that have not come
        self.is_amid = False
        """Whether the last fragment was not the end of its message."""
        self.controls = 0
        """How many control frames and small fragments have begun. Readers set it back."""

    @property
    def is_within(self) -> bool:
        """Whether the next byte belongs to a frame that has begun."""
        return bool(self._left or self._head)

    def cut(self, data: bytes, most: int) -> int:
        """How many of these bytes have at most so many frames. A compressed one is the last, for it may be a thousand times as
        long as it is here. The next call begins behind them."""
        begun = len(self._head)
        if begun:
            data, self._head = self._head + data, b""
        at, size = self._left, len(data)
        while most and at < size:
            end = self._end(data, at)
            if not end:
                self._head, at = data[at:], size
                break
            at, most = end, 0 if data[at] & _COMPRESSED else most - 1
        self._left = max(at - size, 0)
        return min(at, size) - begun

    def _end(self, data: bytes, at: int) -> int:
        """Where the frame ends that begins here, and count it; 0 if its length has not come."""
        start = at + 2
        if start > len(data):
            return 0
        first, length = data[at], data[at + 1] & _LENGTH
        if length >= _TWO_BYTES:
            behind = start + (2 if length == _TWO_BYTES else 8)
            if behind > len(data):
                return 0
            start, length = behind, int.from_bytes(data[start:behind], "big")
        if first & _CONTROL:
            self.controls += 1
        else:
            self.is_amid = not first & _FINAL
            self.controls += self.is_amid and length < SMALL
        return start + length + (_MASK if data[at + 1] & _MASKED else 0)
