"""The proxy that requests for an address go through: the one that a program names, or else that of the environment. That is
`HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` in upper or lower case, as `urllib` of Python reads them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote, urlsplit

from crewel.addresses import is_loopback_host

HINTS: Final[Mapping[int, str]] = {
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: (
        ": the address of the proxy takes a name and a password, http://NAME:PASSWORD@HOST:PORT"
    )
}
"""What to do about an answer of a proxy, by its status."""
_USER: Final = re.compile(r"^([\w+.-]+://)?[^/?#]*@")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy. Its text is its address without name and password, for logs and errors."""

    url: str = field(repr=False)
    """Its address, with the name and the password that it has."""

    def __str__(self) -> str:
        return f"http://{self.host}"

    @property
    def host(self) -> str:
        """Its host and its port, which is 80 if its address has none, whatever is asked for through it."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2].removesuffix(":")
        return host if parts.port is not None else f"{host}:80"

    @property
    def authorization(self) -> str | None:
        """What `Proxy-Authorization` is to say; None for a proxy without a name."""
        name, _, password = urlsplit(self.url).netloc.rpartition("@")[0].partition(":")
        secret = f"{unquote(name)}:{unquote(password)}".encode()
        return f"Basic {base64.b64encode(secret).decode()}" if name else None


def proxy_for(url: str, proxy: str | None = None) -> Proxy | None:
    """The proxy for this address of a server (`http`, `https`, `ws` or `wss`); None if there is none on the way to it.

    `proxy` is the address that a program names, which holds for every server; empty, there is no proxy. None: the environment
    says it, but for a server on loopback. Raises ValueError for what is not the address of a proxy; it does not show the name
    and the password in it.
    """
    if proxy is not None:
        return _parsed("proxy", proxy) if proxy else None
    parts = urlsplit(url)
    if is_loopback_host(parts.hostname or ""):
        return None
    from urllib.request import getproxies, proxy_bypass  # slow to import, and most commands ask a server on loopback

    scheme = parts.scheme.replace("ws", "http", 1)
    found = getproxies().get(scheme)
    if not found or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return _parsed(f"{scheme.upper()}_PROXY", found)


def without_password(url: str) -> str:
    """An address, also one that is not valid, without the user and the password that it may have, for logs and errors."""
    return _USER.sub(r"\1", url)


def place(url: str, proxy: Proxy | None) -> str:
    """The address of a server as errors name it: with the proxy on the way to it, and without a password."""
    url = without_password(url)
    return url if proxy is None else f"{url} (through the proxy {proxy})"


def refusal(status: int, reason: str) -> str:
    """The words for an answer with which the proxy on the way refuses a connection to the server."""
    return f"the proxy answered {status} {reason}{HINTS.get(status, '')}"


def _parsed(name: str, text: str) -> Proxy:
    """Raises ValueError, which names the option or variable that holds the text."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_known = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is none
        is_known = False
    if not is_known:
        shown = text.rpartition("@")[2]
        raise ValueError(f"{name} is the address of an HTTP proxy, such as http://proxy.example:3128, not {shown}")
    return Proxy(url)
