"""The sockets that the server listens on: bound early, opened late, and left alone while there are no descriptors.

Each connection takes a file descriptor of the process. When they run out, the loop would close connections as they come,
without a word, and may give up its socket. So connections are counted against what the process may have: when little is left,
they are not accepted and wait in the system's queue, until some are free again. Some are kept for the store and for files.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from crewel.event_loop import woken
from crewel.metrics import Metrics
from crewel.supervision import Supervisor

log = logging.getLogger(__name__)

_ALL: Final = "::"
"""All addresses of IPv6, and of IPv4 too."""
_PICKS: Final = 8
"""Ports that are tried for several addresses."""
_BACKLOG: Final = 4096
_KEPT: Final = 32  # descriptors, or an eighth of all if they are few
_EVERY_S: Final = 1.0
_PAUSED_EVERY_S: Final = 0.2
_LOG_EVERY_S: Final = 60.0
_ANY_NUMBER: Final = 1 << 40

Connect: TypeAlias = Callable[[], asyncio.Protocol]
"""Makes the protocol of a connection."""


async def bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets that have the address, one for each form of it, and do not listen yet. With port 0 all have the port that
    the system has picked for the first one. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = list(dict.fromkeys(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)))
    for _ in range(_PICKS if port == 0 and len(found) > 1 else 0):
        with suppress(OSError):  # another one of the addresses may not have that port
            return _bound_all(host, found)
    return _bound_all(host, found)


def _bound_all(host: str, found: list[Any]) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    port = 0
    try:
        for family, kind, protocol, _, address in found:
            with suppress(_Unsupported):
                sockets.append(_bound(family, kind, protocol, (address[0], address[1] or port, *address[2:])))
                port = sockets[0].getsockname()[1]
    except OSError:
        for each in sockets:
            each.close()
        raise
    if not sockets:
        raise OSError(f"no address of {host} can be used here")
    return sockets


class _Unsupported(Exception):
    """This machine has no such family of addresses."""


def _bound(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    try:
        made = socket.socket(family, kind, protocol)
    except OSError:
        raise _Unsupported from None
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != _ALL)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


class Listener:
    """Accepts connections on bound sockets, as long as there are descriptors for them."""

    def __init__(
        self,
        sockets: list[socket.socket],
        connect: Connect,
        metrics: Metrics,
        **options: Any,
    ) -> None:
        """`connect` makes the protocol of a connection; `options` are those of `create_server`."""
        self._sockets = sockets
        self._connect = connect
        self._metrics = metrics
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._servers: list[asyncio.Server] = []
        self._limit = 0
        self._left = 0  # connections that may come until descriptors are counted again
        self._look_now = asyncio.Event()
        self._is_paused = False
        self._is_closed = False
        self._logged_at = -_LOG_EVERY_S

    @property
    def port(self) -> int:
        """The port of the first address."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    @property
    def trouble(self) -> str | None:
        """Why no connection is accepted; None as long as they are."""
        return f"all {self._limit:,} file descriptors are in use (ulimit -n)" if self._is_paused else None

    async def start(self, supervisor: Supervisor) -> None:
        """Listen from now on. Raises OSError if another process listens on the address by now."""
        for each in self._sockets:
            each.listen(_BACKLOG)
        self._limit = _limit()
        self._left = self._limit - await asyncio.to_thread(_used) - self._kept
        await self._accept()
        supervisor.start("listener", self._watch)

    def close(self) -> None:
        """Accept nothing any more, and give up the address."""
        self._is_closed = True
        self._stop_accepting()
        for each in self._sockets:
            each.close()

    async def _accept(self) -> None:
        for each in self._sockets:
            # A copy, because closing a server closes its socket, and with the last one the connections that wait in it.
            copy = each.dup()
            try:
                server = await self._loop.create_server(self._connection, sock=copy, backlog=_BACKLOG, **self._options)
            except BaseException:
                copy.close()
                raise
            self._servers.append(server)

    def _stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    def _connection(self) -> asyncio.Protocol:
        self._left -= 1
        if self._left == 0:
            self._loop.call_soon(self._pause)
        return self._connect()

    @property
    def _kept(self) -> int:
        return min(_KEPT, self._limit // 8)

    def _pause(self) -> None:
        """Accept nothing until descriptors have been counted."""
        self._stop_accepting()
        self._look_now.set()

    async def _watch(self) -> None:
        while not self._is_closed:
            await woken(self._look_now, _PAUSED_EVERY_S if self._is_paused else _EVERY_S)
            await self._check_limit()

    async def _check_limit(self) -> None:
        limit = _limit()
        if self._servers and limit == self._limit and _has_one():
            return
        self._limit = limit
        self._left = limit - await asyncio.to_thread(_used) - self._kept
        if self._left <= 0:
            self._run_out()
        elif not self._is_closed and (self._is_paused or not self._servers):
            self._stop_accepting()
            await self._accept()
            if self._is_paused:
                self._is_paused = False
                log.warning("file descriptors are available again: connections are accepted")

    def _run_out(self) -> None:
        self._stop_accepting()
        if self._is_paused:
            return
        self._is_paused = True
        self._metrics.descriptor_shortages += 1
        now = self._loop.time()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            log.error("%s: new connections wait until some are free", self.trouble)


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ANY_NUMBER if soft == resource.RLIM_INFINITY else soft


def _used() -> int:
    """Return how many descriptors are open; as many as there can be if not even that can be found out."""
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir()) - 1
    except OSError:
        return _ANY_NUMBER


def _has_one() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True
