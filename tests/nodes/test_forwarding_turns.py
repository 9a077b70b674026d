"""What a link brings in one piece is served in turns, as what connections bring: else the clients of a node that asks for much
keep all others."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from crewel.settings import Settings, load
from crewel.transports.http_fast import FastConnection
from tests.nodes.test_forwarding_cost import Ends, Peer, linked
from tests.transports.wires import Client, SocketClient, Wire

pytestmark = pytest.mark.unit

COUNT = 20


@pytest.fixture
def settings() -> Settings:
    """The settings of a node; reading them looks at files, which must not happen inside the event loop."""
    sets = ("bayeux.max_sessions_per_browser=-1", "bayeux.trust_client_session=true")
    return load(None, [*sets, "cluster.enabled=true", "storage.url=redis://127.0.0.1:1"])


class Elsewhere(SocketClient):
    """A socket that has reached another node than its session."""

    def __init__(self, node: Peer, home: Client) -> None:
        self.wire = Wire()
        self.connection = FastConnection(node.lane)
        self.connection.connection_made(self.wire)
        self.receive = self.open()
        self.acknowledges, self.client_id, self.sent = False, home.client_id, 100


def serve_one_a_turn(node: Peer) -> None:
    """Whatever one client asks for is long enough for a turn."""
    turns = node.broker.runtime.turns
    turns.slice_s, turns.unseen = 0.0, 0


async def turn(ends: Ends) -> None:
    """One of the loop of both nodes, and what they have sent arrives."""
    await asyncio.sleep(0)
    ends.carry()
    ends.carry()


async def test_the_requests_of_many_clients_have_their_turns(settings: Settings) -> None:
    async with linked(settings) as (first, second, ends):
        clients = [Client(second.lane, acknowledges=False) for _ in range(COUNT)]
        serve_one_a_turn(second)
        for client in clients:
            client.connection = FastConnection(first.lane)
            client.connection.connection_made(client.wire)
            client.connection.data_received(client.request({"channel": "/room", "data": 1}))
        answered = 0
        while answered < COUNT:
            before = answered
            await turn(ends)
            answered = sum(bool(client.wire.written) for client in clients)
            assert answered - before <= 2
        assert all(client.reply()["successful"] for client in clients)


async def test_the_frames_of_a_socket_have_theirs_in_their_order(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crewel.fair_turns.PORTION_S", 0.0)
    async with linked(settings) as (first, second, ends):
        home = Client(second.lane, acknowledges=False)
        socket = Elsewhere(first, home)
        serve_one_a_turn(second)
        for _ in range(COUNT):
            socket.receive(socket.request({"channel": "/room", "data": 1}))
        while len(socket.wire.written) < COUNT:
            before = len(socket.wire.written)
            await turn(ends)
            assert len(socket.wire.written) - before <= 2
        replies = [orjson.loads(frame[frame.index(b"[{") :])[0] for frame in socket.wire.written]
        assert [int(reply["id"]) for reply in replies] == list(range(101, 101 + COUNT))


@pytest.mark.parametrize("are_sockets", [False, True])
async def test_a_client_that_has_gone_before_its_turn_is_served_as_at_its_own_node(
    settings: Settings, *, are_sockets: bool
) -> None:
    """What came on a socket is carried out; a request is not even begun."""
    async with linked(settings) as (first, second, ends):
        clients: list[Client] = [Elsewhere(first, Client(second.lane, acknowledges=False)) for _ in range(COUNT)]
        if not are_sockets:
            clients = [Client(second.lane, acknowledges=False) for _ in range(COUNT)]
            for client in clients:
                client.connection = FastConnection(first.lane)
                client.connection.connection_made(client.wire)
                client.receive = client.connection.data_received
        serve_one_a_turn(second)
        for number, client in enumerate(clients):
            client.receive(client.request({"channel": f"/room/{number}", "data": 1}))
            client.hang_up()
        for _ in range(3 * COUNT):
            await turn(ends)
        known = sum(f"/room/{number}" in second.broker.addressing.channels for number in range(COUNT))
        assert known == (COUNT if are_sockets else 0)
