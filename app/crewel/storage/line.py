"""The wire to the store on which everything is written: bytes out, as many answers in.

The client library makes the connection, with its user, password, database and TLS. From then on its transport belongs to us:
the library would take a coroutine for each command, and another for each answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection

from crewel.errors import StoreUncertain
from crewel.turns import has_stalled

LIMIT_S = 2.0
"""Seconds that the store has to answer what was sent together."""

_NOT_YET: Final = object()
_GONE: Final = "the store has closed the connection"


class Line(asyncio.Protocol):
    """One connection, with at most one exchange under way."""

    def __init__(self, connection: AbstractConnection, lost: Callable[[str], None]) -> None:
        """Take over a connection that has been made. `lost` is called with the reason when it is of no use any more; it
        should `close` the line."""
        # The library has no other way to its transport, and complains of open ones when it forgets a connection.
        writer = connection._writer  # noqa: SLF001
        connection._writer = connection._reader = None  # noqa: SLF001
        assert writer is not None
        self._writer = writer  # which closes the transport when it is forgotten
        self._transport = writer.transport
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._wanted = 0
        self._answers: list[Any] = []
        self._done: Callable[[list[Any]], None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None  # one for many exchanges
        self._transport.set_protocol(self)

    def exchange(self, commands: Sequence[bytes], done: Callable[[list[Any]], None]) -> None:
        """Send the commands, and call `done` with an answer each. What the store answers with an error is a
        `hiredis.ReplyError`, what it did not answer StoreUncertain."""
        self._wanted, self._answers, self._done = len(commands), [], done
        self._deadline = self._loop.time() + LIMIT_S
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._look)
        self._transport.write(commands[0] if len(commands) == 1 else b"".join(commands))

    def close(self, reason: str) -> None:
        """Give up the connection, and with it what is under way: that is told a little later."""
        self._lost = _tell_nobody
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()
        done, self._done = self._done, None
        if done is not None:
            missing = self._wanted - len(self._answers)
            answers = self._answers + [StoreUncertain(f"the store did not answer: {reason}") for _ in range(missing)]
            self._loop.call_soon(done, answers)
        self._wanted, self._answers = 0, []

    def data_received(self, data: bytes) -> None:
        """Collect answers. More than were asked for mean that nobody knows which is whose."""
        reader, answers = self._reader, self._answers
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not _NOT_YET:
                answers.append(answer)
        except hiredis.ProtocolError as error:
            self._lost(f"the store does not speak its protocol: {error}")
            return
        if len(answers) > self._wanted:
            answers.clear()
            self._lost("the store answered what it was not asked")
        elif len(answers) == self._wanted and self._done is not None:
            done, self._done = self._done, None
            self._wanted, self._answers = 0, []
            done(answers)

    def eof_received(self) -> None:
        """The store sends no more."""
        self._lost(_GONE)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended, by whatever."""
        self._lost(str(error) if error else _GONE)

    def _look(self) -> None:
        """See whether the exchange that is under way takes too long, if one is. A stall of the loop is no outage of the store:
        what it answered has not been read, or what was written has not even left, so the time begins again."""
        due = self._timer.when() if self._timer is not None else self._deadline
        self._timer = None
        if self._done is None:
            return
        now = self._loop.time()
        if has_stalled(due, now):
            self._deadline = now + LIMIT_S
        if now < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._look)
        else:
            self._lost(f"no answer within {LIMIT_S:g} s")


def _tell_nobody(reason: str) -> None:
    pass
