"""Ports on which nothing listens."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def free_port() -> int:
    """Return a port that nothing listens on."""
    return free_ports(1)[0]
