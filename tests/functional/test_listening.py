"""The sockets of an address: one for each of its forms, all on one port."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from crewel.transports.listener import bind


def resolve_to(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let any name have these addresses, as `localhost` has on many machines."""

    async def getaddrinfo(_: str, port: int, **options: Any) -> list[Any]:
        return [each for host in hosts for each in socket.getaddrinfo(host, port, type=options["type"])]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_all_addresses_of_a_name_get_the_port_that_the_system_picks(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "127.0.0.1", "::1", "127.0.0.2")
    sockets = await bind("localhost", 0)
    names = [each.getsockname()[:2] for each in sockets]
    for each in sockets:
        each.close()
    assert [host for host, _ in names] == ["127.0.0.1", "::1", "127.0.0.2"]
    assert len({port for _, port in names}) == 1


async def test_a_port_that_one_of_the_addresses_cannot_have_is_not_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    picked: list[int] = []
    bind_of_system = socket.socket.bind

    class Taken(socket.socket):
        def bind(self, address: Any) -> None:
            host, port = address
            if host == "127.0.0.2" and not picked:
                picked.append(port)
                raise OSError(98, "Address already in use")
            bind_of_system(self, address)

    monkeypatch.setattr(socket, "socket", Taken)
    sockets = await bind("localhost", 0)
    ports = {each.getsockname()[1] for each in sockets}
    for each in sockets:
        each.close()
    assert len(sockets) == 2
    assert len(ports) == 1
    assert ports != set(picked)


@pytest.mark.parametrize(("host", "serves_ipv4"), [("::", True), ("::1", False)])
async def test_the_address_for_all_of_ipv6_is_that_for_all_of_ipv4_too(host: str, serves_ipv4: bool) -> None:
    (bound,) = await bind(host, 0)
    bound.listen()
    with bound, socket.socket() as client:
        assert (client.connect_ex(("127.0.0.1", bound.getsockname()[1])) == 0) is serves_ipv4
