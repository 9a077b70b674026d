"""Ports on which nothing listens."""

from __future__ import annotations

import socket
from random import SystemRandom
from typing import Final

_PORTS: Final = range(15_000, 32_768)
"""Below those that Linux gives to outgoing connections: one of these could take a port before the test listens there."""


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, on no address of this machine."""
    found: list[int] = []
    random = SystemRandom()
    for _ in _PORTS:
        port = random.choice(_PORTS)
        if port in found:
            continue
        try:
            socket.create_server(("", port)).close()
        except OSError:
            continue
        found.append(port)
        if len(found) == count:
            break
    return found


def free_port() -> int:
    """Return a port that nothing listens on."""
    return free_ports(1)[0]
