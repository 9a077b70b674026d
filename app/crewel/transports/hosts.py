"""The names that a server on loopback answers to.

A web page can give its own host name an address of loopback and then talk to a server there as to its own origin (DNS
rebinding). Only the name gives it away, so a server on loopback answers to names of loopback, and to those that its
settings give it.
"""

from __future__ import annotations

import logging
import re
import socket
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from crewel.settings import Settings
from crewel.transports.refusal_log import RefusalLog, shown

log = logging.getLogger(__name__)

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@\[\],/]+)(?::[0-9]{1,5})?", re.ASCII)
_ADVICE: Final = "if it is yours, set http.allowed_hosts, http.public_url or http.trusted_proxies"


class Hosts:
    """Which values of `Host` are served."""

    def __init__(self, settings: Settings) -> None:
        http = settings.http
        self.on_loopback: bool | None = None
        """Whether the server listens on loopback. None: it is not known, and each connection says where it comes from."""
        self._all = "*" in http.allowed_hosts or bool(http.trusted_proxies)  # a trusted proxy looks at names itself
        self._names = {"localhost", *(name.lower() for name in http.allowed_hosts)}
        if http.public_url is not None:
            public = urlsplit(http.public_url).hostname or ""
            self._names.add(f"[{public}]" if ":" in public else public)
        self._refusals = RefusalLog(log, "hosts")

    def allows(self, host: str, remote: str | None) -> bool:
        """Whether a request for this host, from this address, is served. One that names no host comes from no page."""
        if self._all or not host or self.on_loopback is False:
            return True
        found = _HOST.fullmatch(host)
        if found is not None:
            name = found[1].lower()
            if name in self._names or _is_loopback_address(name.strip("[]")):
                return True
        return self.on_loopback is None and not _is_loopback_address(remote or "")

    def refused(self, host: str) -> web.Response:
        """The answer to a request for a name that is not served; each name is logged once."""
        self._refusals.note(
            host, f"refused a request for the host %s: a server on loopback does not know that name; {_ADVICE}"
        )
        return web.Response(status=421, text=f"this server on loopback is not known as {shown(host)}; {_ADVICE}")


def is_loopback(host: str) -> bool:
    """Whether this address, or every address of this name, is one of loopback. Raises OSError for an unknown name."""
    return all(_is_loopback_address(str(info[4][0])) for info in socket.getaddrinfo(host, None))


def _is_loopback_address(text: str) -> bool:
    try:
        return ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False
