"""What a parent and its workers tell each other: one JSON object a line, over a pair of sockets.

The parent always sends its whole knowledge, so that a line replaces all earlier ones. A worker repeats the number of each line
that it has acted on. The end of the connection means that the other process has ended.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeAlias

import orjson

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a worker gets from its parent when it starts, as the hidden option `--inherited` has it."""

    number: int
    """Of the worker, from 1: its successors have the same."""
    listeners: list[int]
    """Descriptors of bound sockets."""
    channel: int
    """The descriptor of the worker's end."""

    def text(self) -> str:
        """The value of the option."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def read(cls, text: str) -> Inheritance:
        """What such a value says, or that of a parent of another version, which may say more. Raises ValueError."""
        said = orjson.loads(text)
        try:
            return cls(**{each.name: said[each.name] for each in fields(cls)})
        except (TypeError, KeyError) as error:
            raise ValueError(repr(error)) from None


@dataclass(frozen=True, slots=True)
class Situation:
    """What a parent tells."""

    number: int = 0
    """Of the line."""
    serving: dict[str, int] = field(default_factory=dict)
    """Number of a worker -> its process."""
    leaving: list[int] = field(default_factory=list)
    """Processes that have ended, or are about to."""
    heir: int | None = None
    """The process that is to take over the sessions of one that is about to end; None: whichever comes first."""
    full: str | None = None
    """Why the embedded store must take no more; None if it has room."""
    home: str | None = None
    """The directory of the embedded store, which the parent runs; None if there is none."""
    store_trouble: str | None = None
    """Why the embedded store cannot be used, as the parent knows it that starts it again; None while it can."""
    failing: dict[str, int] = field(default_factory=dict)
    """Number of a worker that does not start -> how often in a row it has not."""
    workers: int = 1
    """How many there are to be."""

    @classmethod
    def read(cls, said: dict[str, Any]) -> Situation:
        """What a parent has said. One of another version may say more, or less."""
        return cls(**{each.name: said[each.name] for each in fields(cls) if each.name in said})


async def streams(end: socket.socket) -> Streams:
    """The connected end of a pair, to read and to write."""
    return await asyncio.open_unix_connection(sock=end)


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The objects that come, until the other process has ended."""
    with suppress(ConnectionError):
        while line := await reader.readline():
            yield orjson.loads(line)


def send(writer: asyncio.StreamWriter, fields: dict[str, Any]) -> None:
    """Send an object, unless the other process has ended."""
    if not writer.is_closing():
        writer.write(orjson.dumps(fields) + b"\n")
