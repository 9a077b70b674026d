"""The frames of links between nodes, and the proof that both ends belong to one store."""

from __future__ import annotations

import orjson
import pytest

from crewel.errors import LinkError
from crewel.nodes.frames import (
    MOST_BYTES,
    MOST_BYTES_OF_A_STRANGER,
    OLDEST,
    VERSION,
    Frame,
    FrameReader,
    Introduction,
    Kind,
    encoded,
)

SECRET = "what the store has"
SOME = [
    Frame(Kind.HELLO, 0, b"{}"),
    Frame(Kind.ANSWER, 7, b"\x00" + b"x" * 3000),
    Frame(Kind.PING, 2**32 - 1, b""),
    Frame(200, 3, b"of a later version"),
]


def wire(frames: list[Frame]) -> bytes:
    return b"".join(encoded(frame.kind, frame.stream, frame.payload) for frame in frames)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 8, 9, 10, 1000, 5000])
def test_frames_are_found_however_their_bytes_come(size: int) -> None:
    data, reader, found = wire(SOME), FrameReader(), []
    for begin in range(0, len(data), size):
        found += reader.feed(data[begin : begin + size])
    assert found == SOME


def test_a_frame_that_is_too_long_is_refused_before_its_payload_has_come() -> None:
    reader = FrameReader()
    assert reader.feed(encoded(Kind.HELLO, 0, b"x" * MOST_BYTES_OF_A_STRANGER)) != []
    with pytest.raises(LinkError, match="4097 bytes, at most 4096"):
        reader.feed(encoded(Kind.HELLO, 0, b"x" * (MOST_BYTES_OF_A_STRANGER + 1))[:9])


def test_a_frame_that_is_too_long_behind_others_waits_until_they_were_taken() -> None:
    """They may be the proof, behind which frames may be longer."""
    reader, proof = FrameReader(), Frame(Kind.PROOF, 0, b"p" * 32)
    long = Frame(Kind.ALL_PATTERNS, 0, b"x" * (MOST_BYTES_OF_A_STRANGER + 1))
    assert reader.feed(wire([proof, long, SOME[2]])) == [proof]
    reader.most_bytes = MOST_BYTES
    assert reader.feed(b"") == [long, SOME[2]]
    assert reader.feed(b"") == []


def only(data: bytes) -> Frame:
    (frame,) = FrameReader().feed(data)
    return frame


def dialling(secret: str = SECRET, *, nonce: str = "n1", expected: str = "") -> Introduction:
    return Introduction(secret, "a", nonce, dials=True, expected=expected)


def accepting(secret: str = SECRET, *, nonce: str = "n2") -> Introduction:
    return Introduction(secret, "b", nonce, dials=False)


def test_two_nodes_that_know_the_secret_trust_each_other() -> None:
    first, second = dialling(expected="b"), accepting()
    second_proof = second.take(only(first.hello))
    first_proof = first.take(only(second.hello))
    assert (first.token, second.token) == ("", "")
    assert first.take(only(second_proof)) == second.take(only(first_proof)) == b""
    assert (first.token, second.token) == ("b", "a")


def test_a_node_of_another_store_is_refused_by_both() -> None:
    first, second = dialling("one"), accepting("another")
    proofs = second.take(only(first.hello)), first.take(only(second.hello))
    for side, proof in zip((first, second), proofs, strict=True):
        with pytest.raises(LinkError, match="does not know the secret"):
            side.take(only(proof))
        assert not side.token


def test_what_a_node_has_said_cannot_be_said_back_to_it() -> None:
    node = accepting()
    proof = node.take(only(node.hello))
    with pytest.raises(LinkError, match="does not know the secret"):
        node.take(only(proof))


def test_a_proof_is_good_for_one_link() -> None:
    first, second = dialling(), accepting()
    second.take(only(first.hello))
    proof = first.take(only(second.hello))
    other = accepting(nonce="n3")
    other.take(only(first.hello))
    with pytest.raises(LinkError, match="does not know the secret"):
        other.take(only(proof))


def test_an_address_that_another_node_has_by_now_is_noticed() -> None:
    with pytest.raises(LinkError, match="another node has this address"):
        dialling(expected="c").take(only(accepting().hello))


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (b"GET / HTTP/1.1", "not a node"),
        (b"[]", "not a node"),
        (orjson.dumps({"version": "x", "oldest": 1, "token": "a"}), "not a node"),
        (orjson.dumps({"version": 1, "token": "a"}), "not a node"),
        (orjson.dumps({"version": OLDEST - 1, "oldest": 1, "token": "a"}), f"version 1 to {OLDEST - 1}"),
        (orjson.dumps({"version": 9, "oldest": VERSION + 1, "token": "a"}), f"version {VERSION + 1} to 9"),
    ],
)
def test_a_hello_that_is_none_or_of_a_version_too_far_away_is_refused(hello: bytes, why: str) -> None:
    with pytest.raises(LinkError, match=why):
        accepting().take(Frame(Kind.HELLO, 0, hello))


@pytest.mark.parametrize("version", [9, OLDEST])
def test_a_hello_of_a_later_version_or_of_the_oldest_one_is_answered(version: int) -> None:
    node = accepting()
    assert node.take(Frame(Kind.HELLO, 0, orjson.dumps({"version": version, "oldest": 1, "token": "a", "nonce": "n"})))


@pytest.mark.parametrize("kind", [Kind.PROOF, Kind.REQUEST, Kind.PING, 200])
def test_nothing_else_counts_before_the_introduction_is_over(kind: int) -> None:
    with pytest.raises(LinkError, match=f"kind {int(kind)} before"):
        accepting().take(Frame(kind, 0, b""))


def test_a_second_hello_is_refused() -> None:
    node = accepting()
    node.take(only(dialling().hello))
    with pytest.raises(LinkError, match="kind 1 before"):
        node.take(only(dialling(nonce="other").hello))
