"""Text frames in their usual form: what the short way reads, websockets reads as well, and the other way round."""

from __future__ import annotations

import os
import random
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from crewel.transports.text_frames import Frames, text_frame, whole_deflated, whole_text

MOST = 70_000
SIZES = (0, 1, 2, 118, 119, 120, 123, 124, 125, 126, 127, 128, 131, 132, 133, 1000, 65535, 65536, MOST, MOST + 1)
LONG = [b'{"channel":"/a","data":"%b"}' % (b"x" * size) for size in (300, 5000, 100_000)]


def read(data: bytes, *, deflated: bool = False) -> list[Frame]:
    """The frames, as websockets reads them."""
    protocol = ServerProtocol(state=State.OPEN, max_size=MOST)
    if deflated:
        protocol.extensions = [PerMessageDeflate(True, True, 15, 15)]
    protocol.receive_data(data)
    return [frame for frame in protocol.events_received() if isinstance(frame, Frame)]


def masked(payload: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin=fin).serialize(mask=True)


@pytest.mark.parametrize("size", [size for size in SIZES if size < 65536])
def test_a_whole_text_frame_is_its_payload(size: int) -> None:
    payload = random.Random(size).randbytes(size)
    data = masked(payload)
    assert whole_text(data, MOST) == payload == read(data)[0].data
    assert whole_text(data, size) == payload
    if size:
        assert whole_text(data, size - 1) is None


@pytest.mark.parametrize("size", SIZES)
def test_a_part_of_a_frame_or_more_than_one_is_left_to_the_library(size: int) -> None:
    data = masked(b"x" * size)
    for cut in {1, 2, 3, 4, 5, 6, 7, 8, len(data) - 1}:
        if cut < len(data):
            assert whole_text(data[:cut], MOST) is None
    for more in (b"\x81", data, masked(b"", Opcode.PING)):
        assert whole_text(data + more, MOST) is None


@pytest.mark.parametrize(
    "data",
    [
        masked(b"[]", Opcode.BINARY),
        masked(b"[]", Opcode.PING),
        masked(b"[]", Opcode.CONT),
        masked(b"[]", fin=False),
        b"\xc1" + masked(b"[]")[1:],
        Frame(Opcode.TEXT, b"[]").serialize(mask=False),
        masked(b"x" * 65536),
    ],
    ids=["binary", "ping", "continuation", "first fragment", "compressed", "not masked", "of a length in eight bytes"],
)
def test_any_other_form_is_left_to_the_library(data: bytes) -> None:
    assert whole_text(data, MOST) is None


@given(
    st.sampled_from([0x81, 0x01, 0x82, 0x89, 0x91, 0xC1]),
    st.binary(min_size=4, max_size=4),
    st.binary(min_size=1, max_size=300),
    st.integers(-1, 1),
)
@example(0x81, b"mask", b"[]", 0)
@example(0x81, b"mask", b"x" * 300, 0)
def test_what_is_taken_is_one_whole_text_and_what_the_library_would_have_read(
    first: int, mask: bytes, body: bytes, beyond: int
) -> None:
    size = len(body) + beyond
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2)
    data = bytes([first]) + length + mask + body
    taken = whole_text(data, MOST)
    assert (taken is not None) is (first == 0x81 and not beyond)
    if taken is not None:
        (frame,) = read(data)
        assert (frame.opcode, frame.fin, frame.data) == (Opcode.TEXT, True, taken)


def compressed(payload: bytes, bits: int = 15) -> bytes:
    return Frame(Opcode.TEXT, payload).serialize(mask=True, extensions=[PerMessageDeflate(True, True, 15, bits)])


@pytest.mark.parametrize("bits", [9, 15])
@pytest.mark.parametrize("size", [0, 1, 100, 120, 200, 2000, 3000])
def test_a_whole_compressed_frame_is_its_payload_decompressed(size: int, bits: int) -> None:
    payload = random.Random(size).randbytes(size // 2) + b"x" * (size - size // 2)
    data = compressed(payload, bits)
    assert whole_deflated(data, MOST) == payload == read(data, deflated=True)[0].data
    assert whole_deflated(masked(payload), MOST) == payload, "a client need not compress"
    assert whole_deflated(data[:-1], MOST) is None
    assert whole_deflated(data + b"\xc1", MOST) is None


def test_what_is_too_large_once_it_is_decompressed_is_left_to_the_library() -> None:
    data = compressed(b"x" * MOST)
    assert whole_deflated(data, MOST) == b"x" * MOST
    assert whole_deflated(data, MOST - 1) is None
    assert whole_deflated(compressed(b"x" * 4_000_000), MOST) is None


@given(st.binary(max_size=100), st.integers(0, 200), st.integers(0, 255))
@example(b"", 0, 0xC1)  # as it was
def test_a_damaged_compressed_frame_is_read_as_the_library_reads_it(payload: bytes, place: int, byte: int) -> None:
    data = bytearray(compressed(payload + b"abcabcabcabc"))
    data[place % len(data)] = byte
    taken = whole_deflated(bytes(data), MOST)
    if taken is not None:
        (frame,) = read(bytes(data), deflated=True)
        assert (frame.opcode, frame.fin, frame.data) == (Opcode.TEXT, True, taken)


@pytest.mark.parametrize("size", [*SIZES, 4093, 4094, 4095, 4096, 4097])
def test_what_is_sent_is_what_the_library_would_have_sent(size: int) -> None:
    payload = random.Random(size).randbytes(size)
    assert text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)


# Frames that are compressed by themselves, and shared by all receivers of a message


def carried(frame: bytes) -> tuple[bool, bytes]:
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
        compressed, data = carried(frames.deflated([part]))
        assert compressed
        if not keeps:
            inflater = zlib.decompressobj(-15)
        assert inflater.decompress(data + b"\x00\x00\xff\xff") == b"[" + part + b"]"


def test_several_messages_are_one_frame() -> None:
    compressed, data = carried(Frames().deflated(LONG[:2]))
    assert compressed
    assert zlib.decompressobj(-15).decompress(data + b"\x00\x00\xff\xff") == b"[" + b",".join(LONG[:2]) + b"]"


def test_a_short_frame_is_not_compressed() -> None:
    assert carried(Frames().deflated([b'{"a":1}'])) == (False, b'[{"a":1}]')
    assert carried(Frames().of([LONG[0]])) == (False, b"[" + LONG[0] + b"]")


def test_receivers_of_a_message_share_one_frame() -> None:
    frames = Frames()
    first, plain = frames.deflated([LONG[0]]), frames.of([LONG[0]])
    assert frames.deflated([LONG[0]]) is first
    assert frames.of([LONG[0]]) is plain
    assert frames.deflated([LONG[1]]) is not first


def test_receivers_whose_sessions_are_elsewhere_share_a_compressed_frame() -> None:
    """A link brings the message once for each of them."""
    frames = Frames()
    first = frames.deflated([LONG[0]])
    assert frames.deflated([bytes(bytearray(LONG[0]))]) is first
