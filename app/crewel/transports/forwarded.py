"""The client that a request comes from. `X-Forwarded-*` headers count only from a proxy in `http.trusted_proxies`.

Headers are asked for by their names in lower case, so that a plain dictionary of such names serves as well as one that ignores
case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from multidict import MultiMapping

from crewel import addresses
from crewel.addresses import Networks
from crewel.settings import Settings


class Client(NamedTuple):
    """The client behind the proxies: its address, and the scheme and host that it used."""

    address: str | None
    scheme: str
    host: str

    @property
    def is_secure(self) -> bool:
        """Whether it came by TLS."""
        return self.scheme in ("https", "wss")


class TrustedProxies:
    """The proxies that may say which client a request comes from."""

    def __init__(self, settings: Settings) -> None:
        self.are_set = bool(settings.http.trusted_proxies)
        """Whether there are any, so that the address of a connection matters."""
        self._proxies = Networks(settings.http.trusted_proxies)

    def client(self, headers: Mapping[str, str], remote: str | None, scheme: str) -> Client:
        """The client of a request: of the connection itself, or, where that comes from a trusted proxy, as its
        `X-Forwarded-*` headers tell."""
        host = headers.get("host", "")
        if remote is None or not self.are_set or remote not in self._proxies:
            return Client(None if remote is None else addresses.canonical(remote), scheme, host)
        return Client(
            self._forwarded_for(headers, remote),
            (_listed(headers, "x-forwarded-proto") or [scheme])[-1].lower(),
            (_listed(headers, "x-forwarded-host") or [host])[-1],
        )

    def _forwarded_for(self, headers: Mapping[str, str], remote: str) -> str:
        # From the right: each trusted proxy names the peer before it; the first that is not trusted is the client.
        for hop in reversed(_listed(headers, "x-forwarded-for")):
            remote = addresses.without_port(hop)
            if remote not in self._proxies:
                break
        return remote


def _listed(headers: Mapping[str, str], name: str) -> list[str]:
    """What the lines of this header list together: a proxy may leave the client's line, and add one of its own behind it."""
    lines = headers.getall(name, ()) if isinstance(headers, MultiMapping) else [headers.get(name, "")]
    return [item for line in lines for each in line.split(",") if (item := each.strip())]
