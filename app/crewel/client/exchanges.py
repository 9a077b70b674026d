"""Requests that wait for their reply, matched by id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from crewel.bayeux.message import Fields
from crewel.client.message import is_delivery


class Exchanges:
    """The replies and remote call results that are still awaited."""

    def __init__(self) -> None:
        self._replies: dict[str, asyncio.Future[Fields]] = {}
        self._results: dict[str, asyncio.Future[Fields]] = {}

    @contextmanager
    def replies(self, ids: list[str]) -> Iterator[list[asyncio.Future[Fields]]]:
        """Await the replies to these ids within the block; afterwards they are of no interest."""
        with _awaited(self._replies, ids) as futures:
            yield futures

    @contextmanager
    def result(self, message_id: str) -> Iterator[asyncio.Future[Fields]]:
        """Await the result of the remote call with this id within the block."""
        with _awaited(self._results, [message_id]) as (future,):
            yield future

    def is_awaited_result(self, fields: Fields) -> bool:
        """Whether this is the result of a remote call that still waits: a delivery with the id of the call."""
        return is_delivery(fields) and fields.get("id") in self._results

    def settle(self, fields: Fields) -> bool:
        """Hand a received message to whoever awaits it; whether anybody did."""
        if self.is_awaited_result(fields):
            return _resolve(self._results[fields["id"]], fields)
        if is_delivery(fields) or fields.get("id") not in self._replies:
            return False
        return _resolve(self._replies[fields["id"]], fields)

    def fail_replies(self, error: Exception) -> None:
        """The connection is gone: no reply will come over it. Results may, over the next one."""
        _fail(self._replies, error)

    def fail_all(self, error: Exception) -> None:
        """The session is gone: neither replies nor results will come."""
        _fail(self._replies, error)
        _fail(self._results, error)


@contextmanager
def _awaited(table: dict[str, asyncio.Future[Fields]], ids: list[str]) -> Iterator[list[asyncio.Future[Fields]]]:
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in ids]
    table.update(zip(ids, futures, strict=True))
    try:
        yield futures
    finally:
        for message_id, future in zip(ids, futures, strict=True):
            table.pop(message_id, None)
            _dismiss(future)


def _dismiss(future: asyncio.Future[Fields]) -> None:
    # A failure that came after its waiter had gone is nobody's: looking at it keeps asyncio from reporting it.
    if not future.cancel() and not future.cancelled():
        future.exception()


def _resolve(future: asyncio.Future[Fields], fields: Fields) -> bool:
    if future.done():
        return False
    future.set_result(fields)
    return True


def _fail(table: dict[str, asyncio.Future[Fields]], error: Exception) -> None:
    for future in table.values():
        if not future.done():
            future.set_exception(error)
