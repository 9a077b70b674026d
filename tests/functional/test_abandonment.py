"""Thousands of long-polls that are left in every way there is, and nothing of them stays.

They come in waves, on both lanes; `make faults` has ten waves of a thousand. After each wave, sessions, tasks
and descriptors are what they were at the start, and memory is that of the earlier waves.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from tests.conftest import StartServer
from tests.functional.bayeux import held
from tests.functional.conftest import LANES
from tests.functional.wire import Connection, close_connections, descriptors, figures, request_bytes, resident, until
from tests.server_process import Server

IS_FULL = os.environ.get("FAULTS") == "full"
WAVES = 10 if IS_FULL else 5
WAVE = 1000 if IS_FULL else 80
GROWTH = 2**21 if IS_FULL else 2**20
"""Bytes that memory may grow after the third wave: far less than a wave's clients have while they are there."""
HELD_MS = 8000 if IS_FULL else 2000
"""How long a connect is held: until the last client of a wave has its own held, beside other tests."""
IDLE_MS = 1000 if IS_FULL else 700
"""How long a session lives without a connect, and a connection without a request."""
GROUP = 10
"""So many take their steps together: the server's short times must not end between one step and the next."""
STORE_CONNECTIONS = 4

HANDSHAKE = request_bytes("POST", "/cometd", b'[{"channel":"/meta/handshake"}]')


class Abandoned:
    """A client that shakes hands, connects, has its second connect held, and goes."""

    def __init__(self, server: Server) -> None:
        self.connection = Connection(server)
        self.connect = b""

    def shake_hands(self) -> None:
        self.connection.send(HANDSHAKE)

    def first_connect(self) -> None:
        response = self.connection.response()
        client_id = response.messages[0]["clientId"]
        cookie = response.all("Set-Cookie")[0].partition(";")[0]
        body = b'[{"channel":"/meta/connect","connectionType":"long-polling","clientId":"%b"}]' % client_id.encode()
        self.connect = request_bytes("POST", "/cometd/connect", body, {"Cookie": cookie})
        self.connection.send(self.connect)

    def second_connect(self) -> None:
        assert self.connection.response().messages[0]["successful"] is True
        self.connection.send(self.connect)


def go(client: Abandoned, number: int) -> None:
    """Go by FIN, by RST, by half-close (and wait for the answer), or say nothing any more."""
    if number % 4 == 0:
        client.connection.close()
    elif number % 4 == 1:
        client.connection.reset()
    elif number % 4 == 2:
        client.connection.half_close()


def wave(server: Server) -> None:
    clients = []
    for _ in range(WAVE // GROUP):
        group = [Abandoned(server) for _ in range(GROUP)]
        for step in (Abandoned.shake_hands, Abandoned.first_connect, Abandoned.second_connect):
            for client in group:
                step(client)
        clients += group
    until(lambda: held(server) == WAVE)
    for number, client in enumerate(clients):
        go(client, number)
    for client in clients[2::4]:
        assert client.connection.response().messages[-1]["successful"] is True


def state(server: Server) -> tuple[float, float, float, int]:
    """Sessions, held connects, tasks and descriptors, as a request for the figures finds them."""
    with Connection(server) as connection:
        connection.get("/metrics")  # the connection that asks is the same each time
        now = figures(server)
        return now["crewel_sessions"], now["crewel_held_connects"], now["crewel_tasks"], descriptors(server)


def is_back(now: tuple[float, float, float, int], start: tuple[float, float, float, int]) -> bool:
    """Whether nothing is left. Connections to the store are opened and closed as readers want them."""
    return now[:3] == start[:3] and now[3] <= start[3] + STORE_CONNECTIONS


@pytest.fixture(autouse=True)
def _enough_descriptors() -> Iterator[None]:
    """A wave needs more than many systems allow at first; the server inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * WAVE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(600 if IS_FULL else 180)
def test_nothing_stays_of_abandoned_long_polls(start_server: StartServer) -> None:
    sets = (
        f"bayeux.timeout_ms={HELD_MS}",
        f"bayeux.max_interval_ms={IDLE_MS}",
        "bayeux.sweep_ms=100",
        f"http.keepalive_ms={IDLE_MS}",
    )
    servers = [start_server(*lane, *sets) for lane in LANES]
    starts = [state(server) for server in servers]
    assert {start[:2] for start in starts} == {(0, 0)}
    memory: list[list[int]] = [[] for _ in servers]
    for _ in range(WAVES):
        for server in servers:
            wave(server)
        # The silent quarters are still there on this side: the servers have to end them by themselves.
        for server, start, sizes in zip(servers, starts, memory, strict=True):
            until(lambda server=server, start=start: is_back(state(server), start), 10 + HELD_MS / 500)
            sizes.append(resident(server))
        close_connections()
    for server, sizes in zip(servers, memory, strict=True):
        assert figures(server)["crewel_sessions_expired_total"] == WAVES * WAVE
        assert sizes[-1] <= sizes[2] + GROWTH, [size // 1024 for size in sizes]
