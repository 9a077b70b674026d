"""The connections of administrators' commands, next to a running server or where there is none.

Such a command takes the store as it is, and reports what is wrong with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from crewel.errors import StoreFull, StoreUnavailable
from crewel.settings.storage import Storage
from crewel.storage.embedded import Embedded
from crewel.storage.keys import Keys
from crewel.storage.store_connection import (
    ANSWER_LIMIT_S,
    Reader,
    client_name,
    pool_of,
    store_error,
    surely_cancelled,
)
from crewel.storage.store_info import StoreInfo
from crewel.storage.store_requirements import Loading, check_server, why_not

PATIENT_LIMIT_S = 60.0
"""Seconds that a store has for each answer where much is read or written: a stall of its disk should not end the command."""
_LIMIT_S = 10.0  # that a store of our own has until it listens
_PAUSE_S = 0.05
_NAME = "visitor"  # in the store's list of clients


@dataclass(frozen=True, slots=True)
class AdminConnection:
    """A store that is there."""

    storage: Storage
    keys: Keys
    pool: ConnectionPool
    reader: Reader

    async def require_fit(self) -> None:
        """Raise SettingsError or StoreUnavailable for a store that a server would not trust."""
        check_server(await self.info(), self.storage)

    async def info(self) -> StoreInfo:
        """Return the store's own report."""
        # Not through the library, which makes numbers of some values.
        return StoreInfo(await self.ask("INFO"))

    async def ask(self, *command: str) -> Any:
        """Return the store's answer as it is."""
        return await surely_cancelled(self._ask(command))

    async def _ask(self, command: tuple[str, ...]) -> Any:
        connection = await self.pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.send_command(*command)
            return await connection.read_response()
        except RedisError as error:
            raise store_error(error) from None
        finally:
            await self.pool.release(connection)

    async def has_keys(self) -> bool:
        """Return whether there is anything under this prefix."""
        async for _ in self.reader.scan_iter(match=f"{self.keys.base}*", count=1000):
            return True
        return False

    async def is_in_use(self) -> bool:
        """Return whether a server with this prefix is connected."""
        clients = await self.reader.client_list()
        return any(client.get("name") == client_name(self.storage.prefix) for client in clients)


@asynccontextmanager
async def admin_connection(storage: Storage, limit_s: float = ANSWER_LIMIT_S) -> AsyncIterator[AdminConnection]:
    """Reach the store, starting the one of `storage.data_dir` for as long as this lasts unless it runs. Once reached, it has
    `limit_s` for each answer.

    Raises SettingsError or StoreUnavailable if it cannot be reached.
    """
    embedded = None if storage.url else Embedded(storage, lambda: None, as_owner=True)
    try:
        async with reached(storage, embedded, limit_s=limit_s) as (pool, reader):
            yield AdminConnection(storage, Keys(storage.prefix), pool, reader)
    finally:
        if embedded is not None:
            await embedded.close()


@asynccontextmanager
async def reached(
    storage: Storage, embedded: Embedded | None, database: int = 0, *, limit_s: float
) -> AsyncIterator[tuple[ConnectionPool, Reader]]:
    """Connect to the store of `storage`, or to this database of the one of our own, as soon as it has read its file. From then
    on, it has `limit_s` for each answer, or more if its address sets that."""
    if embedded is not None:
        await embedded.ensure()
    url = f"{embedded.url}?db={database}" if embedded is not None else storage.url
    assert url is not None
    pool = pool_of(url, _NAME)
    try:
        await _until_it_answers(pool, embedded)
        options = pool.connection_kwargs
        options["socket_timeout"] = max(limit_s, options["socket_timeout"])
        yield pool, Reader(connection_pool=pool)
    finally:
        await pool.aclose()


async def _until_it_answers(pool: ConnectionPool, embedded: Embedded | None) -> None:
    """A store of others is there or not; one of our own needs a moment, and both may read their file for long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (_LIMIT_S if embedded is not None else 0.0)
    while True:
        connection = pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await surely_cancelled(_greet(connection))
        except (RedisError, OSError) as error:
            if isinstance(store_error(error), StoreFull):
                return  # it has read its file: one that cannot write to its disk refuses PING, and can be read
            why = why_not(error, is_own=embedded is not None)
            late = loop.time() > deadline and not isinstance(why, Loading)
            if late or not isinstance(why, StoreUnavailable):
                raise why from None
        else:
            return
        finally:
            await connection.disconnect(nowait=True)
        await asyncio.sleep(_PAUSE_S)
        if embedded is not None:
            with suppress(StoreUnavailable):  # too early to start it again
                await embedded.ensure()


async def _greet(connection: AbstractConnection) -> None:
    await connection.connect()  # type: ignore[no-untyped-call]
    await connection.send_command("PING")
    await connection.read_response()
