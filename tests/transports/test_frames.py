"""Frames that are compressed by themselves, and shared by all receivers of a message."""

from __future__ import annotations

import os
import zlib

import pytest

from crewel.transports.websocket import Frames

LONG = [b'{"channel":"/a","data":"%b"}' % (b"x" * size) for size in (300, 5000, 100_000)]


def payload(frame: bytes) -> tuple[bool, bytes]:
    """Whether the frame is compressed, and what it carries as it travels."""
    size, start = frame[1], 2
    if size == 126:
        size, start = int.from_bytes(frame[2:4], "big"), 4
    elif size == 127:
        size, start = int.from_bytes(frame[2:10], "big"), 10
    assert len(frame) == start + size
    assert frame[0] & 0x8F == 0x81
    return bool(frame[0] & 0x40), frame[start:]


@pytest.mark.parametrize("keeps", [True, False], ids=["one window for all", "a window for each"])
def test_a_frame_is_readable_without_those_before(keeps: bool) -> None:
    frames, inflater = Frames(), zlib.decompressobj(-15)
    for part in [LONG[1], LONG[0], LONG[1], LONG[2], b"[" + os.urandom(2000).hex().encode() + b"]"]:
        compressed, data = payload(frames.deflated([part]))
        assert compressed
        if not keeps:
            inflater = zlib.decompressobj(-15)
        assert inflater.decompress(data + b"\x00\x00\xff\xff") == b"[" + part + b"]"


def test_several_messages_are_one_frame() -> None:
    compressed, data = payload(Frames().deflated(LONG[:2]))
    assert compressed
    assert zlib.decompressobj(-15).decompress(data + b"\x00\x00\xff\xff") == b"[" + b",".join(LONG[:2]) + b"]"


def test_a_short_frame_is_not_compressed() -> None:
    assert payload(Frames().deflated([b'{"a":1}'])) == (False, b'[{"a":1}]')
    assert payload(Frames().of([LONG[0]])) == (False, b"[" + LONG[0] + b"]")


def test_receivers_of_a_message_share_one_frame() -> None:
    frames = Frames()
    first, plain = frames.deflated([LONG[0]]), frames.of([LONG[0]])
    assert frames.deflated([LONG[0]]) is first
    assert frames.of([LONG[0]]) is plain
    assert frames.deflated([LONG[1]]) is not first
