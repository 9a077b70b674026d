"""One origin rule for POST, JSONP and upgrade, and who the client is behind the proxies that are trusted.

A refused origin gets its 403 before anything of the request is parsed. A request without `Origin` is no cross-site one,
unless the browser says so in `Sec-Fetch-Site`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from crewel.settings import Settings
from crewel.transports.refusal_log import RefusalLog, shown

log = logging.getLogger(__name__)


class Client(NamedTuple):
    """Who is really calling: the address, and the scheme and host that the client used."""

    address: str | None
    scheme: str
    host: str

    @property
    def is_secure(self) -> bool:
        """Whether it came by TLS."""
        return self.scheme in ("https", "wss")


class Origins:
    """Which web pages may talk to the server. Headers are asked for by their names in lower case, so that a plain
    dictionary of such names serves as well as one that ignores case."""

    def __init__(self, settings: Settings) -> None:
        http = settings.http
        self._everybody = "*" in http.allowed_origins
        self._allowed = {_normal(origin) for origin in http.allowed_origins if origin != "*"}
        self._own = _normal(http.public_url) if http.public_url is not None else None
        self.has_proxies = bool(http.trusted_proxies)
        """Whether the address that a connection comes from says who the client is, or who may say it."""
        self._refusals = RefusalLog(log, "origins")
        self._proxies = [ip_network(proxy) for proxy in http.trusted_proxies]

    def client(self, headers: Mapping[str, str], remote: str | None, scheme: str) -> Client:
        """The client of a request: of the connection itself, or, where that comes from a trusted proxy, as its
        `X-Forwarded-*` headers tell."""
        host = headers.get("host", "")
        if remote is None or not self.has_proxies or not self._is_trusted(remote):
            return Client(remote, scheme, host)
        return Client(
            self._forwarded_for(headers, remote),
            headers.get("x-forwarded-proto", scheme).rpartition(",")[2].strip().lower(),
            headers.get("x-forwarded-host", host).rpartition(",")[2].strip(),
        )

    def allows(self, headers: Mapping[str, str], client: Client) -> bool:
        """Whether a page of the request's origin may talk to the server."""
        origin = headers.get("origin")
        if origin is None:
            return self._everybody or headers.get("sec-fetch-site") != "cross-site"
        return self._everybody or _normal(origin) in self._allowed or self.is_own(origin, client)

    def refused(self, headers: Mapping[str, str], client: Client) -> None:
        """Log an origin that is not allowed, once, with the name by which the server was called: a missing setting shows."""
        self._refusals.note(
            headers.get("origin", "(none, cross-site)"),
            f"refused a request from a page of the origin %s: the server is {shown(self._name(client))} to it; if the page may"
            " talk to the server, set http.allowed_origins, or http.public_url where a proxy stands before it",
        )

    def _name(self, client: Client) -> str:
        return self._own or _normal(f"{client.scheme}://{client.host}")

    def is_own(self, origin: str, client: Client) -> bool:
        """Whether the origin is the server's own: `http.public_url`, or the host that the client asked for."""
        return _normal(origin) == self._name(client)

    def cors(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers that let a browser hand the answer to the page; the origin is echoed, for credentials are allowed.
        Only for an origin that was allowed."""
        origin = headers.get("origin")
        if origin is None:
            return {}
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true", "Vary": "Origin"}

    def preflight(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The answer to OPTIONS: what a page of an allowed origin may send."""
        answer = self.cors(headers)
        if answer:
            asked = headers.get("access-control-request-headers")
            answer["Access-Control-Allow-Methods"] = "GET,POST"
            answer["Access-Control-Allow-Headers"] = asked or "X-Requested-With,Content-Type,Accept,Origin"
            answer["Access-Control-Max-Age"] = "1800"
        return answer

    def _is_trusted(self, address: str) -> bool:
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)

    def _forwarded_for(self, headers: Mapping[str, str], remote: str) -> str:
        # From the right: each trusted proxy names whom it heard; the first that is not trusted is the client.
        for hop in reversed([hop.strip() for hop in headers.get("x-forwarded-for", "").split(",") if hop.strip()]):
            remote = hop
            if not self._is_trusted(hop):
                break
        return remote


_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_PAGE_SCHEMES = {"ws": "http", "wss": "https"}


def _normal(origin: str) -> str:
    """The origin with scheme and host in lower case and without a default port; as it is, if it is no address."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return origin
    if not parts.hostname:
        return origin
    scheme = _PAGE_SCHEMES.get(parts.scheme, parts.scheme)
    suffix = "" if port is None or port == _DEFAULT_PORTS.get(scheme) else f":{port}"
    return f"{scheme}://{parts.hostname}{suffix}"
