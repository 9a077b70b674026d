"""A link between two nodes: its introduction, its end for silence, and what the log says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from crewel.nodes.frames import MOST_BYTES, MOST_BYTES_OF_A_STRANGER, Frame, Kind, head
from crewel.nodes.link import Dialler, Link, LinkListener, OpenLinks
from tests.nodes.test_forwarding_cost import LinkWire
from tests.nodes.test_strangers import Clock

pytestmark = pytest.mark.unit


class Loop(Clock):
    """What a link needs of a loop; its time passes by `wait`."""

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_later(when - self.now, callback, *args)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_later(0.0, callback, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)


class User:
    """What a link serves: it notes what comes."""

    def __init__(self) -> None:
        self.taken: list[Frame] = []

    def opened(self, link: Link) -> None:
        pass

    def take(self, link: Link, frame: Frame) -> None:
        self.taken.append(frame)

    def caught_up(self, link: Link) -> None:
        pass

    def lost(self, link: Link) -> None:
        pass


class FullWire(LinkWire):
    """What is written waits in it."""

    def write(self, data: Any) -> None:
        super().write(data)
        self.unread += len(data)


class Pair:
    """Both ends of a link, the first of which was dialled."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.users = User(), User()
        first, second = OpenLinks(lambda: "first"), OpenLinks(lambda: "second")
        first.secret = second.secret = "shared"
        dialler = Dialler(self.loop, self.users[0], first)
        self.links = dialler.made("second"), LinkListener(self.loop, self.users[1], second).made()
        self.wires = FullWire(), FullWire()
        for link, wire in zip(self.links, self.wires, strict=True):
            link.connection_made(wire)

    def carry(self, number: int) -> None:
        """Let all that this end has sent arrive at the other one, in one piece."""
        wire = self.wires[number]
        sent, wire.written = b"".join(wire.written), []
        self.links[1 - number].data_received(sent)

    def introduce(self) -> None:
        """Open the link."""
        for number in (0, 1, 0):
            self.carry(number)
        assert all(link.is_open for link in self.links)


def test_what_comes_in_one_piece_with_the_proof_may_be_long() -> None:
    """A node that is busy reads at once what the other one has sent in several turns."""
    pair = Pair()
    pair.carry(0)
    pair.carry(1)
    first, second = pair.links
    assert (first.is_open, second.is_open) == (True, False)
    requests = [Frame(Kind.REQUEST, 1, b"x" * (MOST_BYTES_OF_A_STRANGER + 1)), Frame(Kind.REQUEST, 2, b"{}")]
    for kind, stream, payload in requests:
        first.send(Kind(kind), stream, payload)
    pair.loop.wait(0.0)
    pair.carry(0)
    assert second.is_open
    assert pair.users[1].taken == requests


def test_a_node_that_sends_too_long_a_frame_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Both nodes would open and close links without a word."""
    pair = Pair()
    pair.introduce()
    pair.links[0].data_received(head(MOST_BYTES + 1, Kind.ANSWER, 1))
    assert pair.wires[0].is_aborted
    assert caplog.messages == [
        f"a node has sent a frame of {MOST_BYTES + 1} bytes, at most {MOST_BYTES} were expected: closing the link"
    ]


@pytest.mark.parametrize("sent", [0, 2000])
@pytest.mark.parametrize("taken", [0, 1000])
def test_a_link_that_is_not_read_ends_when_the_other_node_takes_nothing(sent: int, taken: int) -> None:
    """It does not hear that node meanwhile, which may have vanished."""
    pair = Pair()
    pair.introduce()
    link, wire = pair.links[1], pair.wires[1]
    wire.unread = 5 << 20
    link.pause_writing()
    link.pause_reading()
    for _ in range(8):
        link.send(Kind.ANSWER, 1, b"x" * sent)
        pair.loop.wait(1.0)
        wire.unread -= taken
    assert wire.is_aborted is not bool(taken)


async def test_a_link_that_opens_too_late_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has given it up, so nothing would use it, and nothing would end it."""
    loop, wire = asyncio.get_running_loop(), FullWire()

    async def connected(made: Callable[[], Link], *_: object) -> tuple[FullWire, Link]:
        link = made()
        link.connection_made(wire)  # the other node does not introduce itself
        return wire, link

    monkeypatch.setattr(loop, "create_connection", connected)
    monkeypatch.setattr("crewel.nodes.link._DIAL_S", 0.01)
    dialler = Dialler(loop, User(), OpenLinks(lambda: "first"))
    assert await dialler.reach("second", "127.0.0.1:7080") is False
    assert wire.is_aborted
