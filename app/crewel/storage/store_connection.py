"""The connections to the store: one that writes, and several that read.

All steps go through the `Writer`, in the order in which they were asked for, so that what one part of the server asked first is
done first. Nothing is ever repeated here: a repeated append would be a second message. What was not sent is
StoreUnavailable, what was sent and not answered StoreUncertain. Steps that are asked for while others are under way are sent
together with the next write: under load the store syncs its file once for many.

Reads go through the client library (`Reader`), on connections made when needed.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import hiredis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as NoAnswer

from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.event_loop import has_stalled
from crewel.settings.store_location import Place
from crewel.storage.confirmation import Marks
from crewel.storage.keys import Keys
from crewel.storage.primary import PrimaryConnection, pool_at
from crewel.storage.script_step import Step, scripts

T = TypeVar("T")

ANSWER_LIMIT_S = 2.0
"""Seconds that the store has to answer what was sent together."""

_MOST_CONNECTIONS: Final = 16
_POOL_WAIT_S: Final = 20.0  # that a read waits for one of them
REPLICAS_MS: Final = 1000  # that replicas have for what was sent together
_MOST_TOGETHER: Final = 1000  # commands in one write
_ALONG_S: Final = 0.02  # that what should go with other commands waits for some
_CANCEL_AGAIN_S: Final = 0.1
_NOT_YET: Final = object()
CLOSED: Final = "the store has closed the connection"
_FULL: Final = ("OOM", "MISCONF")
_NOT_NOW: Final = (
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
_ELSEWHERE: Final = ("READONLY", "MOVED")
"""Codes by which a server says that another one is the primary."""
_PERHAPS_ELSEWHERE: Final = ("NOREPLICAS", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
"""Codes of a server that may have been replaced: a former primary does not know it for some seconds."""

_ERROR_NUMBER: Final = re.compile(r"(?<=^Error )\d+(?= connecting to )|(?<=\[Errno )\d+(?=\])|(?<=: \()\d+(?=, )")
_PLACE: Final = re.compile(r"(?:connecting to|reading from|writing to) (\S*[:/]\S*?)[.:]?(?: |$)")
"""Where the client library says the number of an error, and the address."""

Command = tuple[bytes | str | int, ...]
Done = Callable[[list[Any]], None]

# The client library packs in Python, which costs more than all else of a publish; hiredis does it in C. Its stub knows
# tuples of one only.
pack: Callable[[Any], bytes] = hiredis.pack_command

_Call = tuple[list[bytes], bool, Done]
"""Commands of one caller as they are sent, whether replicas must have what they do, and the callback for the answers."""


def store_error(error: Exception) -> StoreError:
    """Return what an error of the client library, or of its parser, means: full, not now, or unexpected."""
    if not isinstance(error, ResponseError | hiredis.ReplyError):
        return StoreUnavailable(f"the store cannot be reached: {no_connection(error)}")
    # The library takes the code of an error out of its text if it knows it, and else leaves it there.
    code = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    if code in _FULL:
        return StoreFull(f"the store has no more space: {error}")
    if code in _NOT_NOW:
        return StoreUnavailable(f"the store does not take this now: {error}")
    return StoreError(f"the store answered: {error}")


def no_connection(error: Exception) -> str:
    """Return why there is no connection to the store, in words: the client library says numbers of errors and tuples."""
    text = str(error)
    number, place = _ERROR_NUMBER.search(text), _PLACE.search(text)
    if isinstance(error, NoAnswer | TimeoutError):
        what = "no answer in time"
    elif number is not None:
        what = os.strerror(int(number[0])).lower()
    else:
        return text.rstrip(".") or "no answer in time"
    return what if place is None else f"{what} at {place[1]}"


def client_name(prefix: str) -> str:
    """Return what the connections of a server with this `storage.prefix` are called in the store's list of clients."""
    return f"crewel/{prefix}"


def pool_of(url: str, prefix: str) -> ConnectionPool:
    """Return where connections to the store are made. A caller that finds all of them in use waits for one.
    They retry nothing: a repeated write is a second one."""
    return pool_at(
        url,
        Keys(prefix).base,
        max_connections=_MOST_CONNECTIONS,
        timeout=_POOL_WAIT_S,
        client_name=client_name(prefix),
        driver_info=None,  # it would read its own version from a file
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=ANSWER_LIMIT_S,
        socket_timeout=ANSWER_LIMIT_S,
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
    with cancellations_kept():
        try:
            return await asked
        except RedisError as error:
            raise store_error(error) from error


@contextmanager
def cancellations_kept() -> Iterator[None]:
    """The library sends under `wait_for`, and that of Python 3.11 forgets a cancellation that comes as it ends."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


async def surely_cancelled(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` does. If this is cancelled, the work is cancelled until it has ended: with several waits it may forget
    a cancellation at each (`cancellations_kept` looks behind the last alone). It takes a task, so it is for commands."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_CANCEL_AGAIN_S)
        if not task.cancelled():
            task.exception()  # of no use to anyone, and not to be logged as lost
        raise
    return task.result()


class Connection(asyncio.Protocol):
    """A connection such as the one on which everything is written, with at most one exchange under way: bytes out, as many
    answers in.

    The client library makes it, with its user, password, database and TLS. From then on its transport belongs to us: the
    library would take a coroutine for each command, and another for each answer.
    """

    def __init__(self, connection: AbstractConnection, lost: Callable[[str], None]) -> None:
        """Take over a connection that has been made. `lost` is called with the reason when it is of no use any more; it
        should `close` the connection."""
        # The library has no other way to its transport, and complains of open ones when it forgets a connection.
        writer = connection._writer  # noqa: SLF001
        connection._writer = connection._reader = None  # noqa: SLF001
        assert writer is not None
        self._writer = writer  # which closes the transport when it is forgotten
        self._transport = writer.transport
        self.place: Place | None = None
        """Where the server is, if the connection was made to the primary of several."""
        if isinstance(connection, PrimaryConnection):
            self.place = connection.host, connection.port
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._wanted = 0
        self._answers: list[Any] = []
        self._done: Callable[[list[Any]], None] | None = None
        self._limit_s = ANSWER_LIMIT_S
        self._deadline = 0.0
        self._timer: asyncio.Handle | None = None  # one for many exchanges
        self._due = 0.0
        """When it fires. Of what is due at once, uvloop's handle has no time."""
        self._transport.set_protocol(self)

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._transport.is_closing()

    def wait_longer(self, limit_s: float) -> None:
        """Let the store have so many seconds for each exchange from now on."""
        self._limit_s = limit_s

    def exchange(self, commands: Sequence[bytes], done: Callable[[list[Any]], None]) -> None:
        """Send the commands, and call `done` with an answer each. What the store answers with an error is a
        `hiredis.ReplyError`, what it did not answer StoreUncertain."""
        self._wanted, self._answers, self._done = len(commands), [], done
        self._deadline = self._loop.time() + self._limit_s
        if self._timer is None:
            self._watch()
        self._transport.write(commands[0] if len(commands) == 1 else b"".join(commands))

    async def ask(self, command: Command) -> Any:
        """Return the answer to one command, as `exchange` gives it."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.exchange([pack(command)], lambda answers: None if future.done() else future.set_result(answers[0]))
        return await future

    def close(self, reason: str) -> None:
        """Give up the connection, and with it what is under way: its caller is called back a little later."""
        self._lost = lambda _: None
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
        """Collect answers. With more answers than commands, no answer could be matched to its caller."""
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
            self._lost("the store sent a reply without a request")
        elif len(answers) == self._wanted and self._done is not None:
            done, self._done = self._done, None
            self._wanted, self._answers = 0, []
            done(answers)

    def eof_received(self) -> None:
        """The store sends no more."""
        self._lost(CLOSED)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended, by whatever."""
        self._lost(str(error) or type(error).__name__ if error and not isinstance(error, ConnectionError) else CLOSED)

    def _check_deadline(self) -> None:
        """See whether the exchange that is under way takes too long, if one is. A stall of the loop is no outage of the store.
        What it answered has not been read, or what was written has not even left, so the time begins again."""
        self._timer = None
        if self._done is None:
            return
        now = self._loop.time()
        if has_stalled(self._due, now):
            self._deadline = now + self._limit_s
        if now < self._deadline:
            self._watch()
        else:
            self._lost(f"no answer within {self._limit_s:g} s")

    def _watch(self) -> None:
        self._due = self._deadline
        self._timer = self._loop.call_at(self._due, self._check_deadline)


async def connected(pool: ConnectionPool, lost: Callable[[str], None]) -> Connection:
    """Return a connection of the caller's own, with user, password and database of the pool; `lost` as `Connection` has it.
    Raises RedisError, OSError or TimeoutError."""
    connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    try:
        with cancellations_kept():
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await connection.connect()  # type: ignore[no-untyped-call]
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return Connection(connection, lost)


class Writer:
    """Sends commands on one connection, in order, and hands out their answers. It needs no task: a write follows the answers
    to the one before it."""

    def __init__(
        self,
        replicas: Callable[[], int],
        marks: Marks,
        lost: Callable[[str], None],
        doubted: Callable[[], None],
    ) -> None:
        """`replicas` says how many must have a step, and `marks` are those of this connection. `lost` is called with the reason
        when the connection is gone, and `doubted` when the other end refuses writes as a former primary does."""
        self._replicas = replicas
        self._marks = marks
        self._lost = lost
        self._doubted = doubted
        self._connection: Connection | None = None
        self._calls: deque[_Call] = deque()
        self._along: list[_Call] = []
        """What goes with the next commands."""
        self._is_busy = False
        self._idle: asyncio.Future[None] | None = None
        self._is_ending = False

    @property
    def is_connected(self) -> bool:
        """Whether commands are taken."""
        return self._connection is not None

    @property
    def place(self) -> Place | None:
        """Where the primary is to which it is connected, if it is one of several."""
        return None if self._connection is None else self._connection.place

    async def connect(self, pool: ConnectionPool) -> None:
        """Make the connection, with its user, password and database. Raises RedisError, OSError or TimeoutError."""
        self._connection = await connected(pool, self.give_up)

    async def close(self) -> None:
        """Let what was asked for be answered, then disconnect."""
        self._is_ending = True
        if self._is_busy:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        self.disconnect()

    def disconnect(self, reason: str = "the connection was closed") -> None:
        """Give up the connection. What was sent on it and not answered is uncertain."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)

    def give_up(self, reason: str) -> None:
        """The connection is of no use any more: say that before the callers get their answers."""
        if self._connection is not None:
            self._lost(reason)
            self.disconnect(reason)

    def submit(self, commands: Sequence[Command], done: Done, *, is_copied: bool = False) -> None:
        """Send the commands, and call `done` with the store's answers, one a command: a value, or a StoreError; at once, if
        the store is away. It must not raise. `is_copied`: the answers count only if replicas have what was done. TypeError: a
        command cannot be sent."""
        if not commands or self._connection is None or self._is_ending:
            done(unavailable(commands))
            return
        # Packed here, so that one that cannot be is its caller's trouble alone.
        self._calls.append(([*map(pack, commands)], is_copied, done))
        if not self._is_busy:
            self._send_next()

    def submit_along(self, commands: Sequence[Command], done: Done, *, is_copied: bool = False) -> None:
        """Send commands together with what others ask for next, which would have to wait for an exchange of these alone. If
        nothing comes soon, they go alone. `done` is called as by `submit`."""
        if self._connection is None or self._is_ending:
            done(unavailable(commands))
            return
        self._along.append(([*map(pack, commands)], is_copied, done))
        asyncio.get_running_loop().call_later(_ALONG_S, self._send_along)

    def _send_along(self) -> None:
        if not self._along:
            return
        if self._is_busy:  # they go with what follows, if anything does
            asyncio.get_running_loop().call_later(_ALONG_S, self._send_along)
        else:
            self._send_next()

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the store's answers, as `submit` gives them. A caller that is cancelled leaves its commands where they are:
        half a pipeline cannot be taken back."""
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.submit(commands, lambda answers: None if future.done() else future.set_result(answers))
        return await future

    def _send_next(self) -> None:
        self._is_busy = True
        if self._along:
            self._calls += self._along
            self._along = []
        calls: list[_Call] = []
        commands: list[bytes] = []
        is_copied = False
        while self._calls and (not calls or len(commands) + len(self._calls[0][0]) <= _MOST_TOGETHER):
            call = self._calls.popleft()
            commands += call[0]
            is_copied |= call[1]
            calls.append(call)
        needed = self._replicas() if is_copied else 0
        if needed:
            # Not without the mark: steps that only found what another connection wrote are waited for as well.
            commands += [pack(command_of(self._marks.step())), pack(("WAIT", needed, REPLICAS_MS))]
        elif is_copied:
            self._marks.lapse()
        self._exchange(commands, partial(self._answered, calls, commands, needed))

    def _exchange(self, commands: Sequence[bytes], done: Done) -> None:
        if self._connection is None:
            done(unavailable(commands))
        else:
            self._connection.exchange(commands, done)

    def _answered(self, calls: Sequence[_Call], commands: Sequence[bytes], needed: int, answers: list[Any]) -> None:
        if hiredis.ReplyError in map(type, answers):
            unknown = [number for number, answer in enumerate(answers) if _has_code(answer, "NOSCRIPT")]
            if unknown:
                if needed:
                    both = len(commands) - 2, len(commands) - 1  # the replicas had nothing of these to wait for
                    unknown = [*(number for number in unknown if number not in both), *both]
                self._repeat(unknown, commands, answers, partial(self._call_back, calls, needed))
                return
        self._call_back(calls, needed, answers)

    def _repeat(self, unknown: Sequence[int], commands: Sequence[bytes], answers: list[Any], done: Done) -> None:
        """Load the scripts again, for the store has forgotten them, and send what it did not know: nothing of that was
        done."""
        load = [pack(("SCRIPT", "LOAD", script.text)) for script in scripts().values()]

        def answered(again: list[Any]) -> None:
            for number, answer in zip(unknown, again[len(load) :], strict=True):
                answers[number] = answer
            done(answers)

        self._exchange([*load, *(commands[number] for number in unknown)], answered)

    def _call_back(self, calls: Sequence[_Call], needed: int, answers: list[Any]) -> None:
        copies = answers.pop() if needed else 0
        if needed and isinstance(answers.pop(), Exception):
            copies = 0  # the mark was refused, so nothing is known of the copies
        if needed and _lack(copies, needed) is None:
            self._marks.confirm()
        elif needed:
            self._doubted()
        if hiredis.ReplyError in map(type, answers):
            elsewhere = next((answer for answer in answers if _has_code(answer, *_ELSEWHERE)), None)
            if elsewhere is not None:
                self.give_up(f"it is not the primary: {elsewhere}")
            elif any(_has_code(answer, *_PERHAPS_ELSEWHERE) for answer in answers):
                self._doubted()
            answers = [store_error(answer) if isinstance(answer, hiredis.ReplyError) else answer for answer in answers]
        start = 0
        for commands, is_copied, done in calls:
            end = start + len(commands)
            own = answers[start:end]
            done(_if_copied(own, copies, needed) if needed and is_copied else own)
            start = end
        self._is_busy = False
        if self._calls:
            self._send_next()
        elif self._idle is not None:
            self._idle.set_result(None)


def command_of(step: Step[Any]) -> Command:
    """Return the command that does a step."""
    return (b"EVALSHA", scripts()[step.script].sha, len(step.keys), *step.keys, *step.arguments)


def unavailable(commands: Sequence[object]) -> list[Any]:
    """Return what each of these is answered while the store is away: nothing was sent."""
    return [StoreUnavailable("the store is unavailable") for _ in commands]


def _has_code(answer: Any, *codes: str) -> bool:
    return isinstance(answer, hiredis.ReplyError) and str(answer).startswith(codes)


def _if_copied(answers: list[Any], copies: Any, needed: int) -> list[Any]:
    """What these answers are worth when so many replicas had it in time: what was refused stays refused."""
    lack = _lack(copies, needed)
    return answers if lack is None else [each if isinstance(each, Exception) else lack for each in answers]


def _lack(copies: Any, needed: int) -> StoreUncertain | None:
    if isinstance(copies, int) and copies >= needed:
        return None
    had = copies if isinstance(copies, int) else "an unknown number"
    return StoreUncertain(f"{had} of {needed} replicas have it in time")


def not_copied(answers: list[Any], needed: int) -> StoreError | None:
    """The answers to a command that writes and to WAIT: None if so many replicas have what was before, else why not."""
    marked, copies = answers
    if isinstance(marked, StoreError):
        return marked
    return store_error(marked) if isinstance(marked, hiredis.ReplyError) else _lack(copies, needed)
