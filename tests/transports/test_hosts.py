"""Which names a server on loopback answers to."""

from __future__ import annotations

import logging

import pytest

from crewel.settings import Settings
from crewel.settings.server_settings import Http
from crewel.transports.origins import Hosts, is_loopback


def hosts(*, on_loopback: bool | None = True, **http: object) -> Hosts:
    made = Hosts(Settings(http=Http(**http)))  # type: ignore[arg-type]
    made.on_loopback = on_loopback
    return made


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost:1",
        "127.0.0.1",
        "127.0.0.1:8080",
        "127.8.9.1:80",
        "[::1]",
        "[::1]:8080",
        "",
    ],
)
def test_names_of_loopback_are_served(host: str) -> None:
    assert hosts().allows(host, "127.0.0.1")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "localhost.evil.example", "evil.localhost.example:80", "127.0.0.1.evil.example",
     "127.0.0.1@evil.example", "evil.example@127.0.0.1", "192.0.2.1", "[2001:db8::1]:80", "[::1", "::1]", "localhost:x",
     "localhost:", "localhost:8080:80", "127.1", "0x7f000001", "0.0.0.0", "[::]", "localhost localhost", "*", "\udcff",
     "localhost,evil.example", "localhost:" + "8" * 5000],
)  # fmt: skip
def test_other_names_are_refused_on_loopback(host: str) -> None:
    assert not hosts().allows(host, "127.0.0.1")


def test_names_of_the_settings_are_served() -> None:
    named = hosts(public_url="https://Chat.example.org:8443/", allowed_hosts=("shop.example", "[2001:DB8::1]"))
    for host in ("chat.example.org", "CHAT.example.org:8443", "shop.example:8080", "[2001:db8::1]:80", "localhost"):
        assert named.allows(host, "127.0.0.1"), host
    assert not named.allows("evil.example", "127.0.0.1")


def test_every_name_is_served_where_a_setting_says_so() -> None:
    assert hosts(allowed_hosts=("*",)).allows("evil.example", "127.0.0.1")
    assert hosts(trusted_proxies=("127.0.0.1",)).allows("evil.example", "127.0.0.1")


def test_every_name_is_served_beyond_loopback() -> None:
    assert hosts(on_loopback=False).allows("chat.example", "127.0.0.1")


def test_connections_decide_where_the_listener_is_not_known() -> None:
    attached = hosts(on_loopback=None)
    for remote in ("127.0.0.1", "::1"):
        assert not attached.allows("evil.example", remote)
        assert attached.allows("localhost", remote)
    for remote in ("192.0.2.7", "2001:db8::1", "fe80::1%eth0", "", None):
        assert attached.allows("chat.example", remote)


def test_a_refused_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    refusing = hosts()
    for _ in range(3):
        refusing.refused("evil.example")
    assert caplog.text.count("evil.example") == 1
    assert "http.allowed_hosts" in caplog.text


def test_names_without_end_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    refusing = hosts()
    for number in range(1000):
        refusing.refused(f"{number}.evil.example" + "x" * 5000)
    assert len(caplog.records) <= 101
    assert max(len(record.getMessage()) for record in caplog.records) < 500


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_addresses_are_known(address: str, *, expected: bool) -> None:
    assert is_loopback(address) is expected
