"""What anything may do that reaches the port of the nodes: little, for a short time, and with few words in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.errors import LinkError
from crewel.nodes.frames import VERSION, FrameReader, Introduction, Kind, encoded
from crewel.nodes.link import Dialler, LinkListener, LinkUser, OpenLinks
from crewel.nodes.strangers import MOST, QUIET_S, Strangers


class Clock(asyncio.AbstractEventLoop):
    """A loop with timers only, which go off by `wait`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], object], asyncio.TimerHandle]] = []

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.now + delay, callback, args, self)
        self.timers.append((self.now + delay, callback, handle))
        return handle

    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.timers if each[0] <= self.now]
        self.timers = [each for each in self.timers if each[0] > self.now]
        for _, callback, handle in due:
            if not handle.cancelled():
                callback()

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass


class Link:
    """A link that notes whether it was ended."""

    def __init__(self) -> None:
        self.has_ended = False

    def end(self) -> None:
        self.has_ended = True


def many(strangers: Strangers, count: int, address: str) -> list[Link]:
    links = [Link() for _ in range(count)]
    for link in links:
        strangers.came(link, address)
    return links


def test_no_more_than_the_cap_are_in_their_introduction_and_the_oldest_goes() -> None:
    strangers = Strangers(Clock())
    links = many(strangers, 3 * MOST, "a")
    assert len(strangers) == MOST
    assert [each.has_ended for each in links] == [True] * 2 * MOST + [False] * MOST


def test_an_address_with_very_many_keeps_no_other_from_coming() -> None:
    strangers = Strangers(Clock())
    (node,) = many(strangers, 1, "node")
    many(strangers, 10 * MOST, "stranger")
    assert not node.has_ended


def test_those_that_have_proved_themselves_or_gone_are_not_counted() -> None:
    strangers = Strangers(Clock())
    for link in many(strangers, MOST, "a"):
        strangers.left(link)
    assert not any(link.has_ended for link in many(strangers, MOST, "b"))


def test_the_log_has_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    strangers = Strangers(clock)
    for number in range(1600):
        address = "10.0.0.1" if number % 4 else "10.0.0.2"
        for link in many(strangers, 1, address):
            strangers.refused(link, "no proof")
            strangers.refused(link, "no proof")
    assert caplog.messages == ["a link with another node was refused: no proof (from 10.0.0.2)"]
    clock.wait(QUIET_S)
    assert caplog.messages[1:] == [
        "1599 more links with other nodes were refused within the last minute, 1200 of them from 10.0.0.1;"
        " the last one: no proof"
    ]
    clock.wait(QUIET_S)
    assert len(caplog.messages) == 2
    for link in many(strangers, 2, "10.0.0.3"):
        strangers.refused(link, "again")
    assert caplog.messages[2:] == ["a link with another node was refused: again (from 10.0.0.3)"]
    strangers.close()
    assert "1 more links with other nodes were refused within the last minute, all from 10.0.0.3" in caplog.messages[3]
    assert not [each for each in clock.timers if not each[2].cancelled()]
    assert {each.levelno for each in caplog.records} == {logging.WARNING}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
HELLOS = st.fixed_dictionaries(
    {},
    optional={
        "version": JSON | st.just(VERSION) | st.integers(1000, 4000).map("9".__mul__),
        "oldest": JSON | st.just(1),
        "token": JSON,
        "nonce": JSON,
    },
).map(orjson.dumps)
PAYLOADS = HELLOS | JSON.map(orjson.dumps) | st.binary(max_size=64)
FRAMES = st.builds(lambda kind, payload: encoded(kind, 0, payload), st.sampled_from(list(Kind)), PAYLOADS)


def refusal(data: bytes, size: int = 1 << 16) -> str:
    """Why this is refused when it comes in pieces of that size; empty if it is not."""
    reader, introduction = FrameReader(), Introduction("secret", "own", "nonce", dials=False)
    try:
        for begin in range(0, len(data), size):
            for frame in reader.feed(data[begin : begin + size]):
                introduction.take(frame)
    except LinkError as error:
        return str(error)
    assert not introduction.token
    return ""


@given(st.lists(FRAMES | st.binary(max_size=32), max_size=5).map(b"".join), st.integers(1, 50))
def test_whatever_a_stranger_sends_ends_in_few_words_or_in_silence(data: bytes, size: int) -> None:
    assert len(refusal(data, size)) < 200


@given(HELLOS)
def test_a_hello_of_any_form_is_answered_or_refused_in_few_words(hello: bytes) -> None:
    assert len(refusal(encoded(Kind.HELLO, 0, hello[:4096]))) < 200


def test_there_is_no_cap_on_links_that_this_node_has_dialled() -> None:
    assert not any(link.has_ended for link in many(Strangers(Clock(), most=inf), 3 * MOST, "a"))


@pytest.mark.server
async def test_a_node_of_another_store_is_one_line_of_the_log_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The other nodes dial it again each second."""
    loop, user = asyncio.get_running_loop(), cast("LinkUser", None)  # no link opens
    own, theirs = OpenLinks(lambda: "own"), OpenLinks(lambda: "theirs")
    own.secret, theirs.secret = "a secret", "another one"
    listener, dialler = LinkListener(loop, user, theirs), Dialler(loop, user, own)
    address = f"127.0.0.1:{await listener.listen('127.0.0.1', 0)}"
    with caplog.at_level(logging.WARNING, "crewel"):
        for _ in range(3):
            assert await dialler.reach("theirs", address) is False
        said = [each.getMessage() for each in caplog.records]
        assert len(said) == 2, "a line at each end"
        assert all(each.startswith("a link with another node was refused: ") for each in said), said
        await dialler.close()
        listener.close()
    said = [each.getMessage() for each in caplog.records[2:]]
    assert len(said) == 2
    assert all(each.startswith("2 more links with other nodes were refused ") for each in said), said
