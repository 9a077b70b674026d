"""The life of the process: how fast it starts, that a publish waits for nothing, and how it goes down."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.functional.bayeux import Client, data
from tests.functional.conftest import Serve, one_lane
from tests.functional.frames import SocketClient
from tests.functional.wire import Connection, until
from tests.patience import patience


@one_lane
def test_a_server_is_ready_soon_after_its_libraries_are_read(tmp_path: Path, lane: tuple[str, ...]) -> None:
    """A second on a quiet machine; compared with what reading the libraries takes on this one, measured alternately."""
    serve = [sys.executable, "-m", "crewel", "serve", "--port=0", *(f"--set={option}" for option in lane)]
    libraries = "import aiohttp, httptools, jmespath, pydantic_settings, redis.asyncio, typer, uvloop"
    read = [sys.executable, "-c", f"{libraries}; print('ready', flush=True); input()"]
    served: list[float] = []
    measure: list[float] = []
    while len(served) < 3 and not (served and min(served) < 3.5 * min(measure)):
        measure.append(seconds_until_ready(read, tmp_path))
        served.append(seconds_until_ready(serve, tmp_path))
    assert min(served) < 3.5 * min(measure), (served, measure)


def seconds_until_ready(command: list[str], directory: Path) -> float:
    """Seconds of the processor: the machine may have other things to do."""
    with subprocess.Popen(
        command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        used_ns, _, _ = Path(f"/proc/{process.pid}/schedstat").read_text().split()
        process.terminate()
        process.wait(10)
    return int(used_ns) / 1e9


def test_a_publish_is_delivered_before_it_is_answered_or_with_it(serve: Serve) -> None:
    """A transient publish waits for nothing: what a held connect gets is on its way with the acknowledgement."""
    server = serve()
    listener, publisher = Client(server).start(), Client(server).start()
    listener.subscribe("/quick")
    delivered, answered = [], []
    for number in range(50):
        polling = listener.ask_connect()
        begin = time.monotonic()
        publisher.publish("/unheard", number)
        answered.append(time.monotonic() - begin)
        begin = time.monotonic()
        publisher.publish("/quick", number)
        assert data(polling.response().messages) == [number]
        delivered.append(time.monotonic() - begin)
    assert statistics.median(delivered) < 10 * statistics.median(answered), (delivered, answered)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_going_down_answers_what_is_held_and_closes_sockets(serve: Serve, number: signal.Signals) -> None:
    server = serve()
    pollers = [Client(server).start() for _ in range(5)]
    connections = [poller.hold() for poller in pollers]
    sockets = [SocketClient(server).start() for _ in range(5)]
    begin = time.monotonic()
    os.kill(server.pid, number)
    for connection in connections:
        (reply,) = connection.response().messages
        assert reply["successful"] is True
        connection.rest()
    for socket in sockets:
        assert socket.socket.closed()[0] == 1001
        socket.socket.connection.rest()
    assert server.wait() == 0
    assert time.monotonic() - begin < 5 * patience()
    with pytest.raises(ConnectionRefusedError):
        Connection(server)


def test_idle_connections_do_not_keep_it_from_going_down(serve: Serve) -> None:
    server = serve()
    silent = [Connection(server) for _ in range(3)]
    half = Connection(server)
    half.request("POST", "/cometd", b"[", [("Content-Length", "100")])
    used = Client(server).start()
    begin = time.monotonic()
    os.kill(server.pid, signal.SIGTERM)
    assert server.wait() == 0
    assert time.monotonic() - begin < 8 * patience()
    for connection in (*silent, used.polling):
        assert connection.rest() == b""


@one_lane
def test_peers_that_do_not_read_do_not_keep_it_from_going_down(serve: Serve) -> None:
    server = serve()
    publisher = Client(server).start()
    for _ in range(3):
        socket = SocketClient(server).start()
        socket.subscribe("/flood")
    for _ in range(600):
        publisher.publish("/flood", "x" * 20_000)
    os.kill(server.pid, signal.SIGTERM)
    assert server.wait() == 0


def test_what_is_being_answered_is_still_answered(start_server: StartServer, lane: tuple[str, ...]) -> None:
    server = start_server(*lane, service="tests.functional.services")
    client = Client(server).start()
    message = client.message("/slow", data=1000)
    client.command.request("POST", "/cometd", json.dumps([message]).encode(), client.all_headers())
    probe = Client(server).start()
    until(lambda: probe.publish("/a", 1))
    os.kill(server.pid, signal.SIGTERM)
    assert client.command.response().messages[0]["successful"] is True
    assert server.wait() == 0
