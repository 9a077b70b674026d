"""What it costs in calls to forward a request: a guard against work that creeps onto the way between two nodes.

As `tests/transports/test_delivery_cost.py`, with the client at one node and its session at another one: from the bytes of the
connect to the bytes of the answer, at both nodes together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import inf

import pytest
from aiohttp import web

from crewel import server
from crewel.broker.node_tags import tag_of
from crewel.nodes.link import Link
from crewel.settings import Settings, load
from crewel.storage.nodes import Members, Node
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_fast import FastConnection
from tests.transports.wires import Client, Wire
from tests.work import calls

SESSIONS = 50

# The figures of this version. Lower them when you make it cheaper; raise them only for a reason that a user would accept.
MAX_CALLS_PLAIN = 116
MAX_CALLS_ACKNOWLEDGED = 128


class LinkWire(Wire):
    """One end of a link."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_reading(self) -> bool:
        return self.is_read


class Ends:
    """Both ends of a link."""

    def __init__(self, *links: Link) -> None:
        self.links = links
        self._wires = [LinkWire(), LinkWire()]
        for link, wire in zip(links, self._wires, strict=True):
            link.connection_made(wire)
        while any(wire.written for wire in self._wires):
            self.carry()
        assert all(link.is_open for link in links)

    def carry(self) -> None:
        """Let what either end has to send arrive at the other one."""
        for link in self.links:
            if link._unsent:
                link._flush()
        for wire, other in zip(self._wires, reversed(self.links), strict=True):
            sent, wire.written = wire.written, []
            for data in sent:
                other.data_received(data)


class Peer:
    """A node without a store."""

    def __init__(self, settings: Settings, token: str) -> None:
        self.app = web.Application()
        self.broker = server.attach(self.app, settings)
        self.membership = self.app[server.NODES]
        self.broker.runtime.access.token = token
        self.broker.durability.lease._ends = inf
        self.lane = FastLane(self.app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("to aiohttp")))
        self.lane.turns.unseen = 1_000_000  # the test makes many in one turn

    def node(self) -> Node:
        """What the store would say of it."""
        token = self.broker.runtime.access.token
        return Node(token, "name", tag_of(token), "", None, inf, 0, 0, "")


@asynccontextmanager
async def linked(settings: Settings) -> AsyncIterator[tuple[Peer, Peer, Ends]]:
    """Two nodes, the first of which forwards to the second; and the link."""
    async with AsyncExitStack() as stack:
        peers = [Peer(settings, token) for token in ("first", "second")]
        nodes = [each.node() for each in peers]
        for each in peers:
            stack.push_async_callback(each.broker.close)
            stack.push_async_callback(each.lane.close, 0)
            each.membership.links.secret = "shared"
        members = Members({node.token: node for node in nodes}, {node.tag: node.token for node in nodes})
        peers[0].membership.registry.know(members)
        first, second = (each.membership for each in peers)
        ends = Ends(
            first.router.dialler.made(nodes[1].token),
            second.listener.made(),
        )
        first.links.add_dialled(nodes[1].token, ends.links[0])
        yield peers[0], peers[1], ends
        for link in ends.links:
            link.connection_lost(None)


@pytest.fixture
def settings() -> Settings:
    """The settings of a node; reading them looks at files, which must not happen inside the event loop."""
    return load(None, ["bayeux.max_sessions_per_browser=-1", "cluster.enabled=true", "storage.url=redis://127.0.0.1:1"])


async def calls_per_delivery(settings: Settings, *, acknowledges: bool) -> tuple[float, Counter[str]]:
    async with linked(settings) as (first, second, ends):
        clients = [Client(second.lane, acknowledges=acknowledges) for _ in range(SESSIONS)]
        for client in clients:
            client.ask({"channel": "/meta/subscribe", "subscription": "/room"})
            client.ask({"channel": "/meta/connect"})
            client.connection = FastConnection(first.lane)
            client.connection.connection_made(client.wire)
            client.receive = client.connection.data_received
            client.receive(client.connect())
        ends.carry()
        assert second.broker.mailboxes.connects.held == SESSIONS
        counted: Counter[str] = Counter()

        def forward(requests: list[bytes]) -> None:
            for client, data in zip(clients, requests, strict=True):
                client.receive(data)
            ends.carry()

        for _ in range(2):  # in the first round each connection sees its connect's head for the first time
            counted.clear()
            counted.update(calls(partial(second.broker.publish, "/room", {"text": "x" * 40})))
            counted.update(calls(second.broker.mailboxes.outbound._flush))
            counted.update(calls(ends.carry))
            for client in clients:
                client.reply()
            counted.update(calls(partial(forward, [client.connect() for client in clients])))
            assert second.broker.mailboxes.connects.held == SESSIONS
    return counted.total() / SESSIONS, counted


async def test_a_forwarded_delivery_makes_no_more_calls_than_before(settings: Settings) -> None:
    figure, counted = await calls_per_delivery(settings, acknowledges=False)
    assert figure <= MAX_CALLS_PLAIN, counted.most_common(90)


async def test_a_forwarded_acknowledged_delivery_makes_no_more_calls_than_before(settings: Settings) -> None:
    figure, counted = await calls_per_delivery(settings, acknowledges=True)
    assert figure <= MAX_CALLS_ACKNOWLEDGED, counted.most_common(90)
