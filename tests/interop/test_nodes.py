"""Other people's clients chat across two nodes, behind a balancer that takes connections to them in turn."""

from __future__ import annotations

import pytest

from tests.conftest import StartServer
from tests.functional.cluster import LONG, NODE
from tests.functional.wire import figures
from tests.interop.conftest import OpenPeer
from tests.interop.peers import KINDS, Kind
from tests.lines import Balancer

NEWEST = [kind for kind in KINDS if kind.version in ("9", "1.4", "0.5")]
LANES = ["http.fast_lane=true", "http.fast_lane=false"]
ROUNDS = 3


@pytest.mark.parametrize("lane", LANES)
async def test_all_clients_of_a_room_hear_each_other_wherever_their_requests_go(
    lane: str, start_server: StartServer, open_peer: OpenPeer
) -> None:
    first = start_server(NODE, LONG, lane)
    nodes = [first, start_server(*first.store_sets, NODE, LONG, lane)]
    ports = [each.port for each in nodes if each.port is not None]
    kinds = [kind for kind in NEWEST if kind.lane == lane or kind.transport == "websocket"]
    async with Balancer(lambda: ports) as balancer:
        peers = [await open_peer(kind, balancer.port, extensions=reliable(kind)) for kind in kinds]
        for peer in peers:
            await peer.subscribe("/room")
        for number in range(ROUNDS):
            for sender, peer in enumerate(peers):
                await peer.publish("/room", [sender, number])
        expected = [[sender, number] for sender in range(len(peers)) for number in range(ROUNDS)]
        for peer in peers:
            await peer.hears(*expected)
            # Each once, and those of one publisher in its order; of two publishers at two nodes, either may be first.
            assert sorted(peer.heard(), key=lambda data: data[0]) == expected
            assert len(peer.told("handshaken")) == 1
    assert sum(figures(each)["crewel_forwarded_total"] for each in nodes)


def reliable(kind: Kind) -> list[str]:
    """The acknowledge extension, where the library has it."""
    return ["ack"] if kind.library == "cometd" else []
