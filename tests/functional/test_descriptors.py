"""File descriptors that run out: connections wait, nothing is closed, the store is reached again, and health and log say so."""

from __future__ import annotations

import os
import resource
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import compress
from pathlib import Path

from tests.admin.alert_rules import HERON, LATER, SOON, Alert, Story, said_by
from tests.conftest import StartServer
from tests.faults.health import store_pid
from tests.functional.bayeux import Client
from tests.functional.wire import Connection
from tests.server_process import LIMIT_S, Server
from tests.store_process import until

FEW = 128
REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def few_descriptors() -> Iterator[None]:
    """What is started meanwhile may have few descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def limit(server: Server, count: int) -> None:
    """Let the server have so many descriptors from now on."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (count, hard))


def used(server: Server) -> int:
    return sum(1 for _ in Path(f"/proc/{server.pid}/fd").iterdir())


def connected(server: Server, stack: ExitStack) -> socket.socket:
    """A connection that has sent a request."""
    assert server.port is not None
    made = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S))
    made.sendall(REQUEST)
    made.setblocking(False)
    return made


def answered(connection: socket.socket) -> bool:
    """Whether the answer has come; fails if the connection was closed."""
    with suppress(BlockingIOError):
        answer = connection.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        return True
    return False


def split(connections: list[socket.socket]) -> tuple[list[socket.socket], list[socket.socket]]:
    """Those that are answered, and those that wait. Of those that the server has taken, an answer may still be on its way."""
    came = [answered(each) for each in connections]
    return list(compress(connections, came)), [each for each, has in zip(connections, came, strict=True) if not has]


def metric(server: Server, name: str) -> float:
    with urllib.request.urlopen(f"{server.base}/metrics", timeout=LIMIT_S) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_connections_beyond_the_descriptors_wait_and_are_served_later(
    start_server: StartServer, tmp_path: Path
) -> None:
    with few_descriptors():
        server = start_server("storage.enabled=false")
    story = Story()
    story.step(LATER, said_by(server))
    with ExitStack() as stack:
        served: list[socket.socket] = []
        waiting = [connected(server, stack) for _ in range(2 * FEW)]

        def serves(least: int) -> bool:
            nonlocal waiting
            came, waiting = split(waiting)
            served.extend(came)
            return len(served) >= least

        until(lambda: "all 128 file descriptors are in use (ulimit -n)" in server.stderr)
        until(lambda: serves(50))
        assert len(served) < FEW  # the rest waits, and nothing was closed

        def has_served_all() -> bool:
            while served:
                served.pop().close()
            serves(0)
            return not waiting

        until(has_served_all)
    until(lambda: metric(server, "crewel_descriptor_shortages_total") >= 1)
    assert server.stderr.count("file descriptors are in use") == 1  # and not once for each shortage
    shortage = Alert("CrewelRunsOutOfDescriptors", f"{HERON} has no file descriptors for new connections")
    story.step(SOON, said_by(server), fires=[shortage])
    story.step(LATER, said_by(server))
    story.check(tmp_path)


def test_a_server_without_descriptors_says_so_and_heals(start_server: StartServer) -> None:
    server = start_server("storage.url=")
    publisher, health = Client(server), Connection(server)
    publisher.handshake()

    def readiness() -> int:
        health.request("GET", "/health/ready")
        return health.response().status

    assert readiness() == 200
    limit(server, used(server) - 2)
    until(lambda: readiness() == 503)
    message = publisher.message("/a", data=1, ext={"publish": {"persistent": True}})
    assert publisher.send(message)[-1]["successful"] is True  # open connections are served
    os.kill(store_pid(server), signal.SIGKILL)
    until(lambda: "cannot be started: Too many open files" in server.stderr)
    limit(server, 4096)
    until(lambda: readiness() == 200)
    assert publisher.send(publisher.message("/a", data=1, ext={"publish": {"persistent": True}}))[-1]["successful"]
    assert Connection(server).socket  # and others may come again
    assert server.terminate() == 0
