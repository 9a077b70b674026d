"""Publishes that wait for the server: in memory, or in an SQLite file that the next process continues with.

Theory of operation: a publish is written into the table with an idempotency key, and deleted when the server has answered. One
task sends the oldest ones, several in a payload, and again after a failure that passes. The server takes a key once within
two minutes (docs/explanation/guarantees.md), so a publish whose answer was lost is still one message. Refused ones stay in the
table, with the reason, until the application has looked at them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from queue import SimpleQueue
from random import random
from threading import Thread
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from crewel.bayeux.message import Fields
from crewel.bayeux.numbers import parse
from crewel.client.arguments import check_count, check_path, check_plain_function, check_wait
from crewel.client.client_message import SendPayload, is_successful
from crewel.client.errors import (
    NEVER_TAKEN,
    ClientError,
    DisconnectedError,
    MessageTooLargeError,
    NotConnectedError,
    OutboxFullError,
    SocketClosedError,
    TransportError,
    publish_refused,
)
from crewel.client.payload import written
from crewel.client.publish_options import PAUSES, may_be_repeated
from crewel.client.retry import Backoff
from crewel.client.time_units import NO_LIMIT
from crewel.client.traces import NO_TRACES, Traces

log = logging.getLogger("crewel.client.outbox")

MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
_TOGETHER: Final = 100
_ROOM: Final = 48 * 1024
"""Most bytes that are sent together: servers take 64 KiB unless they are configured otherwise."""
_CLOSES: Final = 3
"""How often in a row the server closes the socket for the same publish, sent alone, before this counts as its refusal. Once,
something else that the application sent may have been the reason."""
_CAP: Final = "resource.exhaust"
"""The code of a refusal because a cap of the server is reached: something must end first."""
_REST_S: Final = 1.0
"""For how long a lane rests after that."""
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS outbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    message BLOB NOT NULL,
    error_code TEXT,
    error_text TEXT
)
"""
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Call = tuple[Future[Any], Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class RefusedPublish:
    """A publish that the server refused for good."""

    key: str
    channel: str
    data: Any
    error_code: str
    text: str


class _Row(NamedTuple):
    position: int
    key: str
    message: bytes


class _Sent(Enum):
    """What has come of a payload."""

    ANSWERED = "answered"
    """All of its messages have left the outbox, or wait in lanes that rest."""
    PUT_OFF = "put off"
    """The server has replied, and some of them are to be sent again."""
    FAILED = "failed"
    """No replies."""
    REFUSED_TOGETHER = "refused together"
    """One of them cannot be sent or is not taken, or they are too many: fewer of them show which."""


class _Outcome(NamedTuple):
    """What the server has answered to a publish: with a code, it has refused it for good."""

    row: _Row
    code: str | None = None
    text: str = ""


class _FileError(ClientError):
    """The file cannot be used now."""


class Outbox:
    """A bounded queue of publishes: `Client(url, outbox=Outbox("orders.outbox"))`, and `client.enqueue`.

    Without a path it is in memory, and ends with the process. A file is used by one process at a time. `on_refused` is called
    with each `RefusedPublish`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
        on_refused: Callable[[RefusedPublish], None] | None = None,
    ) -> None:
        for name, value in (("max_messages", max_messages), ("max_bytes", max_bytes)):
            check_count(name, value)
        if path is not None:
            check_path("path", path)
        if on_refused is not None:
            check_plain_function("on_refused", on_refused)
        self.path = None if path is None else Path(path)
        """Its file; None: it is in memory."""
        self.waiting = 0
        """How many publishes the server has not answered yet."""
        self.failure: ClientError | None = None
        """Why it sends no more: the client's session has ended."""
        self._max_messages, self._max_bytes, self._on_refused = max_messages, max_bytes, on_refused
        self._bytes = 0
        self._closed_for: tuple[int, int] = (0, 0)
        """The position of the publish for which the server closed the socket, and how often in a row."""
        self._outcomes: list[_Outcome] = []
        """What the server has answered and the file does not have yet."""
        self._table: _Table | None = None
        self._traces = NO_TRACES
        self._task: asyncio.Task[None] | None = None
        self._resting: dict[str, float] = {}  # lanes that a cap of the server stops, and until when
        self._added, self._is_empty = asyncio.Event(), asyncio.Event()

    async def put(self, message: Fields) -> str:
        """Keep the message of a publish; returns its key. With a path it is on disk then. If the server has refused an earlier
        publish with this key, this one takes its place.

        Raises:
            OutboxFullError: there are too many, or too many bytes.
            NotEncodableError: JSON cannot say what is in it.
            ClientError: the file cannot be written.
        """
        table, key = self._opened(), str(message["ext"]["publish"]["key"])
        content = written(message)
        if self.waiting >= self._max_messages or self._bytes + len(content) > self._max_bytes:
            raise OutboxFullError(
                f"{self._name()} is full: it has {self.waiting} of {self._max_messages} messages,"
                f" and {self._bytes} of {self._max_bytes} bytes"
            )
        # Before the file is written: others that come meanwhile must find the room taken.
        self._count(1, len(content))
        # A task: the thread adds the message also if this call is cancelled meanwhile.
        await asyncio.shield(asyncio.create_task(self._add(table, key, content), name="crewel-client-enqueue"))
        return key

    async def _add(self, table: _Table, key: str, content: bytes) -> None:
        is_new = False
        try:
            is_new = await table.call(table.add, key, content)
        finally:
            if not is_new:
                self._count(-1, -len(content))
        self._added.set()

    async def drained(self, timeout: float | None = None) -> None:
        """Wait until the server has replied to all publishes. Raises TimeoutError after `timeout` seconds (None or -1: no
        limit), the error that ended the session, and DisconnectedError if the client was closed before."""
        if timeout == NO_LIMIT:
            timeout = None
        if timeout is not None:
            check_wait("timeout", timeout)
        async with asyncio.timeout(timeout):
            await self._is_empty.wait()
        if self.waiting:
            raise self.failure or DisconnectedError(f"the client was closed: {self.waiting} publishes are left")

    async def refused(self) -> list[RefusedPublish]:
        """Return the publishes that the server has refused, oldest first."""
        table = self._opened()
        return await table.call(table.refused)

    async def forget_refused(self) -> None:
        """Delete them."""
        table = self._opened()
        await table.call(table.forget_refused)

    # For the client

    async def open(self) -> None:
        """Read what an earlier process has left. Raises ClientError."""
        if self._table is not None:
            raise ClientError(f"{self._name()} belongs to another client")
        table = _Table(self.path)
        try:
            self.waiting, self._bytes = await table.call(table.open)
        except BaseException:
            await table.end()
            raise
        self._table, self.failure = table, None
        self._count(0, 0)
        if self.waiting:
            log.info("%s: %d publishes are left to send", self._name(), self.waiting)

    def start(self, request: SendPayload, traces: Traces = NO_TRACES) -> None:
        """Send the queue and what is added, until `close`."""
        self._traces = traces
        self._task = asyncio.create_task(self._send_all(request), name="crewel-client-outbox")

    async def close(self, timeout: float) -> None:
        """Send for so many seconds more, and close the file. What is left stays in it."""
        table, self._table = self._table, None
        if table is None:
            return
        try:
            with suppress(TimeoutError, ClientError):
                await self.drained(timeout)
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
            with suppress(ClientError):
                await self._settle(table)
            if self.waiting:
                fate = "are lost" if self.path is None else f"stay in {self.path}"
                log.warning("%d publishes were not answered and %s", self.waiting, fate)
            self._is_empty.set()  # calls of `drained` end too
            await table.end()

    def _opened(self) -> _Table:
        if self.failure is not None:
            raise self.failure
        if self._table is None:
            raise NotConnectedError("the client of this outbox is not entered: use `async with Client(url, outbox=…)`")
        return self._table

    def _name(self) -> str:
        return "the outbox" if self.path is None else f"the outbox {self.path}"

    def _count(self, messages: int, size: int) -> None:
        self.waiting += messages
        self._bytes += size
        if self.waiting:
            self._is_empty.clear()
        else:
            self._is_empty.set()

    async def _send_all(self, request: SendPayload) -> None:
        pauses, together = Backoff(PAUSES, random), _TOGETHER
        loop = asyncio.get_running_loop()
        table = self._opened()
        try:
            while True:
                self._added.clear()
                try:
                    await self._settle(table)  # what the file did not take before
                    now = loop.time()
                    self._resting = {lane: until for lane, until in self._resting.items() if until > now}
                    rows = await table.call(table.oldest, together, frozenset(self._resting))
                    if not rows:
                        with suppress(TimeoutError):
                            async with asyncio.timeout_at(min(self._resting.values(), default=None)):
                                await self._added.wait()
                        continue
                    sent = await self._send(rows, request)
                    if self._outcomes:
                        pauses.succeeded()
                    await self._settle(table)
                except _FileError as error:
                    log.warning("%s: trying again", error)
                    await asyncio.sleep(pauses.failed())
                    continue
                # A payload that failed may have one message that does: alone, it fails alone. What the server has put off is
                # sent again first, together with others: it must not keep them waiting.
                if sent is _Sent.REFUSED_TOGETHER:
                    together = len(rows) // 2
                    continue
                together = 1 if sent is _Sent.FAILED else min(2 * together, _TOGETHER)
                if sent is not _Sent.ANSWERED:
                    await asyncio.sleep(pauses.failed())
        except ClientError as error:
            log.error("%s has stopped sending, with %d publishes left: %s", self._name(), self.waiting, error)
            self.failure = error
            self._is_empty.set()

    async def _send(self, rows: list[_Row], request: SendPayload) -> _Sent:
        """Send these in one payload, and note what is answered for good. Raises ClientError if none ever will be."""
        try:
            replies = await request([parse(row.message) for row in rows])
        except NEVER_TAKEN as error:
            if len(rows) > 1:
                return _Sent.REFUSED_TOGETHER
            return self._refuse(rows[0], error)
        except (TransportError, NotConnectedError) as error:
            if len(rows) == 1 and self._is_closed_for(rows[0], error):
                return self._refuse(rows[0], error)
            log.info("%s: %d publishes wait: %s", self._name(), self.waiting, error)
            return _Sent.FAILED
        sent = _Sent.ANSWERED
        for row, reply in zip(rows, replies, strict=True):
            if is_successful(reply):
                self._outcomes.append(_Outcome(row))
                continue
            refusal = publish_refused(reply)
            if refusal.error_code == _CAP:
                self._resting[_lane(parse(row.message))] = asyncio.get_running_loop().time() + _REST_S
            elif may_be_repeated(refusal):
                sent = _Sent.PUT_OFF
            else:
                code, text = refusal.error_code or str(refusal.code), refusal.message or refusal.text
                self._outcomes.append(_Outcome(row, code, text))
        return sent

    def _refuse(self, row: _Row, error: ClientError) -> _Sent:
        is_large = isinstance(error, MessageTooLargeError)
        self._outcomes.append(_Outcome(row, "user.maxSizeExceed" if is_large else "user.illegalArgument", str(error)))
        return _Sent.ANSWERED

    def _is_closed_for(self, row: _Row, error: ClientError) -> bool:
        """Whether the server has closed the socket for this publish so often that it will do so again."""
        is_about_it = isinstance(error, SocketClosedError) and error.is_about_a_payload
        position, times = self._closed_for
        self._closed_for = row.position, times + 1 if is_about_it and position == row.position else int(is_about_it)
        return self._closed_for[1] >= _CLOSES

    async def _settle(self, table: _Table) -> None:
        """Write to the file what the server has answered. If the file cannot be used, it is remembered, and not sent again."""
        outcomes = self._outcomes
        if not outcomes:
            return
        await table.call(table.settle, outcomes)
        self._outcomes = []
        self._count(-len(outcomes), -sum(len(each.row.message) for each in outcomes))
        for row, code, text in outcomes:
            if code is not None:
                self._traces.failed(parse(row.message), code, text)
                self._tell_refused(_refused(row.key, row.message, code, text))

    def _tell_refused(self, refused: RefusedPublish) -> None:
        log.warning("a publish to %s was refused: %s %s", refused.channel, refused.error_code, refused.text)
        if self._on_refused is not None:
            try:
                self._on_refused(refused)
            except (Exception, SystemExit):  # that would end the task, and the loop of all synchronous clients
                log.exception("on_refused failed")


def _lane(message: Fields) -> str:
    """Within a lane, publishes keep their order: those of a channel, and apart from them those of it that are scheduled."""
    publish = message["ext"]["publish"]
    is_scheduled = "deliverAt" in publish or "deliverAfter" in publish
    return f"{'scheduled ' if is_scheduled else ''}{message['channel']}"


def _refused(key: str, message: bytes, code: str, text: str) -> RefusedPublish:
    fields = parse(message)
    return RefusedPublish(key, fields["channel"], fields["data"], code, text)


class _Table:
    """The table, used by one thread of its own."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        # No pool: those take no more calls at the end of the process, when open synchronous clients still send.
        Thread(target=self._run, name="crewel-client-outbox", daemon=True).start()
        self._database: sqlite3.Connection
        self._files = ExitStack()

    async def call(self, work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Do this in the thread. Raises ClientError for what the file does not allow."""
        future: Future[_T] = Future()
        self._calls.put((future, lambda: work(*arguments, **named)))
        try:
            return await asyncio.wrap_future(future)
        except (sqlite3.Error, OSError) as error:
            raise _FileError(f"the outbox {self._path or 'in memory'} cannot be used: {error}") from error

    async def end(self) -> None:
        """Close the file, also one that could not be read, and end the thread."""
        try:
            await self.call(self._files.close)
        finally:
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, work = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                future.set_exception(error)

    def open(self) -> tuple[int, int]:
        """How many messages and bytes wait."""
        if self._path is not None:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        database = sqlite3.connect(self._path or ":memory:", timeout=0, isolation_level=None, check_same_thread=False)
        self._database = self._files.enter_context(closing(database))
        # Two senders of one file would each send everything.
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        [version] = self._database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"it has the format {version}, and this version of Crewel knows {_VERSION}")
        self._database.execute("BEGIN EXCLUSIVE")
        self._database.execute(_SCHEMA)
        self._database.execute(f"PRAGMA user_version = {_VERSION}")
        self._database.execute("COMMIT")
        query = "SELECT count(*), coalesce(sum(length(message)), 0) FROM outbox WHERE error_code IS NULL"
        [messages, size] = self._database.execute(query).fetchone()
        return messages, size

    def add(self, key: str, message: bytes) -> bool:
        """Whether it was not there yet. A refused row with this key is replaced, and goes to the end."""
        with self._transaction():
            self._database.execute("DELETE FROM outbox WHERE key = ? AND error_code IS NOT NULL", (key,))
            command = "INSERT INTO outbox (key, message) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"
            return self._database.execute(command, (key, message)).rowcount == 1

    def oldest(self, most: int, resting: frozenset[str]) -> list[_Row]:
        """So many that have not been refused, and are not in these lanes, the oldest first; one at least, and else no more than
        fit into a payload."""
        query = "SELECT position, key, message FROM outbox WHERE error_code IS NULL ORDER BY position"
        taken: list[_Row] = []
        room = _ROOM
        for row in map(_Row._make, self._database.execute(query)):
            if resting and _lane(parse(row.message)) in resting:
                continue
            room -= len(row.message)
            if len(taken) == most or (taken and room < 0):
                break
            taken.append(row)
        return taken

    def settle(self, outcomes: list[_Outcome]) -> None:
        """Delete what was accepted, and note the reason of what was refused."""
        update = "UPDATE outbox SET error_code = ?, error_text = ? WHERE position = ?"
        refused = [(code, text, row.position) for row, code, text in outcomes if code is not None]
        accepted = [(each.row.position,) for each in outcomes if each.code is None]
        with self._transaction():
            self._database.executemany("DELETE FROM outbox WHERE position = ?", accepted)
            self._database.executemany(update, refused)

    def refused(self) -> list[RefusedPublish]:
        query = "SELECT key, message, error_code, error_text FROM outbox WHERE error_code IS NOT NULL ORDER BY position"
        return [_refused(*row) for row in self._database.execute(query)]

    def forget_refused(self) -> None:
        self._database.execute("DELETE FROM outbox WHERE error_code IS NOT NULL")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of the block, or nothing."""
        self._database.execute("BEGIN")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # a full disk may have rolled it back
                self._database.execute("ROLLBACK")
            raise
