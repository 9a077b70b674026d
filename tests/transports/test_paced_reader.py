"""aiohttp's reader gets a few frames at a time, and the next ones when their messages have been taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

import pytest
from websockets.frames import Frame, Opcode

from crewel.fair_turns import FairTurns
from crewel.transports.frame_heads import FrameHeads
from crewel.transports.paced_reader import PacedReader

PING = Frame(Opcode.PING, b"").serialize(mask=True)
TEXT = Frame(Opcode.TEXT, b"[]").serialize(mask=True)
AT_ONCE = 32


class Parser:
    """Stands for aiohttp's: what it was given, and how many messages that was."""

    def __init__(self) -> None:
        self.heads = FrameHeads()
        self.data = b""
        self.has_failed = self.is_over = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        while data:
            data = data[self.heads.cut(data, 1) :]
        return self.has_failed, b""

    def feed_eof(self) -> None:
        self.is_over = True


class Wire:
    """Stands for the connection: whether it is read."""

    def __init__(self) -> None:
        self.is_read, self.is_closed = True, False

    def hold_reading(self) -> None:
        self.is_read = False

    def read_on(self) -> None:
        self.is_read = True

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def long_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crewel.fair_turns.PORTION_S", inf)


class World:
    def __init__(self, allows: Callable[[int], bool] = lambda _: True) -> None:
        self.parser, self.wire = Parser(), Wire()
        self.turns = FairTurns(asyncio.get_running_loop())
        self.turns.slice_s = inf
        self.put_off = 0
        self.refused: list[tuple[int, str]] = []
        self.reader = PacedReader(
            self.parser, self.wire, self.turns, "192.0.2.1", allows, self.receive_less, self.refuse
        )

    def receive_less(self) -> None:
        self.put_off += 1

    def refuse(self, code: int, reason: str) -> None:
        self.refused.append((code, reason))

    def take(self, count: int) -> None:
        self.parser.heads.ends -= count
        for _ in range(count):
            self.reader.taken()


async def test_more_is_read_when_all_has_been_taken() -> None:
    world = World()
    world.reader.feed_data(TEXT * 100)
    for number in (1, 2, 3):
        assert world.parser.data == TEXT * AT_ONCE * number
        world.take(AT_ONCE - 1)
        assert world.parser.data == TEXT * AT_ONCE * number
        world.take(1)
    assert world.parser.data == TEXT * 100
    assert world.reader.is_behind
    world.take(4)
    assert not world.reader.is_behind


async def test_a_long_message_is_read_as_it_comes() -> None:
    world = World()
    frame = Frame(Opcode.TEXT, bytes(100_000)).serialize(mask=True)
    for start in range(0, len(frame), 9000):
        world.reader.feed_data(frame[start : start + 9000])
        assert len(world.parser.data) == min(start + 9000, len(frame))
    assert world.wire.is_read


async def test_fragments_are_read_before_their_message_is_whole() -> None:
    world = World()
    fragments = [
        Frame(Opcode.CONT if number else Opcode.TEXT, bytes(100), fin=False).serialize(mask=True)
        for number in range(99)
    ]
    world.reader.feed_data(b"".join(fragments))
    assert world.parser.data == b"".join(fragments)


async def test_of_a_flood_little_is_kept() -> None:
    world = World()
    world.reader.feed_data(PING * AT_ONCE)
    for _ in range(100):
        if world.wire.is_read:
            world.reader.feed_data(PING * 1000)
    assert not world.wire.is_read
    received = 0
    while world.parser.heads.ends:
        received += (ends := world.parser.heads.ends)
        assert ends <= 3 * AT_ONCE
        world.take(ends)
    assert received > 1000
    assert world.wire.is_read


async def test_frames_that_may_not_come_are_not_parsed() -> None:
    counted: list[int] = []

    def allows(count: int) -> bool:
        counted.append(count)
        return len(counted) < 2

    world = World(allows)
    world.reader.feed_data(PING * 100)
    world.take(AT_ONCE)
    assert counted == [AT_ONCE, AT_ONCE]
    assert world.parser.data == PING * AT_ONCE
    assert not world.wire.is_read
    world.reader.feed_data(PING)
    world.reader.end()
    assert world.parser.data == PING * AT_ONCE


@pytest.mark.parametrize("ends", [PacedReader.end, PacedReader.feed_eof])
async def test_at_its_end_all_is_read(ends: Callable[[PacedReader], None]) -> None:
    world = World()
    world.reader.feed_data(TEXT * 100)
    ends(world.reader)
    assert world.parser.data == TEXT * 100
    assert world.parser.is_over is (ends is PacedReader.feed_eof)


async def test_the_connection_ends_with_a_mistake() -> None:
    world = World()
    world.parser.has_failed = True
    world.reader.feed_data(TEXT * 100)
    await asyncio.sleep(0)
    assert world.wire.is_closed
    assert world.parser.data == TEXT * AT_ONCE


async def test_others_have_their_turns() -> None:
    world = World()
    world.turns.slice_s = 0.0
    world.reader.feed_data(TEXT)
    assert (world.parser.data, world.wire.is_read) == (b"", False)
    assert world.put_off == 1
    while not world.parser.data:
        await asyncio.sleep(0)
    assert world.wire.is_read


async def test_a_frame_that_is_not_masked_is_refused_and_nothing_behind_it_is_read() -> None:
    world = World()
    world.reader.feed_data(TEXT)
    world.take(1)
    world.reader.feed_data(Frame(Opcode.TEXT, b"[]").serialize(mask=False))
    world.reader.feed_data(TEXT)
    assert world.refused == [(1002, "incorrect masking")]
    assert world.parser.data == TEXT
    assert not world.wire.is_read
