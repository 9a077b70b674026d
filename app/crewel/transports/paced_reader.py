"""What a WebSocket receives where aiohttp has the connection, in turns and counted: aiohttp's own reader would take all that
comes at once, and shows neither fragments nor how many they are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from crewel.fair_turns import FairTurns
from crewel.transports.frame_heads import FrameHeads

_PIECE: Final = 4096  # bytes that are kept in one piece
_MOST_KEPT: Final = 16  # pieces, beyond which no more is received
_FRAMES: Final = 32  # that aiohttp has at once, at most
_GOES_ON: Final = (False, b"")
PROTOCOL_ERROR: Final = 1002  # RFC 6455, 7.4.1


class Parser(Protocol):
    """aiohttp's reader of frames."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Read this. True: nothing more can be read."""
        ...

    def feed_eof(self) -> None:
        """Nothing more will come."""
        ...


class Wire(Protocol):
    """The connection, as far as its reading goes."""

    def hold_reading(self) -> None:
        """Leave what the peer sends in its own buffers."""
        ...

    def read_on(self) -> None:
        """Read again."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class PacedReader:
    """Gives aiohttp's reader what comes, a few frames at a time: the next ones when their messages have been taken."""

    def __init__(
        self,
        parser: Parser,
        connection: Wire,
        turns: FairTurns,
        address: str | None,
        allows: Callable[[int], bool],
        receive_less: Callable[[], None],
        refuse: Callable[[int, str], None],
    ) -> None:
        """`allows` is called with the number of frames without a message in what comes, before they are read. It returns
        whether they may be. `receive_less` is called when what comes has to wait, and `refuse` with the code and the reason
        with which to close the socket, when what comes is not read any more."""
        self._parser = parser
        self._connection = connection
        self._turns = turns
        self._address = address
        self._allows = allows
        self._receive_less = receive_less
        self._refuse = refuse
        self._heads = FrameHeads()
        self._kept: deque[bytes] = deque()
        self._untaken = 0  # messages and control frames that aiohttp's queue has, or gets with the rest of a frame
        self._is_held = self._is_resting = self._is_ending = self._is_over = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Read this now, or in a later turn."""
        if self._is_over:
            return _GOES_ON
        self._kept.extend(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
        if self._is_resting or not self._may_feed:
            self._receive_less()
            if len(self._kept) > _MOST_KEPT:
                self._hold()
        elif self._turns.is_over():
            self._receive_less()
            self._rest()
        else:
            self._go_on()
        return _GOES_ON

    @property
    def is_behind(self) -> bool:
        """Whether something has come that has not been taken."""
        return bool(self._kept or self._untaken)

    def taken(self) -> None:
        """A message, or a control frame, has been taken from aiohttp's queue."""
        self._untaken -= 1
        if not (self._untaken or self._is_resting) and self._kept:
            self._go_on()

    def end(self) -> None:
        """The socket is being closed: what comes is read up to the end, for it may be the answer to that."""
        self._is_ending, self._untaken = True, 0
        if not self._is_resting:
            self._go_on()

    def feed_eof(self) -> None:
        """Nothing more will come: read what is kept."""
        while self._kept:
            self._feed(self._kept.popleft())
        self._parser.feed_eof()

    def stop(self) -> None:
        """Drop what is kept, and receive nothing more."""
        self._is_over = True
        self._kept.clear()
        self._hold()

    @property
    def _may_feed(self) -> bool:
        return self._heads.is_within or not self._untaken

    def _hold(self) -> None:
        self._is_held = True
        self._connection.hold_reading()

    def _rest(self) -> None:
        self._is_resting = True
        self._hold()
        self._turns.later(self._address, self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        self._go_on()

    def _go_on(self) -> None:
        until, kept = self._turns.portion(), self._kept
        while kept and self._may_feed:
            self._feed(kept.popleft())
            if kept and self._may_feed and perf_counter() >= until:
                self._rest()
                return
        if self._is_held and not self._is_over and len(kept) <= _MOST_KEPT:
            self._is_held = False
            self._connection.read_on()

    def _feed(self, data: bytes) -> None:
        heads = self._heads
        end = heads.cut(data, _FRAMES)
        if heads.is_unmasked:
            self.stop()
            self._refuse(PROTOCOL_ERROR, "incorrect masking")
            self._turns.lend()  # a task closes the socket
            return
        controls, heads.controls = heads.controls, 0
        if controls and not self._allows(controls):
            self.stop()
            self._turns.lend()  # a task closes the socket
            return
        if not self._is_ending:
            self._untaken += heads.ends
        heads.ends = 0
        if end < len(data):
            self._kept.appendleft(data[end:])
            data = data[:end]
        is_over, _ = self._parser.feed_data(data)
        if is_over:
            self.stop()
            asyncio.get_running_loop().call_soon(self._connection.close)
