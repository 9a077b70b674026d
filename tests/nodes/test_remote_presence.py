"""What one node knows of the presence at another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import NamedTuple

import orjson
import pytest

from crewel.broker.presence.presence import Left
from crewel.broker.presence.presence_set import OWN, PresenceEntry
from crewel.nodes.frames import Frame, Kind
from crewel.settings import Settings, load
from crewel.storage.nodes import Members, Node
from tests.nodes.test_forwarding_cost import Ends, Peer, linked

ROOM = "/room"


@pytest.fixture
def settings() -> Settings:
    """Those of a node; reading them looks at files, which must not happen inside the event loop."""
    return load(None, ["cluster.enabled=true", "storage.url=redis://127.0.0.1:1"])


def put(peer: Peer, session: str, *, is_stored: bool = False) -> None:
    """A session of the peer enters."""
    peer.broker.presence._put(PresenceEntry(ROOM, session, f"member of {session}", b"null", 1, is_stored))
    peer.broker.presence._flush()


def take_out(peer: Peer, session: str) -> None:
    """It leaves."""
    peer.broker.presence.entries.take_out(OWN, session, ROOM)
    peer.broker.presence._announce(Left(ROOM, session))
    peer.broker.presence._flush()


def members(peer: Peer) -> set[str]:
    return {each.removeprefix("member of ") for each in peer.broker.presence.entries.on(ROOM).members}


@asynccontextmanager
async def met(settings: Settings) -> AsyncIterator[tuple[Peer, Peer, Both]]:
    """Two nodes that have dialled each other."""
    async with linked(settings) as (first, second, ends):
        nodes = [each.node() for each in (first, second)]
        second.membership.registry.know(Members({node.token: node for node in nodes}, {}))
        back = Ends(second.membership.router.dialler.made("first"), first.membership.listener.made())
        second.membership.links.add_dialled("first", back.links[0])
        yield first, second, Both(ends, back)
        for link in back.links:
            link.connection_lost(None)


class Both(NamedTuple):
    """The links in both directions."""

    there: Ends
    back: Ends

    def carry(self) -> None:
        for each in self:
            each.carry()


async def settle(ends: Both) -> None:
    """Let questions and answers cross the link, as long as there are any."""
    for _ in range(8):
        await asyncio.sleep(0)
        ends.carry()


async def test_what_enters_at_one_node_is_present_at_the_other(settings: Settings) -> None:
    async with met(settings) as (first, second, ends):
        put(first, "early")
        await settle(ends)
        put(first, "late")
        ends.carry()
        assert members(second) == {"early", "late"}
        take_out(first, "late")
        ends.carry()
        assert members(second) == {"early"}


async def test_a_version_that_was_missed_is_a_reason_to_ask_for_all(settings: Settings) -> None:
    async with met(settings) as (first, second, ends):
        put(first, "a")
        await settle(ends)
        first.membership.presence._version += 1  # as if a frame had been lost
        put(first, "b")
        await settle(ends)
        assert members(second) == {"a", "b"}


async def test_many_versions_in_one_turn_are_one_question(settings: Settings) -> None:
    async with met(settings) as (first, second, ends):
        for number in range(20):
            put(first, str(number))
        ends.carry()
        assert len(second.broker.runtime._tasks) == 1
        await settle(ends)
        assert members(second) == {str(number) for number in range(20)}
        put(first, "later")
        ends.carry()
        assert "later" in members(second)
        assert not second.membership.presence._asking


async def test_a_repeated_version_is_answered_by_a_question_only_if_it_is_newer(settings: Settings) -> None:
    async with met(settings) as (first, second, ends):
        put(first, "a")
        await settle(ends)
        known = dict(second.membership.presence._known)
        first.membership.registry.changed()
        ends.carry()
        assert not second.membership.presence._asking
        link = ends.there.links[1]
        second.membership.presence.take(link, Frame(Kind.PRESENCE, 0, orjson.dumps([known[link.token] + 1, []])))
        await asyncio.sleep(0)
        assert second.membership.presence._asking
        await settle(ends)


async def test_sessions_that_are_not_stored_end_with_their_node_and_the_others_with_its_record(
    settings: Settings,
) -> None:
    async with met(settings) as (first, second, ends):
        put(first, "transient")
        put(first, "client/joe/1", is_stored=True)
        await settle(ends)
        assert members(second) == {"transient", "client/joe/1"}
        registry = second.membership.registry
        dead = Node(first.membership.registry.own, "", "", "", None, -inf, 0, 0, "")
        assert not dead.lives
        registry.know(Members({registry.own: second.node(), dead.token: dead}, {}))
        registry.changed()
        assert members(second) == {"client/joe/1"}
        registry.know(Members({registry.own: second.node()}, {}))
        registry.changed()
        assert members(second) == {"client/joe/1"}  # its heir may not have been heard yet
        second.membership.presence._forget(dead.token)
        assert members(second) == set()
        assert second.broker.presence.entries.of_node(OWN) == []
