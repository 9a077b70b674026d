"""What one node knows of the subscribers at another one."""

from __future__ import annotations

from math import inf

import pytest

from crewel.bayeux.channel import Channel, parse
from crewel.settings import Settings, load
from crewel.storage.nodes import Members, Node
from tests.nodes.test_forwarding_cost import Ends, Peer, linked

ROOM = "/room"


@pytest.fixture
def settings() -> Settings:
    """Those of a node; reading them looks at files, which must not happen inside the event loop."""
    return load(None, ["cluster.enabled=true", "storage.url=redis://127.0.0.1:1"])


def subscribe(second: Peer, ends: Ends) -> None:
    """There is a subscriber at the second node, and the first one knows it."""
    second.membership.bus.wants(ROOM)
    ends.carry()


def receivers(peer: Peer) -> set[str]:
    """The nodes that it sends a message of the room to."""
    channel = parse(ROOM)
    assert isinstance(channel, Channel)
    return set(peer.membership.bus._receivers(channel))


async def test_a_node_that_the_store_no_longer_has_wants_nothing(settings: Settings) -> None:
    """At the heir it is gone between two looks: the record is deleted by the take-over itself."""
    async with linked(settings) as (first, second, ends):
        subscribe(second, ends)
        assert receivers(first) == {"second"}
        registry = first.membership.registry
        registry.know(Members({registry.own: first.node()}, {}))
        registry.changed()
        assert receivers(first) == set()
        assert not first.membership.bus._wanted


async def test_what_the_heir_of_a_node_wants_is_known_before_the_store_says_who_it_is(settings: Settings) -> None:
    async with linked(settings) as (first, second, ends):
        subscribe(second, ends)
        registry = first.membership.registry
        registry.heir = Node("second", "", "", "", None, inf, 0, 0, "")
        registry.know(Members({registry.own: first.node()}, {}))
        registry.changed()
        assert receivers(first) == {"second"}
