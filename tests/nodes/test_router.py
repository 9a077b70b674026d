"""Where a request goes while sessions move from one node to another."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from crewel.broker.node_tags import tag_of, tagged
from crewel.delivery.records import SessionName
from crewel.settings import Settings, load
from crewel.storage.nodes import Members
from tests.nodes.test_forwarding_cost import Ends, Peer, linked
from tests.nodes.test_remote_peers import Socket


@pytest.fixture
def settings() -> Settings:
    """Those of a node; reading them looks at files, which must not happen inside the event loop."""
    return load(None, ["cluster.enabled=true", "storage.url=redis://127.0.0.1:1"])


def without_lease(node: Peer, heir: Peer) -> Ends:
    """Let the node know that its sessions are at its heir now, to which it has this link."""
    membership, there = node.membership, heir.node()
    node.broker.durability.lease.own = [membership.registry.own]
    node.broker.durability.lease._ends = 0.0
    membership.registry.know(Members({each.token: each for each in (node.node(), there)}, {node.node().tag: "second"}))
    membership.registry.heir = there
    ends = Ends(membership.router.dialler.made(there.token), heir.membership.listener.made())
    membership.links.add_dialled(there.token, ends.links[0])
    return ends


async def test_a_node_without_a_lease_gives_back_what_another_node_has_forwarded(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it forwarded that to its heir, the first node would take the answer for given, and close the link that it comes by."""
    async with linked(settings) as (first, second, ends):
        third = Peer(settings, "third")
        third.membership.links.secret = "shared"
        behind = without_lease(second, third)
        socket, refused = Socket(), list[tuple[str, list[Any]]]()
        forwarder = first.membership.router.forwarder
        monkeypatch.setattr(
            forwarder._listener, "on_refused", lambda token, _, elements: refused.append((token, elements))
        )
        connect = {"channel": "/meta/connect", "id": "1", "clientId": tagged("session", tag_of("second"))}
        first.membership.router.receive(socket, [connect])
        for _ in range(5):
            ends.carry()
            await asyncio.sleep(0)
        assert len(second.membership.router.forwarder) == 0
        assert not socket.is_cut_off
        assert refused == [("second", [connect])]
        for link in behind.links:
            link.connection_lost(None)
        await third.broker.close()
        await third.lane.close(0)


async def test_a_take_over_looks_only_at_the_requests_for_the_sessions_that_have_come(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions come ten at a time: if each time woke all that wait, ten thousand sessions would cost ten million looks."""
    count, portion = 200, 10
    async with linked(settings) as (heir, _, _):
        router, registry = heir.membership.router, heir.membership.registry
        dead = replace(heir.node(), token="dead", tag=tag_of("dead"), heir=registry.own)
        registry.know(Members({each.token: each for each in (heir.node(), dead)}, {dead.tag: "dead"}))
        monkeypatch.setattr(registry, "hurry", lambda: None)
        sessions = [SimpleNamespace(id=tagged(f"{number}", dead.tag), name=f"joe/{number}") for number in range(count)]
        by_name = {each.name: each for each in sessions}
        monkeypatch.setattr(router._names, "find", by_name.get)
        came, placed = set[str](), Counter[str]()
        place = router._place
        monkeypatch.setattr(router, "_knows", came.__contains__)
        monkeypatch.setattr(router._inbound, "receive", lambda *_: None)

        def counted(elements: list[Any], since: float) -> Any:
            placed[elements[0]["clientId"]] += 1
            return place(elements, since)

        monkeypatch.setattr(router, "_place", counted)
        waiting = [
            router.receive(Socket(), [{"channel": "/meta/connect", "id": "1", "clientId": each.id}])
            for each in sessions
        ]
        for start in range(0, count, portion):
            await asyncio.sleep(0)
            arrived = sessions[start : start + portion]
            came |= {each.id for each in arrived}
            router.sessions_came([SessionName(each.name) for each in arrived])
        await asyncio.wait_for(asyncio.gather(*(each for each in waiting if each is not None)), 5)
        assert len(placed) == count
        assert max(placed.values()) <= 3  # as it arrives, before it waits, and when its session has come


@pytest.mark.parametrize("pushes", [False, True])
async def test_what_came_on_a_socket_before_it_closed_is_carried_out_when_its_session_has_come(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, *, pushes: bool
) -> None:
    """As at its own node. A request whose client has gone is in vain."""

    class Client(Socket):
        is_gone = False

    monkeypatch.setattr(Client, "pushes", pushes)
    async with linked(settings) as (heir, _, _):
        router, registry = heir.membership.router, heir.membership.registry
        dead = replace(heir.node(), token="dead", tag=tag_of("dead"), heir=registry.own)
        registry.know(Members({each.token: each for each in (heir.node(), dead)}, {dead.tag: "dead"}))
        monkeypatch.setattr(registry, "hurry", lambda: None)
        session = SimpleNamespace(id=tagged("1", dead.tag), name="joe/1")
        monkeypatch.setattr(router._names, "find", {session.name: session}.get)
        came, received = set[str](), list[list[Any]]()
        monkeypatch.setattr(router, "_knows", came.__contains__)
        monkeypatch.setattr(router._inbound, "receive", lambda _, elements: received.append(elements))
        client, publish = Client(), [{"channel": "/a", "id": "1", "clientId": session.id, "data": 1}]
        waiting = router.receive(client, publish)
        assert waiting is not None
        await asyncio.sleep(0)
        client.is_gone = True
        came.add(session.id)
        router.sessions_came([SessionName(session.name)])
        async with asyncio.timeout(5):
            await waiting
    assert received == [publish] * pushes
