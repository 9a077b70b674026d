"""The server's administration, as the pipeline asks it: `POST /admin/api/dead-letters/redrive` and nothing else."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from crewel.errors import CrewelError, SettingsError
from crewel.outgoing_proxy import HINTS, Proxy, place, proxy_for

DEFAULT_URL: Final = "http://127.0.0.1:8080/cometd"

_API: Final = "/admin/api"
_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_LIMIT_S: Final = 60.0
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0)  # seconds between attempts; the last one is repeated
_TOLD: Final = 3  # attempts in vain before it is logged
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a request names its proxy itself
_AWAY: Final = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


@dataclass(frozen=True, slots=True)
class AdminClient:
    """One server. What is asked of it here may be asked twice: a letter that was sent again is not there any more."""

    url: str
    """Its Bayeux address, or any other of it."""
    token: str | None = field(default=None, repr=False)
    patience_s: float = 60.0
    """How long a server that is away is waited for."""
    sleep: Callable[[float], None] = time.sleep
    tell: Callable[[str], None] = lambda words: None
    """Is notified that it is waited for."""
    proxy: str | None = field(default=None, repr=False)
    """The proxy on the way there; None: as the environment has it."""

    def check(self) -> None:
        """Ask for nothing, to know that it is there and lets us in. Raises CrewelError."""
        self.redrive({"ids": [], "dryRun": True})

    def redrive(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return what the server answers. Raises CrewelError with its words, or if it has been away for too long."""
        deadline = time.monotonic() + self.patience_s
        attempt = 0
        address, proxy = f"{_base(self.url)}/dead-letters/redrive", self._proxy()
        where = place(self.url, proxy)
        while True:
            try:
                return self._post(address, body, proxy)
            except _Away as away:
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                attempt += 1
                if attempt == _TOLD:
                    self.tell(f"{where} does not answer; waiting for it")
                if time.monotonic() + pause > deadline:
                    raise CrewelError(f"{where} has not answered for {self.patience_s:.0f} s: {away}") from None
                self.sleep(pause)

    def _proxy(self) -> Proxy | None:
        try:
            return proxy_for(self.url, self.proxy)
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def _post(self, address: str, body: dict[str, Any], proxy: Proxy | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)  # noqa: S310 - _base has looked
        if proxy is not None:
            request.set_proxy(proxy.host, "http")
            if proxy.authorization is not None:
                request.add_header("Proxy-Authorization", proxy.authorization)
        try:
            with _OPENER.open(request, timeout=_LIMIT_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            if error.code in _AWAY:
                raise _Away(_words(error)) from None
            raise CrewelError(_words(error)) from None
        except (OSError, ValueError) as error:  # no connection, a broken one, or an answer that is none
            raise _Away(str(error) or type(error).__name__) from None
        if not isinstance(answer, dict):
            raise CrewelError(f"{address} does not answer like a Crewel server")
        return answer


class _Away(Exception):
    """The server has not done it, or no one knows whether it has; it may be asked again."""


def origin(url: str) -> str:
    """Return scheme, host and port of any address of a server, for HTTP. Raises SettingsError."""
    try:
        parts = urlsplit(url)
    except ValueError:  # whose words may be a part of a password
        raise SettingsError(f"--url takes an address such as {DEFAULT_URL}, and this one cannot be read") from None
    host = parts.netloc.rpartition("@")[2]  # a name and a password before it are no part of an origin
    if parts.scheme not in _SCHEMES or not host:
        raise SettingsError(f"--url takes an address such as {DEFAULT_URL}, not {url}")
    return f"{_SCHEMES[parts.scheme]}://{host}"


def _base(url: str) -> str:
    return origin(url) + _API


def _words(error: urllib.error.HTTPError) -> str:
    """Return the server's own words for a refusal."""
    try:
        message = str(json.load(error)["message"])
    except (OSError, ValueError, KeyError, TypeError):
        message = f"the server answered {error.code} {error.reason}{HINTS.get(error.code, '')}"
    if error.code == HTTPStatus.UNAUTHORIZED:
        message += "; --token or CREWEL_TOKEN shows the admin token"
    return message
