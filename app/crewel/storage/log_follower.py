"""Follows the log: a connection of its own waits at its end, and brings what is appended.

It asks again in the same turn in which an answer has come, and leaves the entries as the store sent them: most are of no
interest, because this server has appended them itself. Where replicas must have what is answered, they must have an entry
before it is handed on: else it might reach a receiver and be lost by a fail-over, and its publisher, who was not answered,
would send it again under another id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import hiredis

from crewel.delivery.records import Logged, LogId
from crewel.errors import StoreError
from crewel.storage.log import logged
from crewel.storage.store import Store
from crewel.storage.store_connection import ANSWER_LIMIT_S, Connection, pack, store_error

_AT_ONCE: Final = 1000
_WAIT_MS: Final = 1000  # that the store waits for an entry
_LIMIT_S: Final = _WAIT_MS / 1000 + 2 * ANSWER_LIMIT_S
"""Seconds for an answer. On a slow line, another connection would cost more time than to wait; a store that is away is noticed
by the connection that writes, which closes this one."""


class Unread(NamedTuple):
    """An entry as it came."""

    id: LogId
    fields: list[bytes]
    """Name and value in turn."""

    @property
    def channel(self) -> bytes:
        """The channel, if it is a message for the subscribers of a channel; empty for anything else."""
        fields = self.fields
        return fields[1] if fields[0] == b"c" and b"w" not in fields[::2] else b""

    def read(self) -> Logged:
        """What it says."""
        fields = iter(self.fields)
        return logged(self.id, dict(zip(fields, fields, strict=True)))


Take = Callable[[list[Unread]], LogId | None]
"""Gets the next entries, none if nothing has come for a second; returns after which to continue, None to end."""


class LogFollower:
    """The connection, made when it is needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: Connection | None = None

    async def follow(self, after: LogId, take: Take) -> None:
        """Call `take` with what comes after this id, until it ends that. Raises StoreError."""
        connection = self._connection
        if connection is None:
            connection = self._connection = await self._store.connect_again(self.close)
            connection.wait_longer(_LIMIT_S)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ask(last: LogId) -> None:
            command = ("XREAD", "COUNT", _AT_ONCE, "BLOCK", _WAIT_MS, "STREAMS", self._store.keys.log, f"{last}-0")
            connection.exchange([pack(command)], answered)

        def answered(answers: list[Any]) -> None:
            if ended.done():
                return
            try:
                entries = _entries(answers[0])
            except StoreError as error:
                ended.set_exception(error)
                return
            if entries:
                self._store.confirm(connection, partial(confirmed, entries))
            else:
                confirmed(entries, None)

        def confirmed(entries: list[Unread], lack: StoreError | None) -> None:
            if ended.done():
                return
            if lack is not None:
                ended.set_exception(lack)
                return
            try:
                last = take(entries)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                ended.set_exception(error)
                return
            if last is None:
                ended.set_result(None)
            else:
                ask(last)

        ask(after)
        try:
            await ended
        except BaseException:
            self.close("it is not needed any more")  # for an answer may still be under way
            raise

    def close(self, reason: str = "it was closed") -> None:
        """Give up the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)


def _entries(answer: Any) -> list[Unread]:
    if isinstance(answer, StoreError):
        raise answer
    if isinstance(answer, hiredis.ReplyError):
        raise store_error(answer)
    if answer is None:
        return []
    ((_, found),) = answer
    return [Unread(LogId(int(entry_id.partition(b"-")[0])), fields) for entry_id, fields in found]
