"""The names that the server answers to, and the pages that may talk to it.

A web page can give its own host name an address of loopback and then talk to a server there as to its own origin (DNS
rebinding). Only the name gives it away, so a server on loopback answers to names of loopback, and to those that its settings
give it.

One origin rule holds for POST, JSONP and upgrade: a refused origin gets its 403 before anything of the request is parsed. A
request without `Origin` is no cross-site one, unless the browser declares it in `Sec-Fetch-Site`.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from crewel import addresses
from crewel.settings import Settings
from crewel.transports.forwarded import Client

log = logging.getLogger(__name__)

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@\[\],/]+)(?::[0-9]{1,5})?", re.ASCII)
_ADVICE: Final = "if it is yours, set http.allowed_hosts, http.public_url or http.trusted_proxies"
_LOGGED: Final = 100  # names that are logged; a stranger can invent them without end
_LONGEST_ORIGIN: Final = 300  # characters; a host name has 253 at most
_SHOWN: Final = 100  # characters of a foreign name in logs and answers


class RefusalLog:
    """Logs names that were refused, each once and a bounded number of them: strangers choose them. `kind` is their plural."""

    def __init__(self, kind: str, level: int = logging.WARNING) -> None:
        self._kind = kind
        self._level = level
        self._logged: set[str] = set()

    def note(self, name: str, line: str, *others: str) -> None:
        """Log the line, in which the first `%s` stands for the name, unless this name was logged before."""
        name = _shown(name)
        if name in self._logged or len(self._logged) >= _LOGGED:
            return
        self._logged.add(name)
        log.log(self._level, line, name, *others)
        if len(self._logged) == _LOGGED:
            log.log(self._level, "refused requests for %d %s; further ones are not logged", _LOGGED, self._kind)


def _shown(name: str) -> str:
    """A foreign name as it may stand in a log and in an answer: quoted, in ASCII, and cut."""
    return ascii(name[:_SHOWN])


class Hosts:
    """Which values of `Host` are served."""

    def __init__(self, settings: Settings) -> None:
        http = settings.http
        self.on_loopback: bool | None = None
        """Whether the server listens on loopback. None: it is not known, and each connection says where it comes from."""
        self._all = "*" in http.allowed_hosts or bool(http.trusted_proxies)  # a trusted proxy looks at names itself
        self._names = {name.lower() for name in http.allowed_hosts}
        if http.public_url is not None:
            public = urlsplit(http.public_url).hostname or ""
            self._names.add(f"[{public}]" if ":" in public else public)
        self._refusals = RefusalLog("hosts")

    def allows(self, host: str, remote: str | None) -> bool:
        """Whether a request for this host, from this address, is served. One that names no host comes from no page."""
        if self._all or not host or self.on_loopback is False:
            return True
        name = _name(host)
        if name in self._names or addresses.is_loopback_host(name):  # no page can rebind a name of loopback
            return True
        # Mounted in another application, nothing is known of its sockets: only a peer on loopback can be a rebound page.
        return self.on_loopback is None and not addresses.is_loopback(remote or "")

    def refused(self, host: str) -> web.Response:
        """The answer to a request for a name that is not served; each name is logged once."""
        self._refusals.note(
            host, f"refused a request for the host %s: a server on loopback does not know that name; {_ADVICE}"
        )
        return web.Response(status=421, text=f"this server on loopback is not known as {_shown(host)}; {_ADVICE}")


def _name(host: str) -> str:
    """The name or address in a value of `Host`, without its port; empty if there is none."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1].lower()


def is_loopback(host: str) -> bool:
    """Whether this address, or every address of this name, is one of loopback. Raises OSError for an unknown name."""
    return all(addresses.is_loopback(str(info[4][0])) for info in socket.getaddrinfo(host, None))


class Origins:
    """Which web pages may talk to the server. Headers are asked for by their names in lower case, so that a plain
    dictionary of such names serves as well as one that ignores case."""

    def __init__(self, settings: Settings) -> None:
        http = settings.http
        self._everybody = "*" in http.allowed_origins
        self._allowed = {_normal(origin) for origin in http.allowed_origins if origin != "*"}
        self._has_patterns = any("*" in origin for origin in self._allowed)
        self._own = _normal(http.public_url) if http.public_url is not None else None
        self._own_site = _site(_name(urlsplit(http.public_url).netloc)) if http.public_url is not None else None
        self._refusals = RefusalLog("origins")

    def allows(self, headers: Mapping[str, str], client: Client) -> bool:
        """Whether a page of the request's origin may talk to the server."""
        origin = headers.get("origin")
        # Browsers leave `Origin` out of some requests, and say in this header whether another site made them.
        if origin is None:
            return self._everybody or headers.get("sec-fetch-site") != "cross-site"
        return self._everybody or self._is_listed(_normal(origin)) or self.is_own(origin, client)

    def _is_listed(self, origin: str) -> bool:
        """Whether the origin is among the allowed ones, or is with its first label as `*`."""
        if "*" in origin:  # no browser sends that
            return False
        if origin in self._allowed:
            return True
        scheme, _, host = origin.partition("://")
        label, _, rest = host.partition(".")
        return self._has_patterns and bool(label) and f"{scheme}://*.{rest}" in self._allowed

    def refused(self, headers: Mapping[str, str], client: Client) -> None:
        """Log an origin that is not allowed, once, with the name by which the server was called: a missing setting shows."""
        self._refusals.note(
            headers.get("origin", "(none, cross-site)"),
            "refused a request from a page of the origin %s: the server is %s to it; if the page may talk to the server, set"
            " http.allowed_origins, or http.public_url where a proxy stands before it",
            _shown(self._name(client)),
        )

    def _name(self, client: Client) -> str:
        return self._own or _normal(f"{client.scheme}://{client.host}")

    def is_own(self, origin: str, client: Client) -> bool:
        """Whether the origin is the server's own: `http.public_url`, or the host that the client asked for.

        With `http.public_url`, that host counts only on loopback, where operators use the server's own address, because the
        proxy refuses their paths. Any other name could be one that a foreign page has rebound.
        """
        page = _normal(origin)
        if page == self._own:
            return True
        is_asked = page == _normal(f"{client.scheme}://{client.host}")
        return is_asked and (self._own is None or addresses.is_loopback_host(_name(client.host)))

    def of_another_site(self, headers: Mapping[str, str], client: Client) -> str | None:
        """The origin of the request's page, if the page is of another site than the server. None if it is of the same site, and
        of a request that no page made. Any page can be of the origin `null`, in a sandboxed frame, so it says nothing."""
        origin = headers.get("origin")
        if origin is None or origin == "null" or len(origin) > _LONGEST_ORIGIN or not origin.isascii():
            return None
        declared = headers.get("sec-fetch-site")
        if declared is not None:
            return origin if declared == "cross-site" else None
        # Browsers leave that header out where the server has no TLS and is not on their machine.
        scheme, _, page = origin.lower().partition("://")
        if scheme not in addresses.HTTP_SCHEMES:
            return origin
        return None if _site(_name(page)) in (_site(_name(client.host)), self._own_site) else origin

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


def _site(name: str) -> str:
    """The site of a host, as far as its name shows: a site is a domain with all below it. Names with the last two labels in
    common may be of one site or, below a domain like `co.uk`, of two."""
    if addresses.parse(name.strip("[]")) is not None:
        return name
    return ".".join(name.rstrip(".").split(".")[-2:])


_DEFAULT_PORTS = {"http": 80, "https": 443}


def _normal(origin: str) -> str:
    """The origin with scheme and host in lower case and without a default port; as it is, if it is no address."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return origin
    if not parts.hostname:
        return origin
    scheme = addresses.HTTP_SCHEMES.get(parts.scheme, parts.scheme)
    suffix = "" if port is None or port == _DEFAULT_PORTS.get(scheme) else f":{port}"
    return f"{scheme}://{parts.hostname}{suffix}"
