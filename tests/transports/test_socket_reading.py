"""What a socket of the fast lane reads does not depend on how it is cut on its way."""

from __future__ import annotations

import asyncio
import random
from time import perf_counter
from typing import Any

import orjson
import pytest
from websockets.frames import Frame, Opcode

from crewel.broker.exchange import Forwarded
from crewel.settings import Settings, load
from crewel.transports.fast_lane import FastLane
from crewel.transports.shared_buffer import LEAST
from crewel.transports.websocket import Socket
from tests.transports.wires import DEFLATE, DeflatingClient, SocketClient


@pytest.fixture
def settings() -> Settings:
    return load(None, ["bayeux.extensions=", "storage.enabled=false", "bayeux.max_message_bytes=20000"])


class Heard:
    """A socket whose messages are kept instead of answered."""

    def __init__(self, lane: FastLane, monkeypatch: pytest.MonkeyPatch, *, deflates: bool = False) -> None:
        self.client = (DeflatingClient if deflates else SocketClient)(lane, acknowledges=False)
        socket = self.client.wire.protocol
        assert isinstance(socket, Socket)
        self.socket = socket
        self.messages: list[Any] = []
        monkeypatch.setattr(lane.endpoint.receiver, "receive", lambda _, elements: self.messages.append(elements[0]))

    def send(self, data: bytes) -> None:
        self.client.receive(data)

    async def read(self, data: bytes) -> None:
        self.send(data)
        await self.all()

    def has_reader(self) -> bool:
        return self.socket._protocol is not None

    async def all(self) -> None:
        """Wait until what was sent has been read: on a slow machine it takes more than a turn."""
        while self.socket._waiting:
            await asyncio.sleep(0)


@pytest.fixture
def heard(lane: FastLane, monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(lane, monkeypatch)


def frame(payload: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True, deflates: bool = False) -> bytes:
    return Frame(opcode, payload, fin=fin).serialize(mask=True, extensions=[DEFLATE] if deflates else [])


def message(number: int, rng: random.Random, *, deflates: bool) -> list[bytes]:
    """The frames of a message, with pings between its fragments. A client that compresses does it with some messages."""
    deflates = deflates and rng.random() < 0.7
    padding = rng.randbytes(1500).hex().encode()[: rng.choice((0, 20, 90, 100, 110, 300, 3000))]
    text = b'[{"n":%d,"text":"%b"}]' % (number, padding if rng.random() < 0.5 else b"x" * len(padding))
    frames, cut = [], rng.randrange(len(text)) if rng.random() < 0.3 else len(text)
    frames.append(frame(text[:cut], fin=cut == len(text), deflates=deflates))
    if rng.random() < 0.2:
        frames.append(frame(b"ping", Opcode.PING))
    if cut < len(text):
        frames.append(frame(text[cut:], Opcode.CONT, deflates=deflates))
    return frames


@pytest.mark.parametrize("deflates", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("seed", range(20))
async def test_messages_are_read_however_they_are_cut(
    lane: FastLane, monkeypatch: pytest.MonkeyPatch, seed: int, *, deflates: bool
) -> None:
    heard = Heard(lane, monkeypatch, deflates=deflates)
    rng = random.Random(seed)
    frames = [each for number in range(40) for each in message(number, rng, deflates=deflates)]
    pieces = list(frames)
    if rng.random() < 0.7:
        data, pieces = b"".join(frames), []
        while data:
            size = rng.choice((1, 2, 5, 7, 100, 1000, 3000))
            pieces.append(data[:size])
            data = data[size:]
    for piece in pieces:
        heard.send(piece)
    await heard.all()
    assert [each["n"] for each in heard.messages] == list(range(40))
    assert not heard.has_reader(), "all that has come has been read to its end"


async def test_in_a_turn_that_has_taken_long_little_of_a_flood_is_received(lane: FastLane) -> None:
    first, second, third = (SocketClient(lane, acknowledges=False) for _ in range(3))
    socket, turns = first.wire.protocol, lane.turns
    assert isinstance(socket, Socket)
    flood = frame(bytes(122), Opcode.PING) * (8 * LEAST // 128)
    calm = len(socket.get_buffer(-1))
    assert calm > len(flood)
    assert not turns.is_over()

    turns.unseen, turns.until = 0, perf_counter() - 0.5 * turns.slice_s
    first.receive(flood)
    assert not first.wire.is_read
    assert len(socket.get_buffer(-1)) == calm, "the turn is over, and has not been for long"

    turns.until = perf_counter() - turns.slice_s
    second.receive(flood)
    assert len(socket.get_buffer(-1)) == LEAST
    third.wire.written.clear()
    third.receive(flood[:LEAST])
    assert not third.wire.is_read, "nothing more of it is received in this turn"
    assert not third.wire.written
    while not third.wire.is_read:
        await asyncio.sleep(0)
    assert third.wire.written
    assert len(socket.get_buffer(-1)) == calm


async def test_a_new_client_cannot_make_a_turn_long_either(lane: FastLane, heard: Heard) -> None:
    lane.sockets.arrivals.slice_s = 0.0
    heard.send(frame(b"", Opcode.PING))
    assert len(heard.socket.get_buffer(-1)) == LEAST


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "with what follows"])
async def test_a_long_batch_of_a_new_client_waits_with_those_of_others(
    lane: FastLane, heard: Heard, *, is_alone: bool
) -> None:
    """Else each of a thousand new clients would have all messages of a batch in memory."""
    heard.send(frame(b'[{"n":0}]'))
    assert len(heard.messages) == 1
    long, short = frame(b'[{"n":1}%b]' % (b',{"n":0}' * 8)), frame(b'[{"n":2}]')
    heard.send(long if is_alone else long + short)
    assert len(heard.messages) == 1
    if is_alone:
        heard.send(short)
    await heard.all()
    assert [each["n"] for each in heard.messages] == [0, 1, 2]


@pytest.mark.parametrize("deflates", [False, True], ids=["plain", "compressed"])
async def test_a_large_message_is_read_in_pieces(
    lane: FastLane, monkeypatch: pytest.MonkeyPatch, *, deflates: bool
) -> None:
    heard = Heard(lane, monkeypatch, deflates=deflates)
    text = random.Random(1).randbytes(9000).hex().encode()
    lane.sockets.shared.room = memoryview(lane.sockets.buffer)[:LEAST]
    for number in range(3):
        await heard.read(frame(b'[{"n":%d,"text":"%b"}]' % (number, text), deflates=deflates))
    assert [each["n"] for each in heard.messages] == [0, 1, 2]
    assert {each["text"] for each in heard.messages} == {text.decode()}
    assert not heard.has_reader()


@pytest.mark.parametrize("size", [5, 200, 5000])
async def test_a_reader_of_all_forms_is_there_only_while_it_is_needed(heard: Heard, size: int) -> None:
    await heard.read(frame(b'[{"n":1}]'))
    assert not heard.has_reader()
    whole = frame(b'[{"n":2,"text":"%b"}]' % (b"x" * size))
    await heard.read(whole[:7])
    assert heard.has_reader()
    await heard.read(whole[7:])
    assert not heard.has_reader()
    await heard.read(frame(b"[", fin=False))
    assert heard.has_reader()
    await heard.read(frame(b'{"n":3}]', Opcode.CONT))
    assert not heard.has_reader()
    assert [each["n"] for each in heard.messages] == [1, 2, 3]


async def test_a_client_that_compresses_needs_no_reader_either(lane: FastLane, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(lane, monkeypatch, deflates=True)
    await heard.read(frame(b'[{"n":1}]', deflates=True))
    await heard.read(frame(b'[{"n":2}]'))
    assert [each["n"] for each in heard.messages] == [1, 2]
    assert not heard.has_reader()


async def test_what_becomes_too_large_when_it_is_decompressed_closes_the_socket(
    lane: FastLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(lane, monkeypatch, deflates=True)
    heard.client.wire.written.clear()
    await heard.read(frame(b'[{"n":"%b"}]' % (b"x" * 30_000), deflates=True))
    assert heard.client.wire.written[0][2:4] == (1009).to_bytes(2, "big")
    assert heard.messages == []


async def test_a_whole_message_amid_fragments_closes_the_socket(heard: Heard) -> None:
    await heard.read(frame(b"[", fin=False))
    heard.client.wire.written.clear()
    await heard.read(frame(b'[{"n":1}]'))
    assert heard.client.wire.written[0][:4] == b"\x88" + heard.client.wire.written[0][1:2] + (1002).to_bytes(2, "big")
    assert heard.messages == []


async def test_a_length_in_more_bytes_than_it_needs_does_not_shift_what_follows(heard: Heard) -> None:
    text = b'[{"n":1}]'
    await heard.read(b"\x81\xff" + len(text).to_bytes(8, "big") + bytes(4) + text)
    await heard.read(frame(b'[{"n":2}]'))
    third = frame(b'[{"n":3}]')
    await heard.read(third[:5])
    await heard.read(third[5:])
    assert [each["n"] for each in heard.messages] == [1, 2, 3]


async def test_nothing_that_comes_after_a_close_is_answered(heard: Heard) -> None:
    await heard.read(frame((1000).to_bytes(2, "big"), Opcode.CLOSE))
    await heard.read(frame(b'[{"n":1}]'))
    assert heard.messages == []


async def test_another_node_hears_of_a_close_after_what_came_before_it(heard: Heard) -> None:
    class Relay(Forwarded):
        def gone(self) -> None:
            heard.messages.append("gone")

    heard.socket.relay = Relay()
    heard.send(frame(b'[{"n":1}]') + frame((1000).to_bytes(2, "big"), Opcode.CLOSE))
    await asyncio.sleep(0)
    assert heard.messages == [{"n": 1}, "gone"]


@pytest.mark.parametrize("ending", ["eof_received", "cut_off", "shut", "connection_lost", "close", "last words"])
async def test_a_fan_out_reaches_sockets_of_every_kind_and_none_that_has_ended(lane: FastLane, ending: str) -> None:
    kinds = (SocketClient, DeflatingClient, SocketClient, DeflatingClient)
    clients = [kind(lane, acknowledges=False) for kind in kinds]
    for client in clients:
        client.ask({"channel": "/meta/connect"})
        client.ask({"channel": "/meta/subscribe", "subscription": "/room"})
    ended = clients[0].wire.protocol
    assert isinstance(ended, Socket)
    if ending == "close":
        clients[0].receive(frame((1000).to_bytes(2, "big"), Opcode.CLOSE))
    elif ending == "last words":
        said = clients[0].request({"channel": "/elsewhere", "data": 1})
        clients[0].receive(said + frame((1000).to_bytes(2, "big"), Opcode.CLOSE))
    else:
        arguments = {"shut": (1001, "over"), "connection_lost": (None,)}.get(ending, ())
        getattr(ended, ending)(*arguments)
    clients[0].wire.written.clear()
    lane.endpoint.broker.publish("/room", "x" * 500)
    assert not clients[0].wire.written
    session = lane.broker.session(clients[0].client_id)
    assert session is not None
    assert len(session.mailbox._queue) == 1, "it waits for the client's next connection"
    for client in clients[1:]:
        payload = client.wire.written.pop()
        if isinstance(client, DeflatingClient):
            assert payload[0] == 0xC1
            text = DEFLATE.decode(Frame(Opcode.TEXT, payload[4 if payload[1] == 126 else 2 :], rsv1=True)).data
        else:
            text = payload[4:]
        assert orjson.loads(text)[0]["data"] == "x" * 500
        assert not client.wire.written


@pytest.mark.parametrize("ending", [frame((1000).to_bytes(2, "big"), Opcode.CLOSE), None], ids=["close", "end"])
async def test_a_peer_that_ends_the_socket_and_reads_no_more_is_cut_off(
    heard: Heard, monkeypatch: pytest.MonkeyPatch, ending: bytes | None
) -> None:
    monkeypatch.setattr("crewel.transports.sockets.CLOSE_TIMEOUT_S", 0.0, raising=False)
    wire = heard.client.wire
    wire.unread = 10
    if ending is None:
        assert not heard.socket.eof_received()
    else:
        heard.send(ending)
        assert wire.is_closed
    assert not wire.is_aborted
    for _ in range(3):
        await asyncio.sleep(0)
    assert wire.is_aborted


async def test_a_socket_that_is_being_closed_carries_no_connect(lane: FastLane) -> None:
    client = SocketClient(lane, acknowledges=False)
    client.ask({"channel": "/meta/connect"})
    client.receive(client.connect())
    assert lane.broker.mailboxes.connects.held == 1
    client.receive(frame((1000).to_bytes(2, "big"), Opcode.CLOSE))
    assert lane.broker.mailboxes.connects.held == 0
