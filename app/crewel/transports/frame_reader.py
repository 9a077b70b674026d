"""Frames of all forms, read by websockets' sans-I/O core: fragments, control frames, compressed ones, pieces.

Most frames are whole texts, which `text_frames` reads. So a socket has a reader only as long as it needs one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from websockets.extensions.base import Extension
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import ExtensionName

Parameters = tuple[bool, bool, int, int]
"""Those of permessage-deflate, as websockets has them."""

WINDOW_BITS: Final = 12
"""The window of compressed frames that go, 4 KiB: any larger one that a client has can read them."""

_HEAD: Final = 6  # bytes of the shortest head of a frame, with its mask
frames_log: Final = logging.getLogger(f"{__name__}.frames")
frames_log.setLevel(logging.ERROR)  # websockets logs each connection


class _Sizes(Extension):
    """Notes how many bytes the payload of each frame has as it comes."""

    name = ExtensionName("sizes")

    def __init__(self) -> None:
        self.noted: list[int] = []

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        self.noted.append(len(frame.data))
        return frame

    def encode(self, frame: Frame) -> Frame:
        return frame


class FrameReader(ServerProtocol):
    """websockets' protocol for one socket, which is open. No context of compression is kept between messages."""

    def __init__(self, max_bytes: int, too_large: Callable[[], str], deflate: Parameters | None) -> None:
        """`too_large` is called when a message has more than `max_bytes`, and returns why that closes the socket."""
        super().__init__(state=State.OPEN, max_size=max_bytes, logger=frames_log)
        sizes = _Sizes()
        self._sizes = sizes.noted
        self.extensions = [sizes] if deflate is None else [PerMessageDeflate(*deflate), sizes]
        self._too_large = too_large
        self._unread = 0  # bytes that have come of a frame that is not whole; never too few
        self._is_amid = False  # between the fragments of a message

    def read(self, data: bytes) -> list[Frame]:
        """The frames that these bytes end."""
        self.receive_data(data)
        frames = [event for event in self.events_received() if isinstance(event, Frame)]
        self._unread += len(data)
        for frame, size in zip(
            frames, self._sizes, strict=False
        ):  # of one that closes the socket there is a size alone
            self._unread -= size + (_HEAD if size < 126 else _HEAD + 2 if size < 65536 else _HEAD + 8)
            if frame.opcode < Opcode.CLOSE:
                self._is_amid = not frame.fin
        self._sizes.clear()
        return frames

    @property
    def is_done(self) -> bool:
        """Whether it knows nothing that another one would not know: the next bytes begin a message."""
        return not (self._unread or self._is_amid) and self.state is State.OPEN

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        """Close the socket for what has come."""
        if code == CloseCode.MESSAGE_TOO_BIG:
            reason = self._too_large()
        super().fail(code, reason)
