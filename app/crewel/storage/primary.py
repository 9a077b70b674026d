"""Where the primary of the store is at the moment, and connections that ask for it each time they are made.

Sentinels are asked all at once, and the one with the newest election is believed: a sentinel that was cut off names the server
that was the primary before. A cluster says which of its nodes has the slot of our keys. As all of them have one hash tag, that
node has everything, and is used like a server of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

import redis
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.utils import str_if_bytes

from crewel.settings.store_location import Place, StoreKind, StoreLocation, parse_store_address

ASK_LIMIT_S: Final = 0.5
"""Seconds that a sentinel or a node of a cluster has to say where the primary is."""

Locate: TypeAlias = Callable[[], Awaitable[Place]]


async def has_moved(pool: ConnectionPool, place: Place | None) -> bool:
    """Whether the primary is elsewhere than at this place now, as far as can be found out; False if there is but one server."""
    locate: Locate | None = pool.connection_kwargs.get("locate")
    if locate is None or place is None:
        return False
    try:
        return await locate() != place
    except (RedisError, OSError, TimeoutError):
        return False


class ServiceUnknown(ResponseError):
    """All sentinels that answer know nothing of the service: an operator has to fix that."""


def pool_at(url: str, key: str, **options: Any) -> ConnectionPool:
    """Return a pool of connections to the store at this `storage.url`: to the primary, if it is one of several. `key` is any of
    our keys. `options` are those of the client library."""
    location = parse_store_address(url)
    if location.kind is StoreKind.SERVER:
        return BlockingConnectionPool.from_url(location.url(), **options)
    # The options that the library reads from an address; its host is only an example.
    given: dict[str, Any] = {**parse_url(location.url(location.hosts[0]))}
    for name in ("host", "port", "connection_class"):
        given.pop(name, None)
    if location.kind is StoreKind.SENTINEL:
        locate: Locate = partial(_primary_of_service, location)
    else:
        locate = partial(_node_of, location, key, given)
    kind = _SecurePrimaryConnection if location.is_secure else PrimaryConnection
    together: dict[str, Any] = options | given
    return BlockingConnectionPool(connection_class=kind, locate=locate, **together)


async def _primary_of_service(location: StoreLocation) -> Place:
    return newest_primary(await ask_sentinels(location), location)


async def ask_sentinels(location: StoreLocation) -> list[dict[str, Any] | Exception]:
    """Return what each sentinel says of the service, or why it says nothing."""
    user, password = location.sentinel_login
    login = {name: value for name, value in (("username", user), ("password", password)) if value is not None}
    settings = {**_asking(), **login, "ssl": location.is_secure}
    async with Sentinel(location.hosts, sentinel_kwargs=settings) as sentinels:  # type: ignore[no-untyped-call]
        return await asyncio.gather(*(_ask(each, location.service) for each in sentinels.sentinels))


async def _ask(sentinel: Redis, service: str) -> dict[str, Any] | Exception:
    try:
        state: Any = await sentinel.sentinel_master(service)
        # The address there is the old one until the last replica follows; this is the new one since its promotion.
        place: Any = await sentinel.sentinel_get_master_addr_by_name(service)
    except (RedisError, OSError, TimeoutError) as error:
        return error
    return dict(state) if place is None else {**state, "ip": str_if_bytes(place[0]), "port": int(place[1])}


def newest_primary(answers: list[dict[str, Any] | Exception], location: StoreLocation) -> Place:
    """Return the primary of the newest election. Raises RedisError if no sentinel knows one."""
    known = [each for each in answers if not isinstance(each, Exception)]
    if known:
        newest = max(known, key=lambda state: int(state["config-epoch"]))
        return str(newest["ip"]), int(newest["port"])
    refusals = [each for each in answers if isinstance(each, ResponseError)]
    if refusals and len(refusals) == len(answers):
        raise ServiceUnknown(f"the sentinels do not know the service {location.service!r}: {refusals[0]}")
    why = next(each for each in answers if isinstance(each, Exception) and not isinstance(each, ResponseError))
    raise NoConnection(f"no sentinel knows the primary of {location.service!r}: {why}")


async def _node_of(location: StoreLocation, key: str, options: dict[str, Any]) -> Place:
    """Return the node of a cluster that has the slot of a key; `options` are those of its connections. Raises RedisError."""
    nodes = [ClusterNode(host, port) for host, port in location.hosts]
    asked = {name: value for name, value in options.items() if name != "db"}
    cluster = RedisCluster(
        startup_nodes=nodes, ssl=location.is_secure, require_full_coverage=False, **{**_asking(), **asked}
    )
    try:
        await cluster.initialize()
        node = cluster.get_node_from_key(key)
    except RedisClusterException as error:
        raise _no_cluster(error) from error.__cause__
    finally:
        await cluster.aclose()
    if node is None:
        raise NoConnection("no node of the cluster has the slot of the keys")
    return str(node.host), int(node.port)


def _no_cluster(error: RedisClusterException) -> NoConnection:
    """Return as a RedisError what is none in the library: no node answers, or none has the slot. Its cause is kept, such as a
    wrong password."""
    return NoConnection(str(error))


def _asking() -> dict[str, Any]:
    """The options of a connection on which the primary is asked for."""
    retry = Retry(NoBackoff(), 0)
    driver = {"driver_info": None}  # it would read its own version from a file
    return {"socket_timeout": ASK_LIMIT_S, "socket_connect_timeout": ASK_LIMIT_S, "retry": retry, **driver}


def client_at(url: str, key: str, options: dict[str, Any]) -> redis.Redis:
    """Return a blocking client of the primary, which a cluster is asked for here, and sentinels at each connection. Raises
    ValueError or TypeError for an address that is none, RedisError for a cluster that does not answer."""
    location = parse_store_address(url)
    if location.kind is StoreKind.SERVER:
        return redis.Redis.from_url(location.url(), **options)
    given: dict[str, Any] = {**parse_url(location.url(location.hosts[0]))}
    for name in ("host", "port", "connection_class"):
        given.pop(name, None)
    together = {**options, **given, "ssl": location.is_secure}
    if location.kind is StoreKind.SENTINEL:
        user, password = location.sentinel_login
        asking = {
            **_asking(),
            "retry": options["retry"],
            "username": user,
            "password": password,
            "ssl": location.is_secure,
        }
        sentinels = redis.Sentinel(location.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        client: redis.Redis = sentinels.master_for(location.service, **together)  # type: ignore[no-untyped-call]
        return client
    nodes = [redis.cluster.ClusterNode(host, port) for host, port in location.hosts]  # type: ignore[no-untyped-call]
    asked = {name: value for name, value in given.items() if name != "db"}
    try:
        with redis.RedisCluster(
            startup_nodes=nodes, ssl=location.is_secure, require_full_coverage=False, **asked
        ) as cluster:
            node = cluster.get_node_from_key(key)
    except RedisClusterException as error:
        raise _no_cluster(error) from error.__cause__
    if node is None:
        raise NoConnection("no node of the cluster has the slot of the keys")
    return redis.Redis(host=node.host, port=node.port, **together)


class PrimaryConnection(Connection):
    """A connection to whichever server is the primary when it is made."""

    def __init__(self, *, locate: Locate, **options: Any) -> None:
        """`locate` finds the primary."""
        self._locate = locate
        super().__init__(**options)

    async def locate(self) -> None:
        """Find the primary: `host` and `port` are where it is from now on. Raises RedisError."""
        self.host, self.port = await self._locate()

    async def connect(self) -> None:
        """Find the primary and reach it, unless that was done. Raises RedisError."""
        if not self.is_connected:
            await self.locate()
        await super().connect()  # type: ignore[no-untyped-call]


class _SecurePrimaryConnection(PrimaryConnection, SSLConnection):
    pass
