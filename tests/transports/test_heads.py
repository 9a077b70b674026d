"""Heads of the fast lane, and what is remembered of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from crewel.broker.broker import Broker
from crewel.settings import load
from crewel.transports import heads
from crewel.transports.endpoint import Endpoint
from crewel.transports.heads import Heads

LINES = ("POST /cometd HTTP/1.1", "Host: a.example", "Content-Type: application/json", "Content-Length: 12")


def raw(*more: str) -> bytes:
    """A head of the usual lines and these, which come second to last."""
    return "\r\n".join([*LINES[:-1], *more, LINES[-1], "", ""]).encode()


@pytest.fixture
def reader() -> Iterator[Heads]:
    """Reads the heads of a server with the settings that it has by itself."""
    loop = asyncio.new_event_loop()
    endpoint = Endpoint(Broker(load(None, []), loop=loop))
    rules = endpoint.hosts, endpoint.origins, endpoint.proxies
    yield Heads(endpoint.settings.bayeux, endpoint.cookie, endpoint.bound_page, *rules)
    loop.close()


def read(reader: Heads, *more: str) -> heads.Head | None:
    """The head of these lines, from nowhere in particular."""
    return reader.read(raw(*more), None, "http")


def test_head_that_is_known_says_the_same_as_one_that_is_parsed(reader: Heads) -> None:
    parsed, known = read(reader, "Cookie: BAYEUX_BROWSER=one"), read(reader, "Cookie: BAYEUX_BROWSER=one")
    assert parsed is not None
    assert known is not None
    assert parsed is not known
    for name in heads.Head.__slots__:
        assert getattr(parsed, name) == getattr(known, name)


@pytest.mark.parametrize("cookie", ["a=b; BAYEUX_BROWSER=two", "BAYEUX_BROWSER=two ; a=b", "  BAYEUX_BROWSER=two"])
def test_each_client_of_a_known_head_has_its_own_cookie(reader: Heads, cookie: str) -> None:
    for _ in range(2):
        first, second, none = (
            read(reader, "Cookie: BAYEUX_BROWSER=one"),
            read(reader, f"Cookie: {cookie}"),
            read(reader),
        )
        assert [head and head.browser for head in (first, second, none)] == ["one", "two", None]
        assert second is not None
        assert second.headers["cookie"] == cookie.lstrip()
        assert none is not None
        assert "cookie" not in none.headers


@pytest.mark.parametrize(
    "cookies",
    [
        ("Cookie: a=b", "Cookie: BAYEUX_BROWSER=one"),
        ("Cookie: a=b", "cookie: BAYEUX_BROWSER=one"),
        ("cookie: a=b", "Cookie: BAYEUX_BROWSER=one"),
        ("Cookie: a=b", "Cookie: \u00e9"),
    ],
)
def test_head_with_two_cookies_is_never_known(reader: Heads, cookies: tuple[str, str]) -> None:
    for cookie in ((), cookies[:1], cookies[1:]):
        assert read(reader, *cookie) is not None
    assert read(reader, *cookies) is None


@pytest.mark.parametrize("cookie", ["Cookie: a\x00b", "Cookie: a\rb", "Cookie: a\x7fb"])
def test_cookie_that_is_no_header_is_refused_after_a_head_that_is_known(reader: Heads, cookie: str) -> None:
    unknown = read(reader, cookie) is None
    assert read(reader) is not None
    assert (read(reader, cookie) is None) is unknown


def test_line_that_goes_on_with_the_cookie_does_not_go_on_with_another(reader: Heads) -> None:
    folded = ("X-Note: a", "Cookie: BAYEUX_BROWSER=one", " b")
    unknown = read(reader, *folded)
    read(reader, "X-Note: a", " b")
    head = read(reader, *folded)
    assert (head and head.headers) == (unknown and unknown.headers)


def test_head_is_known_for_the_scheme_and_the_address_that_it_came_from(reader: Heads) -> None:
    clients = {(address, scheme) for address in (None, "10.0.0.1", "10.0.0.2") for scheme in ("http", "https")}
    for _ in range(2):
        read_ones = {(address, scheme): reader.read(raw(), address, scheme) for address, scheme in clients}
        assert {(head.client.address, head.client.scheme) for head in read_ones.values() if head is not None} == clients


def test_foreign_origin_is_refused_each_time(reader: Heads) -> None:
    for _ in range(2):
        assert read(reader, "Origin: http://b.example") is None
        own = read(reader, "Origin: http://a.example")
        assert own is not None
        assert b"Access-Control-Allow-Origin: http://a.example\r\n" in own.lines


def test_number_of_known_heads_is_bounded(reader: Heads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_KNOWN_HEADS", 2)
    read(reader)
    known = read(reader)
    assert read(reader) is known
    for number in range(2):
        read(reader, f"X-Number: {number}")
    assert read(reader) is not known


def test_long_head_is_parsed_each_time(reader: Heads) -> None:
    note = "X-Note: " + "a" * 2048
    assert read(reader, note) is not read(reader, note)
