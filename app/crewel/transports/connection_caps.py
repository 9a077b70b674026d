"""How many connections there may be, in all and from one address."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any, Final, Protocol

from crewel.addresses import Networks, canonical, holder_of
from crewel.metrics import Metrics
from crewel.settings import Settings

log = logging.getLogger(__name__)

_RETRY_S: Final = 2
_READ_S: Final = 1.0
"""Time for the peer to read why it is refused; closed at once, the answer might be lost with what was not read."""
_LOG_EVERY_S: Final = 60.0


class Counted(Protocol):
    """The protocol of a connection that is counted."""

    holder: str | None
    """Whose connection it is; None while it is not counted. It keeps that itself: a register of all costs memory for each."""


class ConnectionCaps:
    """Counts connections from their first moment to their last one, and refuses those beyond the caps."""

    def __init__(self, settings: Settings, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._limits = settings.limits
        self._proxies = Networks(settings.http.trusted_proxies)
        self._metrics = metrics
        self._loop = loop
        self._count = 0
        self._counts: Counter[str] = Counter()
        self._logged_at = -_LOG_EVERY_S

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def admit(self, connection: Counted, transport: asyncio.Transport) -> bool:
        """Count a connection that has just come. False: it is one too many, and has been answered."""
        address = address_of(transport)
        holder = holder_of(address)
        limit = self._exceeded(holder, address)
        if limit:
            self._refuse(transport, limit, address)
            return False
        connection.holder = holder
        self._count += 1
        self._counts[holder] += 1
        return True

    def move(self, connection: Counted, to: Counted) -> None:
        """Another protocol has the connection from here on."""
        to.holder, connection.holder = connection.holder, None

    def left(self, connection: Counted) -> None:
        """A connection has ended; one that was refused is not counted."""
        holder, connection.holder = connection.holder, None
        if holder is None:
            return
        self._count -= 1
        self._counts[holder] -= 1
        if not self._counts[holder]:
            del self._counts[holder]

    def _exceeded(self, holder: str, address: str | None) -> str:
        limits = self._limits
        if limits.max_connections and self._count >= limits.max_connections:
            return "max_connections"
        most = limits.max_connections_per_address
        if most and self._counts[holder] >= most and not self._is_proxy(address):
            return "max_connections_per_address"
        return ""

    def _is_proxy(self, address: str | None) -> bool:
        return bool(self._proxies) if address is None else address in self._proxies  # None: a UNIX socket

    def _refuse(self, transport: asyncio.Transport, limit: str, address: str | None) -> None:
        self._metrics.limited[limit] += 1
        now = self._loop.time()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            told = {"limit": f"limits.{limit}", "address": address or "local"}
            log.warning("connections are refused: there are %d", len(self), extra=told)
        transport.set_protocol(_Refused(transport, self._loop))
        body = f"too many connections (limits.{limit})".encode()
        transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: %d\r\n"
            b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (_RETRY_S, len(body), body)
        )


class _Refused(asyncio.Protocol):
    """A connection that has been answered already. What it sends is not looked at."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._timer = loop.call_later(_READ_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """The peer has sent its request: the answer follows it."""
        self._transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It has gone."""
        self._timer.cancel()


def address_of(transport: asyncio.Transport | None) -> str | None:
    """The address at the other end; None of a UNIX socket, and of a connection that is gone."""
    peer: Any = None if transport is None else transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return None
    address: str = peer[0]
    return canonical(address) if ":" in address else address
