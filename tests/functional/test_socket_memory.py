"""What WebSockets cost: little while they are idle, and nothing that stays when they are closed."""

from __future__ import annotations

from tests.functional.conftest import Serve, one_lane
from tests.functional.frames import SocketClient
from tests.functional.wire import descriptors, resident, until
from tests.server_process import Server

KIB = 1024
COUNT = 200
DEFLATE = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}


def opened(server: Server) -> list[SocketClient]:
    """Sessions over sockets that compress, each of which has been sent a long message."""
    clients = [SocketClient(server, headers=DEFLATE).start() for _ in range(COUNT)]
    clients[0].subscribe("/a")
    for client in clients[1:]:
        client.send(client.message("/meta/subscribe", subscription="/a"))
        client.socket.receive()
    clients[0].publish("/a", "x" * 5000)
    for client in clients[1:]:
        assert client.heard() == ["x" * 5000]
        assert client.socket.compressed_frames == 1
    return clients


def closed(server: Server, clients: list[SocketClient], before: int) -> None:
    for client in clients:
        assert client.call("/meta/disconnect")["successful"] is True
        client.socket.connection.close()
    until(lambda: descriptors(server) <= before)


@one_lane
def test_sockets_that_compress_cost_little_and_leave_nothing(serve: Serve) -> None:
    server = serve()
    open_before = descriptors(server)
    closed(server, opened(server), open_before)  # what the first ones need stays for all that follow
    before = resident(server)
    clients = opened(server)
    assert resident(server) - before < COUNT * 40 * KIB
    closed(server, clients, open_before)
    for _ in range(2):
        closed(server, opened(server), open_before)
    assert resident(server) - before < COUNT * 20 * KIB
