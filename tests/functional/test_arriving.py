"""Clients that arrive all at once, while the server is busy with something else."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.functional.conftest import Serve, one_lane
from tests.server_process import LIMIT_S

MANY = 1100
REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@one_lane
@pytest.mark.skipif(int(Path("/proc/sys/net/core/somaxconn").read_text()) < MANY, reason="the kernel lets fewer wait")
def test_more_clients_than_a_usual_backlog_are_served_without_a_further_try(serve: Serve) -> None:
    """A connection for which the kernel has no place would be tried again by its client after a second, and then later."""
    server = serve()
    assert server.port is not None
    with ExitStack() as stack:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            address = ("127.0.0.1", server.port)
            arrived = [stack.enter_context(socket.create_connection(address, timeout=LIMIT_S)) for _ in range(MANY)]
        finally:
            os.kill(server.pid, signal.SIGCONT)
        arrived[-1].sendall(REQUEST)
        assert arrived[-1].recv(12) == b"HTTP/1.1 200"
