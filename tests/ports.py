"""Ports on which nothing listens."""

from __future__ import annotations

import os
import socket
from itertools import cycle
from random import SystemRandom
from typing import Final

_PORTS: Final = range(15_000, 32_768)
"""Below those that Linux gives to outgoing connections: one of these could take a port before the test listens there."""
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_OWN: Final = _PORTS[_WORKER::_WORKERS]
"""No other process of this run is given one of these: a test may take seconds until it listens on a port, or kill what listens
there for a while. A server of another test that came between would answer in its place."""
_turns: Final = cycle(SystemRandom().sample(_OWN, len(_OWN)))


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, on no address of this machine, and that were not returned for a long time."""
    found: list[int] = []
    for _ in _OWN:
        port = next(_turns)
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
