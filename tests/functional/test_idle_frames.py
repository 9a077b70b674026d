"""Frames without a message on a WebSocket: how many a client may send, and what they do not keep alive."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.functional.bayeux import in_time
from tests.functional.conftest import LANES, Serve
from tests.functional.frames import PING, PONG, TEXT, Socket, SocketClient
from tests.functional.wire import figures, until
from tests.server_process import Server, serving

CONTINUATION = 0
FEW = ("limits.control_frames_per_s=5", "limits.control_frames_burst=20")
FLOODS = {
    "pings": lambda socket: socket.frame(PING),
    "pings that carry much": lambda socket: socket.frame(PING, b"x" * 125),
    "pongs": lambda socket: socket.frame(PONG),
    "empty fragments": lambda socket: socket.frame(CONTINUATION, final=False),
    "empty arrays": lambda socket: socket.frame(TEXT, b"[]"),
}
LIMITED = 'crewel_limited_total{limit="control_frames_per_s"}'


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[tuple[str, ...]], Server]]:
    """A server of each lane that allows few such frames."""
    running: dict[tuple[str, ...], Server] = {}
    with ExitStack() as stack:

        def get(lane: tuple[str, ...]) -> Server:
            if lane not in running:
                sets = (*lane, *FEW, "limits.exempt_addresses=")
                running[lane] = stack.enter_context(serving(tmp_path_factory.mktemp("limited"), *sets))
            return running[lane]

        yield get


def flood(socket: Socket, kind: str, count: int) -> None:
    with suppress(ConnectionError):  # it is closed meanwhile
        if kind == "empty fragments":
            socket.frame(TEXT, final=False)
        for _ in range(count):
            FLOODS[kind](socket)


@pytest.mark.parametrize(
    ("kind", "has_session"),
    [*((kind, False) for kind in FLOODS), ("pings", True), ("empty arrays", True)],  # a control frame, and a message
)
def test_a_socket_that_sends_too_many_is_closed(
    limited: Callable[[tuple[str, ...]], Server], lane: tuple[str, ...], kind: str, *, has_session: bool
) -> None:
    server = limited(lane)
    before = figures(server).get(LIMITED, 0)
    socket = SocketClient(server).start().socket if has_session else Socket(server)
    flood(socket, kind, 200)
    while (frame := socket.next_frame())[0] == PONG:
        pass
    assert int.from_bytes(frame[1][:2], "big") == 1008
    assert b"limits.control_frames_per_s" in frame[1]
    assert figures(server)[LIMITED] == before + 1
    assert SocketClient(server).start().publish("/a")["successful"] is True


@pytest.mark.parametrize(
    ("kind", "lane"),
    [*((kind, LANES[0]) for kind in FLOODS), ("pings", LANES[1]), ("empty arrays", LANES[1])],
    indirect=["lane"],
)
def test_a_closed_socket_stays_until_its_client_can_have_read_why(
    limited: Callable[[tuple[str, ...]], Server], lane: tuple[str, ...], kind: str
) -> None:
    server = limited(lane)
    until(lambda: figures(server)["crewel_sockets"] == 0)
    before = figures(server).get(LIMITED, 0)
    socket = Socket(server)
    flood(socket, kind, 200)
    while socket.next_frame()[0] == PONG:
        pass
    closed_at = time.monotonic()
    # To end it now would be a reset, because much is unread, and a reset can overtake the reason.
    until(lambda: figures(server)["crewel_sockets"] == 0)
    assert 1 < time.monotonic() - closed_at < 10
    assert figures(server)[LIMITED] == before + 1


def test_many_closed_sockets_are_one_line_in_the_log(serve: Serve) -> None:
    server = serve(*FEW, "bayeux.sweep_ms=50", "storage.enabled=false")  # a slow store would be one more line
    sockets = [Socket(server) for _ in range(10)]
    for socket in sockets:
        flood(socket, "pings", 100)
    until(lambda: figures(server)[LIMITED] == 10)
    until(lambda: "limits.control_frames_per_s" in server.stderr)
    server.close()  # all that it has logged is read
    lines = [line for line in server.stderr.splitlines() if '"warning"' in line or '"error"' in line]
    assert len(lines) == 1, lines


def test_a_client_that_pings_now_and_then_is_not_noticed(serve: Serve) -> None:
    server = serve("limits.control_frames_per_s=50", "limits.control_frames_burst=10")
    client = SocketClient(server).start()
    for number in range(25):
        client.socket.frame(PING, b"%d" % number)
        assert client.socket.next_frame() == (PONG, b"%d" % number)
        time.sleep(0.021)  # slower than the rate: more than the burst are sent
    assert client.publish("/a")["successful"] is True


def test_a_message_in_many_fragments_is_read(serve: Serve) -> None:
    server = serve(*FEW)
    client = SocketClient(server).start()
    message = client.message("/a", data="x" * 20_000)
    text = json.dumps([message]).encode()
    for start in range(0, len(text), 64):
        rest = text[start + 64 :]
        client.socket.frame(CONTINUATION if start else TEXT, text[start : start + 64], final=not rest)
    assert client.reply_to(message)["successful"] is True


def test_the_limit_can_be_taken_away(serve: Serve) -> None:
    server = serve("limits.control_frames_per_s=0")
    client = SocketClient(server).start()
    for _ in range(3000):
        client.socket.frame(PONG)
    assert client.publish("/a")["successful"] is True


@pytest.mark.parametrize("kind", ["pings", "pongs", "empty fragments"])
def test_a_socket_that_sends_no_message_counts_as_silent(shared: Serve, kind: str) -> None:
    server = shared("websocket.idle_timeout_ms=500")
    begin, client = in_time(
        lambda: (time.monotonic(), SocketClient(server).start())
    )  # the time before its last message
    if kind == "empty fragments":
        client.socket.frame(TEXT, final=False)
    with suppress(ConnectionError):
        while figures(server)["crewel_sockets"] and time.monotonic() - begin < 10:
            FLOODS[kind](client.socket)
            time.sleep(0.05)
    assert 0.45 < time.monotonic() - begin < 10
    while (frame := client.socket.next_frame())[0] == PONG:
        pass
    assert int.from_bytes(frame[1][:2], "big") == 1001


@pytest.mark.parametrize("pings", [False, True], ids=["silent", "pinging"])
def test_a_socket_without_a_handshake_is_closed_in_time(serve: Serve, *, pings: bool) -> None:
    server = serve("websocket.handshake_timeout_ms=600")
    opened: list[SocketClient] = []

    def speaks() -> SocketClient:
        opened.append(SocketClient(server))
        return opened[-1].start()

    def moves() -> SocketClient:
        opened.append(SocketClient(server))
        opened[-1].id = client.id
        assert opened[-1].connect(advice={"timeout": 0})["successful"] is True
        return opened[-1]

    client = in_time(speaks)
    moved = in_time(moves)
    socket, begin = Socket(server), time.monotonic()
    while pings and figures(server)["crewel_sockets"] == 3 and time.monotonic() - begin < 10:
        socket.frame(PING)
        time.sleep(0.05)
    while (frame := socket.next_frame())[0] == PONG:
        pass
    assert int.from_bytes(frame[1][:2], "big") == 1008
    assert b"websocket.handshake_timeout_ms" in frame[1]
    assert 0.5 < time.monotonic() - begin < 10
    late = len(opened) - 2  # those that the machine has kept from their handshake
    assert figures(server)['crewel_refused_payloads_total{fault="no_handshake"}'] == 1 + late
    assert moved.publish("/a")["successful"] is True
