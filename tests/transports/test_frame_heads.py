"""Frames are found by their heads however they are cut, and those without a message are counted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from crewel.transports.frame_heads import SMALL, FrameHeads

KINDS = st.sampled_from((Opcode.TEXT, Opcode.CONT, Opcode.BINARY, Opcode.PING, Opcode.PONG, Opcode.CLOSE))
SIZES = st.one_of(st.integers(0, 2 * SMALL), st.sampled_from((125, 126, 127, 300, 65535, 65536)))


def made(opcode: Opcode, size: int, fin: bool) -> bytes:
    """A frame of a client. One of a control frame carries 125 bytes at most."""
    is_control = opcode >= Opcode.CLOSE
    return Frame(opcode, bytes(min(size, 125) if is_control else size), fin=fin or is_control).serialize(mask=True)


@given(st.lists(st.tuples(KINDS, SIZES, st.booleans()), max_size=12), st.integers(1, 5), st.randoms())
def test_the_heads_are_found_however_the_bytes_are_cut(
    frames: list[tuple[Opcode, int, bool]], most: int, rng: random.Random
) -> None:
    data = b"".join(made(*each) for each in frames)
    expected = sum(kind >= Opcode.CLOSE or (not fin and size < SMALL) for kind, size, fin in frames)
    heads = FrameHeads()
    while data:
        piece = data[: rng.choice((1, 2, 3, 7, 100, 70_000))]
        end = heads.cut(piece, most)
        assert 0 < end <= len(piece)
        data = data[end:]
    assert heads.controls == expected
    assert not heads.is_within
    ends = [fin for kind, _, fin in frames if kind < Opcode.CLOSE]
    assert heads.is_amid is (bool(ends) and not ends[-1])


@pytest.mark.parametrize("size", [0, 5, 200, 70_000])
def test_a_cut_is_behind_so_many_frames_and_in_the_middle_of_the_last_at_most(size: int) -> None:
    frame = made(Opcode.PING if size < 126 else Opcode.TEXT, size, fin=True)
    assert FrameHeads().cut(frame * 5, 3) == 3 * len(frame)
    heads = FrameHeads()
    assert heads.cut(frame[:-1], 3) == len(frame) - 1
    assert heads.is_within
    assert heads.cut(frame[-1:] + frame, 2) == 1 + len(frame)
    assert not heads.is_within


def test_a_length_that_is_longer_than_it_needs_to_be_is_read_as_it_is() -> None:
    heads = FrameHeads()
    assert heads.cut(b"\x81\xff" + (3).to_bytes(8, "big") + bytes(4) + b"abc\x89\x80" + bytes(4), 1) == 17
    assert not heads.is_within


def test_a_compressed_frame_is_the_last_of_what_is_read_at_once() -> None:
    """32 of a few hundred bytes each were 2 MB, inflated in one turn, and were kept until each had been answered."""
    plain = made(Opcode.TEXT, 50, fin=True)
    deflated = bytes((plain[0] | 0x40,)) + plain[1:]
    assert FrameHeads().cut(plain * 3 + deflated * 4, 32) == 4 * len(plain)
    assert FrameHeads().cut(deflated * 4, 32) == len(deflated)
