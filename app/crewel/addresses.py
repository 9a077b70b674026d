"""PURE. IP addresses as clients have them: whose they are, and whether they are in the networks of a setting.

An IPv4 address in the form of IPv6 (`::ffff:10.0.0.5`), as clients have it on a socket for both, is that IPv4 address.

The answers are remembered: the same few clients and proxies come again with each handshake and connection. Parsing an address
costs more than the rest of such a check. What is remembered is bounded, for strangers choose addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_REMEMBERED: Final = 4096
_NETWORK_BITS: Final = 64  # one customer of a provider has at least so many IPv6 addresses
_MAPPED_BITS: Final = 96  # before an IPv4 address in the form of IPv6

HTTP_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
"""The schemes of the addresses of a server, and under which of them it is asked by HTTP."""

_WITH_PORT: Final = re.compile(r"\[([^\[\]]+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")


def without_port(text: str) -> str:
    """The address in a text of a proxy, without the port that some add to it; any other text is as it is."""
    found = _WITH_PORT.fullmatch(text)
    return canonical(text if found is None else found[1] or found[2])


def parse(text: str) -> IPv4Address | IPv6Address | None:
    """The address, without the zone that may follow a `%`; None for what is no address."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(_REMEMBERED)
def canonical(text: str) -> str:
    """The text of an IPv4 address that is in the form of IPv6; any other text is as it is."""
    if ":" not in text:
        return text
    address = parse(text)
    return str(address) if isinstance(address, IPv4Address) else text


def is_loopback(text: str) -> bool:
    """Whether this is an address of loopback."""
    address = parse(text)
    return address is not None and address.is_loopback


def is_loopback_host(host: str) -> bool:
    """Whether the host of a URL or of a `Host` header, in lower case, is this machine wherever it is asked for. It is
    `localhost`, or an address of loopback, with or without brackets. No name is resolved."""
    return host == "localhost" or is_loopback(host.strip("[]"))


@lru_cache(_REMEMBERED)
def holder_of(address: str | None) -> str:
    """The holder of an address: an IPv4 address itself, of an IPv6 address the network of 64 bits. What is no address is
    itself; none is the empty text."""
    if address is None:
        return ""
    parsed = parse(address)
    if parsed is None:
        return address[:64]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.is_loopback:
        return str(parsed)
    network = IPv6Address(int(parsed) >> _NETWORK_BITS << _NETWORK_BITS)
    return f"{network}/{_NETWORK_BITS}"


class Networks:
    """The networks of a setting, such as `http.trusted_proxies`."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises ValueError for what is neither an address nor a network."""
        self._networks = [_network(text) for text in texts]
        self._has = lru_cache(_REMEMBERED)(self._is_in_networks)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._networks)

    def __contains__(self, address: str | None) -> bool:
        """Whether the address is in one of them. A UNIX socket has none, and is in no network."""
        return self._has(address)

    def _is_in_networks(self, address: str | None) -> bool:
        parsed = parse(address or "")
        return parsed is not None and any(parsed in network for network in self._networks)


def _network(text: str) -> IPv4Network | IPv6Network:
    network = ip_network(text)
    first = parse(str(network.network_address))
    if isinstance(network, IPv6Network) and isinstance(first, IPv4Address) and network.prefixlen >= _MAPPED_BITS:
        return IPv4Network((first, network.prefixlen - _MAPPED_BITS))
    return network
