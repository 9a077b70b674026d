"""New clients in turns: a storm of them keeps neither those that are there nor itself for ever."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from crewel.event_loop import TURN_S
from crewel.fair_turns import AGAIN, AMID, PORTION_S, SAMPLE, FairTurns
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_fast import FastConnection
from crewel.transports.websocket import Socket
from tests.transports.wires import SocketClient, Wire

COST_S = 2**-10


class Clock:
    """A clock that stands still unless someone is served."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


class Served:
    """Who was served, and in which turn of the loop."""

    def __init__(self, arrivals: FairTurns, clock: Clock) -> None:
        self.arrivals, self.clock = arrivals, clock
        arrivals.slice_s = 5 * COST_S
        self.order: list[int] = []

    def come(self, number: int) -> None:
        if not self.arrivals.put_off(None, lambda: self.serve(number)):
            self.serve(number)

    def serve(self, number: int) -> None:
        self.order.append(number)
        self.clock.now += COST_S


async def test_a_turn_serves_as_many_as_it_has_time_for_and_the_others_follow_in_their_order() -> None:
    clock = Clock()
    served = Served(FairTurns(asyncio.get_running_loop(), clock), clock)
    for number in range(23):
        served.come(number)
    assert len(served.order) == 5
    for turn in range(2, 5):
        await asyncio.sleep(0)
        assert len(served.order) == 5 * turn
    served.come(23)
    await asyncio.sleep(0)
    assert served.order == list(range(24))


async def test_those_that_come_one_after_another_are_served_at_once() -> None:
    clock = Clock()
    served = Served(FairTurns(asyncio.get_running_loop(), clock), clock)
    for number in range(20):
        served.come(number)
        assert len(served.order) == number + 1
        await asyncio.sleep(0)


async def test_a_turn_is_shorter_by_what_it_has_lent_to_tasks() -> None:
    turns = FairTurns(asyncio.get_running_loop(), Clock())
    turns.slice_s = 2.5 * PORTION_S
    for _ in range(3):
        assert not turns.is_over()
        turns.lend()
    assert turns.is_over()
    while turns.until:  # also if the first that came in it was lent time
        await asyncio.sleep(0)
    turns.lend()
    while turns.until:
        await asyncio.sleep(0)
    assert not turns.is_over()


async def test_one_that_fails_does_not_keep_the_others() -> None:
    clock, seen = Clock(), list[object]()
    loop = asyncio.get_running_loop()
    served = Served(FairTurns(loop, clock), clock)
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    for number in range(6):
        served.come(number)

    def fail() -> None:
        raise ValueError

    assert served.arrivals.put_off(None, fail)
    served.come(6)
    for _ in range(4):
        await asyncio.sleep(0)
    loop.set_exception_handler(None)
    assert served.order == list(range(7))
    assert [type(each) for each in seen] == [ValueError]


def of(turns: FairTurns, served: list[str], address: str, name: str, *, parts: int = 1) -> None:
    """Let work of the address wait that takes so many turns of a loop, one after the other."""

    def work(left: int = parts) -> None:
        served.append(name)
        if left > 1:
            turns.later(address, lambda: work(left - 1), has_begun=True)

    turns.later(address, work)


async def all_served(served: list[str], count: int) -> None:
    while len(served) < count:
        await asyncio.sleep(0)


async def test_what_has_begun_is_finished_before_much_else_begins() -> None:
    """Each request that has begun takes memory until it ends: a thousand that advance side by side took 500 MB."""
    turns, served = FairTurns(asyncio.get_running_loop()), list[str]()
    for number in range(100):
        of(turns, served, "192.0.2.1", str(number), parts=10)
    await all_served(served, 1000)
    begun, most = set[str](), 0
    for place, name in enumerate(served):
        begun.add(name)
        if name not in served[place + 1 :]:
            begun.remove(name)
        most = max(most, len(begun))
    assert most <= AMID + 1


async def test_a_short_request_behind_a_long_one_has_its_turn_soon() -> None:
    turns, served = FairTurns(asyncio.get_running_loop()), list[str]()
    of(turns, served, "192.0.2.1", "long", parts=100)
    of(turns, served, "192.0.2.1", "short")
    await all_served(served, 101)
    assert served.index("short") == 1


async def test_a_new_address_is_first_and_keeps_no_other_waiting() -> None:
    turns, served = FairTurns(asyncio.get_running_loop()), list[str]()
    turns.slice_s = 0.0  # one of them in a turn of the loop
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        of(turns, served, address, "busy", parts=50)
    await all_served(served, 10)
    of(turns, served, "198.51.100.1", "new")
    await all_served(served, 11)
    assert served[10] == "new"
    for number in range(10):
        of(turns, served, f"198.51.100.{number}", "new")
    await all_served(served, 31)
    assert served[11:31].count("new") == served[11:31].count("busy") == 10


async def test_short_requests_look_at_the_clock_now_and_then_and_those_behind_a_long_one_at_once() -> None:
    clock = Clock()
    turns = FairTurns(asyncio.get_running_loop(), clock)
    assert turns.unseen == SAMPLE
    assert not turns.is_over()
    assert turns.unseen == AGAIN
    turns.portion()
    assert turns.unseen == 0
    assert not turns.is_over()
    turns.later("192.0.2.1", lambda: None)
    assert turns.unseen == 0
    assert turns.is_over()
    assert turns.unseen == 0
    for _ in range(3):
        await asyncio.sleep(0)
    assert turns.unseen == SAMPLE


async def test_sockets_whose_rest_ends_together_share_a_turn(lane: FastLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them with a portion each were one turn of two seconds."""
    clients = [SocketClient(lane, acknowledges=False) for _ in range(20)]
    clock = Clock()
    turns = FairTurns(lane.loop, clock)
    turns.slice_s = 5 * COST_S
    lane.sockets.turns = turns
    answered = []

    def answer(peer: object, _: object) -> None:
        answered.append(peer)
        clock.now += COST_S

    monkeypatch.setattr(lane.endpoint.receiver, "receive", answer)
    for client in clients:
        socket = client.wire.protocol
        assert isinstance(socket, Socket)
        socket.slow_down(0.0001)
        socket._rest()
        client.receive(client.request({"channel": "/room", "data": 1}))
    time.sleep(0.001)  # all rests have ended when the loop looks
    while len(answered) < 20:
        before = len(answered)
        await asyncio.sleep(0)
        assert len(answered) <= before + 5


UPGRADE = (
    b"GET /cometd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def make_full(lane: FastLane) -> None:
    """Let this turn have served new clients for long enough."""
    clock = Clock()
    arrivals = lane.sockets.arrivals = FairTurns(lane.loop, clock)
    assert not arrivals.put_off(None, lambda: None)
    clock.now += 2 * TURN_S


async def test_in_a_storm_a_client_that_is_there_goes_first(lane: FastLane) -> None:
    old, new = SocketClient(lane, acknowledges=False), SocketClient(lane, acknowledges=False)
    old.ask({"channel": "/meta/connect"})
    old.receive(old.connect())
    make_full(lane)
    wire, connection = Wire(), FastConnection(lane)
    connection.connection_made(wire)
    connection.data_received(UPGRADE)
    new.receive(new.request({"channel": "/meta/connect"}))
    new.receive(new.request({"channel": "/room", "data": 1}))
    assert not wire.written
    assert not new.wire.written
    assert old.ask({"channel": "/room", "data": 1})["channel"] == "/room"
    for _ in range(5):
        await asyncio.sleep(0)
    assert wire.written[0].startswith(b"HTTP/1.1 101 ")
    assert new.reply()["channel"] == "/room"
    assert new.reply()["channel"] == "/meta/connect"


async def test_a_client_that_leaves_before_its_turn_gets_nothing(lane: FastLane) -> None:
    make_full(lane)
    wire, connection = Wire(), FastConnection(lane)
    connection.connection_made(wire)
    connection.data_received(UPGRADE)
    connection.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not wire.written
    assert not lane.sockets.watch.sockets


async def test_what_came_before_a_socket_was_lost_is_carried_out_in_its_turn(lane: FastLane) -> None:
    heard = SocketClient(lane, acknowledges=False)
    heard.ask({"channel": "/meta/subscribe", "subscription": "/room"})
    heard.ask({"channel": "/meta/connect"})
    heard.receive(heard.connect())
    heard.wire.written.clear()
    client = SocketClient(lane, acknowledges=False)
    make_full(lane)
    client.receive(client.request({"channel": "/room", "data": "last words"}))
    client.hang_up()
    assert not heard.wire.written
    for _ in range(3):
        await asyncio.sleep(0)
    assert b"last words" in b"".join(heard.wire.written)


async def test_a_connect_of_a_socket_that_was_lost_before_its_turn_is_not_held(lane: FastLane) -> None:
    """It would take the next message from the queue of the session, and send it nowhere."""
    client = SocketClient(lane, acknowledges=False)
    client.receive(
        client.request({"channel": "/meta/subscribe", "subscription": "/room"}, {"channel": "/meta/connect"})
    )
    make_full(lane)
    client.receive(client.connect())
    client.hang_up()
    for _ in range(3):
        await asyncio.sleep(0)
    session = lane.broker.session(client.client_id)
    assert session is not None
    assert session.held is None
    lane.broker.publish("/room", "kept")
    await asyncio.sleep(0)
    assert [b"kept" in entry.wire for entry in session.mailbox._queue] == [True]


def keep_full(turns: FairTurns) -> None:
    """Let something wait in each turn, of which there is room for one thing."""
    turns.slice_s = 0.0
    turns.later("192.0.2.9", partial(keep_full, turns), has_begun=True)


async def test_an_upgrade_is_answered_while_a_flood_and_a_storm_keep_all_turns_full(lane: FastLane) -> None:
    keep_full(lane.turns)
    keep_full(lane.sockets.arrivals)
    wire, connection = Wire(), FastConnection(lane)
    connection.connection_made(wire)
    connection.data_received(UPGRADE)
    assert not wire.written
    for _ in range(200):
        await asyncio.sleep(0)
    assert wire.written[0].startswith(b"HTTP/1.1 101 ")
    lane.turns.later = lane.sockets.arrivals.later = lambda *_, **__: None  # type: ignore[method-assign]


async def test_an_upgrade_that_is_slowed_down_while_it_waits_rests_first(lane: FastLane) -> None:
    keep_full(lane.sockets.arrivals)
    wire, connection = Wire(), FastConnection(lane)
    connection.connection_made(wire)
    connection.data_received(UPGRADE)
    connection.slow_down(0.01)
    until = lane.loop.time() + 0.01
    async with asyncio.timeout(5):
        while not wire.written:
            await asyncio.sleep(0)
    assert lane.loop.time() >= until
    lane.sockets.arrivals.later = lambda *_, **__: None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("method", "headers", "at_once"),
    [("GET", {}, 1), ("HEAD", {}, 1), ("POST", {}, 20), ("GET", {"Upgrade": "websocket"}, 20)],
)
async def test_requests_of_aiohttp_share_turns_by_address(
    lane: FastLane, method: str, headers: dict[str, str], at_once: int
) -> None:
    """A thousand connections that ask for a page would be one turn. A POST and an upgrade have turns elsewhere."""
    endpoint, served = lane.endpoint, 0
    endpoint.broker.runtime.turns.slice_s = -1.0  # each turn is over at once

    async def page(_: web.Request) -> web.Response:
        nonlocal served
        served += 1
        return web.Response()

    requests = [make_mocked_request(method, "/", {"Host": "localhost", **headers}) for _ in range(20)]
    tasks = [asyncio.create_task(endpoint.guard(request, page)) for request in requests]
    counts = []
    while served < len(tasks):
        before = served
        await asyncio.sleep(0)
        counts.append(served - before)
    await asyncio.gather(*tasks)
    assert max(counts) == at_once
