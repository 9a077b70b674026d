"""Handling a message once: a table of the ids that were handled, in the application's own database and transaction.

A message comes again when the acknowledgement was lost: the process was killed between its commit and the acknowledgement, or
the server between the acknowledgement and its disk. The transaction that has the effect of a message also notes its id, so
either both are there or neither. A message whose id is noted is acknowledged without another effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from crewel.client.client_message import Message

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


class Connection(Protocol):
    """A connection of `sqlite3` or of `psycopg`, with an open transaction of the application."""

    @property
    def execute(self) -> Callable[..., Any]:
        """Runs one statement; the result has `rowcount`."""
        ...


class AsyncConnection(Protocol):
    """A connection of `psycopg.AsyncConnection` or of `aiosqlite`, with an open transaction of the application."""

    @property
    def execute(self) -> Callable[..., Any]:
        """Runs one statement; the awaited result has `rowcount`."""
        ...


class Inbox:
    """The ids of handled messages, for one receiver: a worker, or all members of its consumer group.

    `receiver` is the name under which they are noted. `marker` is how the database writes a parameter: `?` for SQLite, `%s`
    for PostgreSQL with psycopg. Raises ValueError for a `table` that is no plain name.

        inbox = Inbox("billing")
        inbox.create(database)
        async for message in client.consume("/orders/*", name="billing/1"):
            async with message:
                with database:
                    if inbox.is_first(database, message):
                        database.execute("UPDATE …")
    """

    def __init__(self, receiver: str, *, table: str = "crewel_inbox", marker: str = "?") -> None:
        if not receiver:
            raise ValueError("receiver is a name, not an empty string")
        if not _NAME.fullmatch(table):
            raise ValueError(f"table is a name of letters, digits and _, not {table!r}")
        if marker not in ("?", "%s"):
            raise ValueError(f"marker is ? or %s, not {marker!r}")
        self._receiver = receiver
        self.schema = (
            f"CREATE TABLE IF NOT EXISTS {table} (receiver TEXT NOT NULL, message_id TEXT NOT NULL,"
            " handled_at TEXT NOT NULL, PRIMARY KEY (receiver, message_id))"
        )
        """The statement that makes the table, for migrations."""
        # The table is checked above, and a name of a table cannot be a parameter.
        self._note = (
            f"INSERT INTO {table} (receiver, message_id, handled_at) VALUES ({marker}, {marker}, {marker})"  # noqa: S608
            " ON CONFLICT (receiver, message_id) DO NOTHING"
        )
        self._forget = f"DELETE FROM {table} WHERE receiver = {marker} AND handled_at < {marker}"  # noqa: S608

    def create(self, connection: Connection) -> None:
        """Make the table unless it is there."""
        connection.execute(self.schema)

    def is_first(self, connection: Connection, message: Message, key: str | None = None) -> bool:
        """Record the message in the open transaction. Returns False if it was handled before: then only acknowledge it. `key`,
        for example `message.idempotency_key`, replaces its id. Raises ValueError if it has neither.

        With the commit the message is handled: to have it sent again, decide before this call, or roll back. Until then
        `retry`, `hold` and a `reject` after which the server sends it again raise RuntimeError."""
        row = self._row(message, key)
        message.recorded_in = connection
        return bool(connection.execute(self._note, row).rowcount)

    def forget(self, connection: Connection, age: timedelta) -> int:
        """Delete the records that are older than `age`, and return their number. `age` must be longer than the time for which
        any message may wait or be delivered again."""
        return int(connection.execute(self._forget, self._before(age)).rowcount)

    async def create_async(self, connection: AsyncConnection) -> None:
        """Make the table unless it is there."""
        await connection.execute(self.schema)

    async def is_first_async(self, connection: AsyncConnection, message: Message, key: str | None = None) -> bool:
        """Record the message in the open transaction. Returns False if it was handled before: then only acknowledge it.
        `is_first` explains the rest."""
        row = self._row(message, key)
        message.recorded_in = connection
        return bool((await connection.execute(self._note, row)).rowcount)

    async def forget_async(self, connection: AsyncConnection, age: timedelta) -> int:
        """Delete the records that are older than `age`, and return their number. `forget` says how long `age` must be."""
        return int((await connection.execute(self._forget, self._before(age))).rowcount)

    def _row(self, message: Message, key: str | None) -> tuple[str, str, str]:
        noted = key if key is not None else message.id
        if not noted:
            raise ValueError(f"the message on {message.channel} has no id: use a client with update, or give a key")
        return self._receiver, noted, _text(datetime.now(UTC))

    def _before(self, age: timedelta) -> tuple[str, str]:
        return self._receiver, _text(datetime.now(UTC) - age)


def _text(moment: datetime) -> str:
    """Texts compare as their moments do, in both databases."""
    return moment.isoformat(timespec="microseconds")
