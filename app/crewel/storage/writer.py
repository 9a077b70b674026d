"""The one connection that writes.

All steps go through it, in the order in which they were asked for, so that what one part of the server asked first is done
first. Nothing is ever sent twice by itself: a repeated append would be a second message. What was not sent is
StoreUnavailable, what was sent and not answered StoreUncertain.

Steps that are asked for while others are under way are sent together with the next write: under load the store syncs its
file once for many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.storage.line import LIMIT_S, Line
from crewel.storage.scripts import scripts

_WAIT_MS = 1000  # that replicas have for a publish
_MOST_TOGETHER = 1000  # commands in one write

Command = tuple[bytes | str | int, ...]
Done = Callable[[list[Any]], None]

_FULL = ("OOM", "MISCONF")
_NOT_NOW = (
    "LOADING",
    "BUSY",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MOVED",
    "ASK",
    "NOAUTH",
)


def store_error(error: Exception) -> StoreError:
    """Return what an error of the client library, or of its parser, means: full, not now, or a text that nobody expected."""
    if not isinstance(error, ResponseError | hiredis.ReplyError):
        return StoreUnavailable(f"the store cannot be reached: {error}")
    # The library takes the code of an error out of its text if it knows it, and else leaves it there.
    code = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    if code in _FULL:
        return StoreFull(f"the store has no more space: {error}")
    if code in _NOT_NOW:
        return StoreUnavailable(f"the store does not take this now: {error}")
    return StoreError(f"the store answered: {error}")


# The client library packs in Python, which costs more than all else of a publish; hiredis does it in C. Its stub knows
# tuples of one only.
_pack: Callable[[Any], bytes] = hiredis.pack_command


_Call = tuple[list[bytes], Sequence[int], Done]
"""Commands of one caller as they are sent, the places of publishes among them, and who gets the answers."""


class Writer:
    """Sends commands on one connection, in order, and hands out their answers. It needs no task: a write follows the answers
    to the one before it."""

    def __init__(self, replicas: Callable[[], int], lost: Callable[[str], None]) -> None:
        """`replicas` says how many must have a publish; `lost` is called with the reason when the connection is gone."""
        self._replicas = replicas
        self._lost = lost
        self._line: Line | None = None
        self._calls: deque[_Call] = deque()
        self._is_busy = False
        self._idle: asyncio.Future[None] | None = None
        self._is_ending = False

    @property
    def is_connected(self) -> bool:
        """Whether commands are taken."""
        return self._line is not None

    async def connect(self, pool: ConnectionPool) -> None:
        """Make the connection, with its user, password and database. Raises RedisError, OSError or TimeoutError."""
        connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(LIMIT_S):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._line = Line(connection, self.give_up)

    async def close(self) -> None:
        """Let what was asked for be answered, then disconnect."""
        self._is_ending = True
        if self._is_busy:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        self.disconnect()

    def disconnect(self, reason: str = "the connection was closed") -> None:
        """Give up the connection. What was sent on it and not answered is uncertain."""
        line, self._line = self._line, None
        if line is not None:
            line.close(reason)

    def give_up(self, reason: str) -> None:
        """The connection is of no use any more: say so, before those who wait for answers get to know."""
        if self._line is not None:
            self._lost(reason)
            self.disconnect(reason)

    def submit(self, commands: Sequence[Command], done: Done, appends: Sequence[int] = ()) -> None:
        """Send the commands, and call `done` with the store's answers, one a command: a value, or a StoreError; at once, if
        the store is away. It must not raise. `appends` are the places of the publishes. TypeError: one cannot be sent."""
        if not commands or self._line is None or self._is_ending:
            done(_unavailable(commands))
            return
        # Packed here, so that one that cannot be is its caller's trouble alone.
        self._calls.append(([*map(_pack, commands)], appends, done))
        if not self._is_busy:
            self._send_next()

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the store's answers, as `submit` gives them. A caller that is cancelled leaves its commands where they are:
        half a pipeline cannot be taken back."""
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.submit(commands, lambda answers: None if future.done() else future.set_result(answers))
        return await future

    def _send_next(self) -> None:
        self._is_busy = True
        calls: list[_Call] = []
        commands: list[bytes] = []
        appends: list[int] = []
        while self._calls and (not calls or len(commands) + len(self._calls[0][0]) <= _MOST_TOGETHER):
            call = self._calls.popleft()
            appends += [len(commands) + number for number in call[1]] if commands else call[1]
            commands += call[0]
            calls.append(call)
        needed = self._replicas() if appends else 0
        if needed:
            commands.append(_pack(("WAIT", needed, _WAIT_MS)))
        self._exchange(commands, partial(self._answered, calls, commands, appends, needed))

    def _exchange(self, commands: Sequence[bytes], done: Done) -> None:
        if self._line is None:
            done(_unavailable(commands))
        else:
            self._line.exchange(commands, done)

    def _answered(
        self, calls: Sequence[_Call], commands: Sequence[bytes], appends: Sequence[int], needed: int, answers: list[Any]
    ) -> None:
        if hiredis.ReplyError in map(type, answers):
            unknown = [number for number, answer in enumerate(answers) if _is_unknown(answer)]
            if unknown:
                self._repeat(unknown, commands, answers, partial(self._hand_out, calls, appends, needed))
                return
        self._hand_out(calls, appends, needed, answers)

    def _repeat(self, unknown: Sequence[int], commands: Sequence[bytes], answers: list[Any], done: Done) -> None:
        """Load the scripts again, for the store has forgotten them, and send what it did not know: nothing of that was
        done."""
        load = [_pack(("SCRIPT", "LOAD", script.text)) for script in scripts().values()]

        def answered(again: list[Any]) -> None:
            for number, answer in zip(unknown, again[len(load) :], strict=True):
                answers[number] = answer
            done(answers)

        self._exchange([*load, *(commands[number] for number in unknown)], answered)

    def _hand_out(self, calls: Sequence[_Call], appends: Sequence[int], needed: int, answers: list[Any]) -> None:
        if needed:
            _require_copies(answers, appends, needed)
        if hiredis.ReplyError in map(type, answers):
            answers = [store_error(answer) if isinstance(answer, hiredis.ReplyError) else answer for answer in answers]
        start = 0
        for commands, _, done in calls:
            end = start + len(commands)
            done(answers[start:end])
            start = end
        self._is_busy = False
        if self._calls:
            self._send_next()
        elif self._idle is not None:
            self._idle.set_result(None)


def _unavailable(commands: Sequence[object]) -> list[Any]:
    return [StoreUnavailable("the store is away") for _ in commands]


def _is_unknown(answer: Any) -> bool:
    return isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT")


def _require_copies(answers: list[Any], appends: Sequence[int], needed: int) -> None:
    copies = answers.pop()
    if isinstance(copies, int) and copies >= needed:
        return
    had = copies if isinstance(copies, int) else "nobody knows how many"
    for number in appends:
        if not isinstance(answers[number], Exception):
            answers[number] = StoreUncertain(f"{had} of {needed} replicas have it in time")
