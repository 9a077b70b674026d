"""Frames of all forms, read by websockets' sans-I/O core: fragments, control frames, compressed ones, pieces.

Most frames are whole texts, which `text_frames` reads. So a socket has a reader only as long as it needs one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import CloseCode, Frame
from websockets.protocol import State
from websockets.server import ServerProtocol

from crewel.transports.frame_heads import FrameHeads

Parameters = tuple[bool, bool, int, int]
"""Those of permessage-deflate, as websockets has them."""

WINDOW_BITS: Final = 12
"""The window of compressed frames that go, 4 KiB: any larger one that a client has can read them."""

frames_log: Final = logging.getLogger(f"{__name__}.frames")
frames_log.setLevel(logging.ERROR)  # websockets logs each connection


class FrameReader(ServerProtocol):
    """websockets' protocol for one socket, which is open. No context of compression is kept between messages."""

    def __init__(self, max_bytes: int, too_large: Callable[[], str], deflate: Parameters | None) -> None:
        """`too_large` is called when a message has more than `max_bytes`, and returns why that closes the socket."""
        super().__init__(state=State.OPEN, max_size=max_bytes, logger=frames_log)
        self.extensions = [] if deflate is None else [PerMessageDeflate(*deflate)]
        self._too_large = too_large
        self.heads = FrameHeads()
        """Cut what comes with this before it is read, all of it and in its order."""

    def read(self, data: bytes) -> list[Frame]:
        """The frames that these bytes end."""
        self.receive_data(data)
        return [event for event in self.events_received() if isinstance(event, Frame)]

    @property
    def is_done(self) -> bool:
        """Whether it knows nothing that another one would not know: the next bytes begin a message."""
        return not (self.heads.is_within or self.heads.is_amid) and self.state is State.OPEN

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        """Close the socket for what has come."""
        if code == CloseCode.MESSAGE_TOO_BIG:
            reason = self._too_large()
        super().fail(code, reason)
