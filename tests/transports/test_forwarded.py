"""Which client a request comes from, directly and behind proxies. Headers go by their names in lower case."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from crewel.settings import Settings
from crewel.settings.server_settings import Http
from crewel.transports.forwarded import Client, TrustedProxies


def behind(proxies: str) -> TrustedProxies:
    return TrustedProxies(Settings(http=Http.model_validate({"trusted_proxies": proxies})))


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        ("", "198.51.100.7", "10.0.0.1"),
        ("10.0.0.0/8", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.0/8", "", "10.0.0.1"),
        ("10.0.0.0/8", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("10.0.0.0/8", "198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("10.0.0.0/8", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.0/8", "forged, 198.51.100.7 , 10.0.0.2", "198.51.100.7"),
        ("10.0.0.0/8", "not an address", "not an address"),
        ("10.0.0.0/8", "203.0.113.9:51234", "203.0.113.9"),
        ("10.0.0.0/8", "[2001:db8::1]:443, 10.0.0.2:4000", "2001:db8::1"),
        ("10.0.0.0/8", "198.51.100.7, ::ffff:10.0.0.2", "198.51.100.7"),
        ("10.0.0.0/8", "::ffff:198.51.100.7, [::ffff:10.0.0.2]:4000", "198.51.100.7"),
        ("192.168.0.0/16", "198.51.100.7", "10.0.0.1"),
    ],
)
def test_the_first_hop_that_is_not_trusted_is_the_client(proxies: str, forwarded: str, address: str) -> None:
    client = behind(proxies).client({"host": "a", "x-forwarded-for": forwarded}, "10.0.0.1", "http")
    assert client.address == address


def test_the_nearest_proxy_tells_scheme_and_host() -> None:
    headers = {
        "host": "inner:8080",
        "x-forwarded-proto": "http, HTTPS",
        "x-forwarded-host": "forged.example, chat.example",
    }
    assert behind("10.0.0.1").client(headers, "10.0.0.1", "http") == Client("10.0.0.1", "https", "chat.example")
    for remote in ("10.0.0.2", "no address", None):
        assert behind("10.0.0.1").client(headers, remote, "http") == Client(remote, "http", "inner:8080")


def test_the_last_of_several_lines_of_a_header_is_that_of_the_nearest_proxy() -> None:
    """HAProxy leaves the client's line as it is, and adds one of its own."""
    lines = [("Host", "inner"), ("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-For", "198.51.100.7")]
    lines += [("X-Forwarded-Proto", "http"), ("X-Forwarded-Proto", "https")]
    lines += [("X-Forwarded-Host", "forged.example"), ("X-Forwarded-Host", "chat.example")]
    client = behind("127.0.0.1").client(CIMultiDict(lines), "127.0.0.1", "http")
    assert client == Client("198.51.100.7", "https", "chat.example")


def test_a_proxy_that_tells_nothing_changes_nothing() -> None:
    client = behind("::1").client({"host": "a"}, "::1%lo", "https")
    assert (client.scheme, client.host) == ("https", "a")
    assert client.is_secure
