"""Follows the log: a connection of its own waits at its end, and brings what is appended.

It asks again in the same turn in which an answer has come, or after a pause. It leaves the entries as the store sent them: most
are of no interest to this server. Where replicas must have what is answered, they must have an entry before it is handed on.
Else it might reach a receiver and be lost by a fail-over. Its publisher, which was not answered, would send it again under
another id.

With `cluster.tails=replica` it asks a replica (log_replica.py), and has what that has brought confirmed by the primary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import hiredis

from crewel.delivery.records import Logged, LogId
from crewel.errors import StoreError, StoreUnavailable
from crewel.storage.log import logged
from crewel.storage.log_replica import WAIT_MS, LogReplica, Replicas
from crewel.storage.store import Store
from crewel.storage.store_connection import ANSWER_LIMIT_S, Connection, pack, store_error

_AT_ONCE: Final = 1000
_WAIT_MS: Final = 1000  # that the store waits for an entry
_LIMIT_S: Final = _WAIT_MS / 1000 + 2 * ANSWER_LIMIT_S
"""Seconds for an answer. On a slow line, another connection would cost more time than to wait; a store that is away is noticed
by the connection that writes, which closes this one."""


Unread = list[Any]
"""An entry as the store sent it: its id as text, and its fields, name and value in turn."""
After = Callable[[], LogId | None]
"""Returns after which id the log is asked, when it is asked; None to end."""
Take = Callable[[list[Unread]], float]
"""Gets the next entries, none if nothing has come for a second; returns after how many seconds to ask again."""


def id_of(unread: Unread) -> LogId:
    """The id of an entry."""
    return LogId(int(unread[0].partition(b"-")[0]))


def channel_of(unread: Unread) -> bytes:
    """The channel of an entry, if it is a message for the subscribers of a channel; empty for anything else."""
    fields: list[bytes] = unread[1]
    return fields[1] if fields[0] == b"c" and b"w" not in fields[::2] else b""


def read(unread: Unread) -> Logged:
    """What an entry says."""
    fields = iter(unread[1])
    return logged(id_of(unread), dict(zip(fields, fields, strict=True)))


class Pause:
    """The pause before the log is asked again. It ends early where something waits for what the log has."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._then: Callable[[], None] | None = None

    def begin(self, seconds: float, then: Callable[[], None]) -> None:
        """Call this function after so many seconds."""
        self._timer, self._then = asyncio.get_running_loop().call_later(seconds, self.end), then

    def end(self) -> bool:
        """Call it now; False if there is no pause."""
        then = self.cancel()
        if then is None:
            return False
        then()
        return True

    def cancel(self) -> Callable[[], None] | None:
        """Never call it; it is returned, if there is a pause."""
        then, self._then = self._then, None
        if self._timer is not None:
            self._timer.cancel()
        return then


class LogFollower:
    """The connection, made when it is needed; a second one to one of `replicas`, if there are any to be followed."""

    def __init__(self, store: Store, pause: Pause | None = None, replicas: Replicas | None = None) -> None:
        self._store = store
        self._pause = pause or Pause()
        self._replicas = replicas
        self._connection: Connection | None = None

    async def follow(self, after: After, take: Take) -> None:
        """Call `take` with what comes after these ids, until `after` ends that. Raises StoreError."""
        connection = self._connection
        if connection is None:
            connection = self._connection = await self._store.connect_again(self.close)
            connection.wait_longer(_LIMIT_S)
        source = await self._source(connection)
        wait_ms = _WAIT_MS if source is connection else WAIT_MS
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ask() -> None:
            if ended.done():
                return  # cancelled in the turn in which a pause ends
            if connection.is_closed or source.is_closed:  # in a pause, when there was no answer to miss
                ended.set_exception(StoreUnavailable("the connection that follows the log was closed"))
                return
            last = None if self._replicas is not None and self._replicas.is_to_look else after()
            if last is None:
                ended.set_result(None)
                return
            command = ("XREAD", "COUNT", _AT_ONCE, "BLOCK", wait_ms, "STREAMS", self._store.keys.log, f"{last}-0")
            source.exchange([pack(command)], answered)

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
                seconds = take(entries)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                ended.set_exception(error)
                return
            if seconds:
                self._pause.begin(seconds, ask)
            else:
                ask()

        ask()
        try:
            await ended
        except BaseException:
            self._pause.cancel()
            self.close("it is not needed any more")  # for an answer may still be under way
            raise

    async def _source(self, primary: Connection) -> Connection | LogReplica:
        """Where to ask for entries."""
        replicas = self._replicas
        if replicas is None:
            return primary
        if replicas.is_to_look:
            await replicas.choose(primary)
        return replicas.current or primary

    def close(self, reason: str = "it was closed") -> None:
        """Give up the connections."""
        if self._replicas is not None:
            self._replicas.close(reason)
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
    entries: list[Unread] = found
    return entries
