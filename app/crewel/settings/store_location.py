"""The forms of `storage.url`: one server, a service that Sentinel watches, or a cluster.

Everything of an address but its hosts belongs to the connection to the store: user, password, database, and the options of the
client library after the question mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

_SENTINEL_PORT: Final = 26379
_STORE_PORT: Final = 6379
_SENTINEL_OPTIONS: Final = "sentinel_"


class StoreKind(StrEnum):
    """How the server finds the store."""

    SERVER = "server"
    """It has an address of its own."""
    SENTINEL = "sentinel"
    """The sentinels of `hosts` know which server has the service."""
    CLUSTER = "cluster"
    """The nodes of `hosts` know which of them has the slot of all keys."""


Place = tuple[str, int]
"""A host and its port."""


@dataclass(frozen=True, slots=True, repr=False)
class StoreLocation:
    """Where the store is, or the servers that know where it is. It may hold passwords."""

    kind: StoreKind
    hosts: tuple[Place, ...] = ()
    """The servers to ask; empty for one server."""
    service: str = ""
    """The name by which the sentinels know the store."""
    sentinel_login: tuple[str | None, str | None] = (None, None)
    """User and password for the sentinels themselves."""
    _url: str = ""

    @property
    def is_secure(self) -> bool:
        """Whether connections use TLS, those to the sentinels too."""
        return self._url.startswith("rediss:")

    @property
    def is_socket(self) -> bool:
        """Whether it is a Unix socket, and so on this machine."""
        return self._url.startswith("unix:")

    @property
    def can_fail_over(self) -> bool:
        """Whether another server may take the place of the primary automatically."""
        return self.kind is not StoreKind.SERVER

    def url(self, place: Place | None = None) -> str:
        """Return the address of one server for the client library: that of `place`, where it is not the only one."""
        if place is None:
            return self._url
        host, port = place
        parts = urlsplit(self._url)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(
            netloc=f"{login}{at}[{host}]:{port}" if ":" in host else f"{login}{at}{host}:{port}"
        ).geturl()


def parse_store_address(given: str) -> StoreLocation:
    """Return what an address says. Raises ValueError for one that has none of the forms."""
    parts = urlsplit(given)
    if parts.scheme == "unix":
        if not parts.path:
            raise ValueError("not the path of a socket")
        return StoreLocation(StoreKind.SERVER, _url=given)
    scheme, _, kind = parts.scheme.partition("+")
    if scheme not in ("redis", "rediss") or kind not in ("", "sentinel", "cluster"):
        raise ValueError("not an address of a store")
    if kind == "sentinel":
        return _of_service(parts, scheme)
    if kind == "cluster":
        return _of_cluster(parts, scheme)
    _ = parts.port  # raises ValueError when it is not a port
    if not parts.hostname:
        raise ValueError("no host")
    return StoreLocation(StoreKind.SERVER, _url=given)


def _of_service(parts: SplitResult, scheme: str) -> StoreLocation:
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not (database.isdigit() or not database):
        raise ValueError("no name of the service, or no number of a database after it")
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = dict(pair for pair in options if pair[0].startswith(_SENTINEL_OPTIONS))
    if own.keys() - {"sentinel_username", "sentinel_password"}:
        raise ValueError("sentinels have sentinel_username and sentinel_password only")
    rest = urlencode([pair for pair in options if pair[0] not in own])
    url = parts._replace(scheme=scheme, path=f"/{database}" if database else "", query=rest).geturl()
    login = (own.get("sentinel_username"), own.get("sentinel_password"))
    return StoreLocation(StoreKind.SENTINEL, _hosts(parts, _SENTINEL_PORT), unquote(service), login, url)


def _of_cluster(parts: SplitResult, scheme: str) -> StoreLocation:
    if parts.path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has the database 0 only")
    return StoreLocation(
        StoreKind.CLUSTER, _hosts(parts, _STORE_PORT), _url=parts._replace(scheme=scheme, path="").geturl()
    )


def _hosts(parts: SplitResult, port: int) -> tuple[Place, ...]:
    """The hosts of `user:password@one:1,two:2`. Raises ValueError."""
    places = []
    for each in parts.netloc.rpartition("@")[2].split(","):
        split = urlsplit(f"//{each}")
        if not split.hostname:
            raise ValueError("no host between two commas")
        places.append((split.hostname, split.port or port))
    return tuple(places)
