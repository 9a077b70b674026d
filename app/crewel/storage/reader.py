"""Connections that read: several, made when needed, with errors of ours instead of the library's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from crewel.storage.line import LIMIT_S
from crewel.storage.writer import store_error

T = TypeVar("T")

_MOST_CONNECTIONS = 16
_TURN_S = 20.0  # that a read waits for one of them


def client_name(prefix: str) -> str:
    """Return what the connections of a server with this `storage.prefix` are called in the store's list of clients."""
    return f"crewel/{prefix}"


def pool_of(url: str, prefix: str) -> ConnectionPool:
    """Return where connections to the store are made. A caller that finds all of them in use waits for one.
    They retry nothing: a repeated write is a second one."""
    return BlockingConnectionPool.from_url(
        url,
        max_connections=_MOST_CONNECTIONS,
        timeout=_TURN_S,
        client_name=client_name(prefix),
        driver_info=None,  # it would read its own version from a file
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=LIMIT_S,
        socket_timeout=LIMIT_S,
    )


class Reader(Redis):
    """The library's client, which raises StoreErrors."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Do one command."""
        return await _answer(super().execute_command(*args, **options))  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = False, shard_hint: str | None = None) -> Pipeline:
        """Return a pipeline; several commands in one round trip, and no transaction unless asked for."""
        return _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class _Pipeline(Pipeline):
    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        return await _answer(super().execute(raise_on_error))


async def _answer(asked: Awaitable[T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    cancellations = task.cancelling()
    try:
        return await asked
    except RedisError as error:
        raise store_error(error) from error
    finally:
        # The library sends under `wait_for`, and that of Python 3.11 forgets a cancellation that comes as it ends.
        if task.cancelling() > cancellations:
            raise asyncio.CancelledError
