"""Virtual time: an event loop whose clock can be moved ahead, and durations as text, such as `3h`."""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")


def seconds_of(duration: float | str) -> float:
    """Return the seconds of a number, or of a text such as "110s", "3h", "1h 30m" or "250ms". Raises ValueError."""
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        seconds = float(duration)
    else:
        text = str(duration).strip()
        parts = _DURATION.findall(text)
        if not parts or _DURATION.sub("", text).strip():
            raise ValueError(
                f"{duration!r} is not a duration: expected seconds, or a text such as 110s, 3h, 1h 30m, 250ms"
            )
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 <= seconds < inf:
        raise ValueError(f"{duration!r} is not a duration: time only moves forward")
    return seconds


class _Selector(selectors.DefaultSelector):
    """A selector that can leave some sockets unread for a while. Their data is read afterwards."""

    unread: frozenset[int] = frozenset()
    """Their file descriptors."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The sockets that are ready."""
        ready = super().select(timeout)
        return [each for each in ready if each[0].fd not in self.unread] if self.unread else ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes as usual and can also be moved ahead. Timers that are due then fire in order."""

    _skipped = 0.0

    def __init__(self) -> None:
        self._sockets = _Selector()
        super().__init__(self._sockets)

    def time(self) -> float:
        """The time of the loop: seconds since some moment, with the skipped time."""
        return super().time() + self._skipped

    @property
    def skipped(self) -> float:
        """Seconds by which this loop is ahead of the machine's clock."""
        return self._skipped

    def skip(self, seconds: float) -> None:
        """Move the clock ahead. Timers that are due by then fire in the next turn, however late they are."""
        self._skipped += seconds

    def next_timer(self) -> float:
        """When the next timer is due (loop time, seconds); infinity if there is none."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined] # a heap; asyncio has no other way
        # A timer that was cancelled stays in the heap for a while: to stop at it costs an empty turn and nothing else.
        return timers[0].when() if timers else inf

    @property
    def is_idle(self) -> bool:
        """Whether no callback waits for its turn, beside the one that asks."""
        return not self._ready  # type: ignore[attr-defined] # a deque; asyncio has no other way

    @contextmanager
    def unread(self, port: int) -> Iterator[None]:
        """In the `with`, read nothing that clients send to this port, and accept no connection."""
        self._sockets.unread = frozenset(key.fd for key in self._sockets.get_map().values() if _port_of(key.fd) == port)
        try:
            yield
        finally:
            self._sockets.unread = frozenset()

    async def stop_accepting(self, port: int) -> None:
        """Accept no connection on this port any more; those that were accepted have their protocols afterwards. A server of
        asyncio that is closed between the two steps loses a connection, which then stays open (CPython gh-109564)."""
        for key in list(self._sockets.get_map().values()):
            if _port_of(key.fd, only_listening=True) == port:
                self.remove_reader(key.fd)
        for _ in range(3):  # a turn for the task of a connection, one for its transport, one for its protocol
            await asyncio.sleep(0)

    def reset_connections(self, port: int) -> int:
        """End all connections that were accepted on this port with a reset, as if their process had been killed; return how
        many there were."""
        transports = list(self._transports.values())  # type: ignore[attr-defined] # those of sockets, by file descriptor
        ended = 0
        for transport in transports:
            address = transport.get_extra_info("sockname")
            if isinstance(address, tuple) and address[1] == port:
                reset(transport)
                ended += 1
        return ended


def _port_of(fd: int, *, only_listening: bool = False) -> int | None:
    """The local port of a socket; None if it has none, or if it does not listen and has to."""
    try:
        with socket.socket(fileno=os.dup(fd)) as same:
            if only_listening and not same.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return None
            address = same.getsockname()
    except OSError:
        return None
    return address[1] if isinstance(address, tuple) and len(address) > 1 else None


def reset(transport: asyncio.WriteTransport) -> None:
    """End this connection with a reset: its peer gets an error instead of the end of the data."""
    connection = transport.get_extra_info("socket")
    if connection is not None and not transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
