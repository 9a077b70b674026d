"""The one connection that writes.

All steps go through it, in the order in which they were asked for, so that what one part of the server asked first is done
first. Nothing is ever sent twice by itself: a repeated append would be a second message. What was not sent is
StoreUnavailable, what was sent and not answered StoreUncertain.

Steps that are asked for while others are under way are sent together with the next write: under load the store syncs its
file once for many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError

from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.storage.scripts import scripts
from crewel.storage.steps import Step

__all__ = ["LIMIT_S", "Command", "Writer", "store_error"]

log = logging.getLogger(__name__)

LIMIT_S = 2.0
"""Seconds that the store has to answer what was sent together."""
_WAIT_MS = 1000  # that replicas have for a publish
_MOST_TOGETHER = 1000  # commands in one write

Command = tuple[bytes | str | int, ...]

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
    """Return what an error of the client library means: full, not now, or a text that nobody expected."""
    if not isinstance(error, ResponseError):
        return StoreUnavailable(f"the store cannot be reached: {error}")
    # The library takes the code of an error out of its text if it knows it, and else leaves it there.
    code = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    if code in _FULL:
        return StoreFull(f"the store has no more space: {error}")
    if code in _NOT_NOW:
        return StoreUnavailable(f"the store does not take this now: {error}")
    return StoreError(f"the store answered: {error}")


class _Call:
    """Commands of one caller as they are sent, the places of publishes among them, and the future of the answers."""

    __slots__ = ("appends", "commands", "future")

    def __init__(self, commands: list[bytes], appends: Sequence[int], future: asyncio.Future[list[Any]]) -> None:
        self.commands = commands
        self.appends = appends
        self.future = future


class Writer:
    """Sends commands on one connection, in order, and hands out their answers."""

    def __init__(self, replicas: Callable[[], int], lost: Callable[[str], None]) -> None:
        """`replicas` says how many must have a publish; `lost` is called with the reason when the connection is gone."""
        self._replicas = replicas
        self._lost = lost
        self._connection: AbstractConnection | None = None
        self._calls: deque[_Call] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False

    @property
    def is_connected(self) -> bool:
        """Whether commands are taken."""
        return self._connection is not None

    async def connect(self, pool: ConnectionPool) -> None:
        """Make the connection, with its user, password and database. Raises RedisError, OSError or TimeoutError."""
        connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(LIMIT_S):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        # The limit is for a whole exchange; one for each call would cost a task for what is sent and a timer for each answer.
        connection.socket_timeout = None
        self._connection = connection
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def close(self) -> None:
        """Let what was asked for be answered, then disconnect."""
        self._is_ending = True
        self._wake.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self.disconnect()

    async def disconnect(self) -> None:
        """Give up the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def run(self, steps: Sequence[Step[Any]]) -> list[Any]:
        """Return the store's answers, one a step: a value, or a StoreError of the right kind."""
        known = scripts()
        commands = [("EVALSHA", known[step.script].sha, len(step.keys), *step.keys, *step.arguments) for step in steps]
        return await self.ask(commands, [number for number, step in enumerate(steps) if step.appends])

    async def ask(self, commands: Sequence[Command], appends: Sequence[int] = ()) -> list[Any]:
        """Return the store's answers, one a command: a value, or a StoreError. `appends` are the places of the publishes."""
        if self._connection is None or self._is_ending:
            return [StoreUnavailable("the store is away") for _ in commands]
        # Packed here, so that one that cannot be is its caller's trouble alone.
        packed = [_packed(command) for command in commands]
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._calls.append(_Call(packed, appends, future))
        self._wake.set()
        # A caller that is cancelled leaves its commands where they are: half a pipeline cannot be taken back.
        return await future

    async def _send_all(self) -> None:
        while True:
            if not self._calls:
                if self._is_ending:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            calls = self._next_calls()
            answers = await self._answers(calls)
            start = 0
            for call in calls:
                end = start + len(call.commands)
                if not call.future.done():
                    call.future.set_result(answers[start:end])
                start = end

    def _next_calls(self) -> list[_Call]:
        calls = [self._calls.popleft()]
        count = len(calls[0].commands)
        while self._calls and (count := count + len(self._calls[0].commands)) <= _MOST_TOGETHER:
            calls.append(self._calls.popleft())
        return calls

    async def _answers(self, calls: Sequence[_Call]) -> list[Any]:
        commands: list[bytes] = []
        appends: list[int] = []
        for call in calls:
            appends.extend(len(commands) + number for number in call.appends)
            commands.extend(call.commands)
        needed = self._replicas() if appends else 0
        if needed:
            commands.append(_packed(("WAIT", needed, _WAIT_MS)))
        answers = await self._exchange(commands)
        await self._repeat_unknown(commands, answers)
        if needed:
            _require_copies(answers, appends, needed)
        return [store_error(answer) if isinstance(answer, RedisError) else answer for answer in answers]

    async def _repeat_unknown(self, commands: Sequence[bytes], answers: list[Any]) -> None:
        """Load the scripts again if the store has forgotten them, and send what it did not know: nothing of that was done."""
        unknown = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if not unknown:
            return
        load = [_packed(("SCRIPT", "LOAD", script.text)) for script in scripts().values()]
        again = await self._exchange([*load, *(commands[number] for number in unknown)])
        for number, answer in zip(unknown, again[len(load) :], strict=True):
            answers[number] = answer

    async def _exchange(self, commands: Sequence[bytes]) -> list[Any]:
        """Send the commands and read one answer each; errors that the store answers are values."""
        connection = self._connection
        if connection is None or not await _is_open(connection):
            await self._give_up("the store has closed the connection")
            return [StoreUnavailable("the store is away") for _ in commands]
        answers: list[Any] = []
        try:
            async with asyncio.timeout(LIMIT_S):
                await connection.send_packed_command(b"".join(commands), check_health=False)
                while len(answers) < len(commands):
                    answers.append(await _answer(connection))
        except (RedisError, OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {LIMIT_S:g} s"
            await self._give_up(reason)
            missing = len(commands) - len(answers)
            answers.extend(StoreUncertain(f"the store did not answer: {reason}") for _ in range(missing))
        return answers

    async def _give_up(self, reason: str) -> None:
        if self._connection is not None:
            await self.disconnect()
            self._lost(reason)


def _packed(command: Command) -> bytes:
    # The client library packs in Python, which costs more than all else of a publish; hiredis does it in C.
    pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub knows tuples of one only
    return pack(command)


async def _answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


async def _is_open(connection: AbstractConnection) -> bool:
    """Whether the other end is there, as far as can be known without asking it."""
    try:
        return not await connection.can_read()
    except (RedisError, OSError):
        return False


def _require_copies(answers: list[Any], appends: Sequence[int], needed: int) -> None:
    copies = answers.pop()
    if isinstance(copies, int) and copies >= needed:
        return
    had = copies if isinstance(copies, int) else "nobody knows how many"
    for number in appends:
        if not isinstance(answers[number], Exception):
            answers[number] = StoreUncertain(f"{had} of {needed} replicas have it in time")
