"""What the owner of a session gives back to the node that has the connection, and what that node makes of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, cast
from unittest.mock import Mock

import pytest

from crewel.broker.exchange import Peer
from crewel.nodes.forwarding import Forwarder, Relay
from crewel.nodes.frames import LAST_STREAM, Frame, Kind, encoded
from crewel.nodes.link import Link
from crewel.nodes.remote_peer import RemotePeer, RemoteSocket
from crewel.nodes.remote_peers import RemotePeers

pytestmark = pytest.mark.unit

CONNECT, *PUBLISHES = ([{"channel": "/meta/connect", "id": "1"}], [{"id": "2"}], [{"id": "3"}, {"id": "4"}])


class Way:
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.streams = 0

    def send(self, kind: Kind, stream: int = 0, payload: bytes = b"") -> None:
        self.frames.append(Frame(kind, stream, payload))


class Socket(Peer):
    """The client's connection."""

    transport = "websocket"
    pushes = True
    remote = None
    is_secure = False

    def __init__(self) -> None:
        super().__init__(None)
        self.is_cut_off = False

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    def send(self, parts: list[bytes]) -> None:
        pytest.fail(f"its client was sent {parts}")

    def supersede(self) -> None:
        pytest.fail("its connect was taken for an old one")

    def cut_off(self) -> None:
        self.is_cut_off = True


def forwarded(*frames: list[Any]) -> tuple[Relay, Socket]:
    first, *others = frames
    relay = Relay(cast("Link", Way()), {}, socket := Socket(), first)
    for each in others:
        relay.forward(each)
    return relay, socket


def refusal(first: list[Any], *waiting: list[Any]) -> list[Frame]:
    """What the owner sends that refuses the first frame while others wait."""
    way, peers = Way(), dict[int, RemotePeer]()
    peer = peers[1] = RemoteSocket(cast("Link", way), 1, {"browser": None}, peers)
    peer.serves()
    peer.waiting = deque(waiting)
    peer.refuse(first)
    assert peer.is_gone
    assert not peers
    peer.served(first)
    return way.frames


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_refused_frame_takes_those_with_it_that_came_behind_it_on_its_socket(count: int) -> None:
    """Nothing else has them any more: they would never be answered."""
    relay, socket = forwarded(CONNECT, *PUBLISHES[:count])
    *others, refused = [relay.take(each) for each in refusal(CONNECT, *PUBLISHES[:count])]
    assert refused == sum(PUBLISHES[:count], CONNECT)
    assert set(others) == {None}
    assert not socket.is_cut_off


def test_a_socket_is_cut_off_whose_next_frame_was_on_its_way_to_the_owner_that_refused() -> None:
    """Its client sends again what was not answered."""
    relay, socket = forwarded(CONNECT, *PUBLISHES)
    assert {relay.take(each) is None for each in refusal(CONNECT, PUBLISHES[0])} == {True}
    assert socket.is_cut_off


def test_frames_that_were_answered_before_are_not_missed() -> None:
    relay, socket = forwarded(PUBLISHES[0], CONNECT)
    way, peers = Way(), dict[int, RemotePeer]()
    peer = peers[1] = RemoteSocket(cast("Link", way), 1, {"browser": None}, peers)
    peer.serves()
    peer.served(PUBLISHES[0])
    peer.serves()
    peer.refuse(CONNECT)
    taken = [relay.take(each) for each in way.frames]
    assert taken[-1] == CONNECT
    assert not socket.is_cut_off


@pytest.mark.parametrize("is_half_closed", [False, True])
def test_the_owner_learns_that_the_client_half_closed_before_its_request_was_forwarded(is_half_closed: bool) -> None:
    forwarder, link, peer = Forwarder(Mock(), Mock(), Mock()), cast("Link", way := Way()), Socket()
    forwarder.opened(link)
    peer.is_half_closed = is_half_closed
    forwarder.forward(link, peer, CONNECT)
    assert [frame.kind for frame in way.frames] == [Kind.REQUEST, *[Kind.HALF_CLOSED] * is_half_closed]


@pytest.mark.parametrize("pause", [b"", (300).to_bytes(4)])
def test_a_connect_that_waits_for_the_store_is_not_held_for_a_client_that_sends_no_more(pause: bytes) -> None:
    """With a pause its client is there, and the node that has the connection is about to end."""
    owner, link = RemotePeers(*(Mock() for _ in range(7))), cast("Link", Way())
    owner.opened(link)
    peer = owner._peers[link][1] = RemotePeer(link, 1, {"browser": None}, {})
    owner.take(link, Frame(Kind.HALF_CLOSED, 1, pause))
    assert peer.is_half_closed is not bool(pause)


def test_the_owner_sends_nothing_to_a_socket_that_was_lost_before_its_frame_was_forwarded() -> None:
    class LostSocket(Socket):
        is_gone = True

    forwarder, link, peer = Forwarder(Mock(), Mock(), Mock()), cast("Link", way := Way()), LostSocket()
    forwarder.opened(link)
    forwarder.forward(link, peer, CONNECT)
    assert [frame.kind for frame in way.frames] == [Kind.REQUEST, Kind.GONE]
    assert peer.relay is None
    assert not len(forwarder)


def test_numbers_of_streams_begin_again_behind_the_last_one_and_pass_over_those_that_are_open() -> None:
    """A link that lasts forwards more requests than there are numbers; a socket has its own for days."""
    link, relays = cast("Link", way := Way()), {1: cast("Relay", object())}
    way.streams = LAST_STREAM - 1
    for _ in range(3):
        Relay(link, relays, Socket(), CONNECT)
    assert [frame.stream for frame in way.frames] == [LAST_STREAM, 2, 3]
    assert all(encoded(Kind(frame.kind), frame.stream, frame.payload) for frame in way.frames)
