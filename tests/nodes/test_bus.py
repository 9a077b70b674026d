"""What one node knows of the subscribers at another one."""

from __future__ import annotations

from math import inf

import orjson
import pytest

from crewel.bayeux.channel import Channel, parse
from crewel.nodes.bus import _MESSAGE
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import Link
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


def begin_again(peer: Peer, *others: Peer) -> None:
    """It was taken for dead, and has another token now, which all know."""
    peer.broker.runtime.access.token = "again"
    known = [each.node() for each in (peer, *others)]
    for each in (peer, *others):
        each.membership.registry.know(Members({node.token: node for node in known}, {}))


def linked_again(first: Peer, second: Peer, ends: Ends) -> Ends:
    """The link is lost, and the first node has dialled another one."""
    for link in ends.links:
        link.connection_lost(None)
    token = second.membership.registry.own
    again = Ends(first.membership.router.dialler.made(token), second.membership.listener.made())
    first.membership.links.add_dialled(token, again.links[0])
    for _ in range(2):  # what the second node wants, and the confirmation of the first
        again.carry()
    return again


async def test_a_node_that_begins_again_is_linked_under_its_new_token(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each subscribe at the other nodes waits two seconds for the token that no link says."""
    async with linked(settings) as (first, second, ends):
        ends.carry()
        assert second.membership.bus.announced() is None
        ended: list[Link] = []

        def end(link: Link) -> None:
            ended.append(link)

        monkeypatch.setattr(Link, "end", end)
        begin_again(first, second)
        first.membership.registry.changed()
        assert ended == [ends.links[0]]
        again = linked_again(first, second, ends)
        assert second.membership.bus.announced() is None
        first.membership.registry.changed()
        assert ended == [ends.links[0]]
        for link in again.links:
            link.connection_lost(None)


async def test_messages_are_counted_again_from_one_after_a_node_has_begun_again(settings: Settings) -> None:
    async with linked(settings) as (first, second, ends):
        head = orjson.dumps(["/room", "first", "", False, 5, None])

        def take(link: Link, number: int) -> int:
            payload = _MESSAGE.pack(number, len(head)) + head + b"{}"
            second.membership.bus.take(link, Frame(Kind.MESSAGE, 0, payload))
            return int(second.broker.metrics.bus_lost)

        assert [take(ends.links[1], number) for number in (1, 2, 4)] == [0, 0, 1]
        begin_again(second, first)
        again = linked_again(first, second, ends)
        assert [take(again.links[1], number) for number in (1, 3)] == [1, 2]
        for link in again.links:
            link.connection_lost(None)
