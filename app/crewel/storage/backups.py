"""Backup files: all keys of one `storage.prefix`, as the commands that make them again.

A file is gzip, whose checksum tells damage and whose end tells that it is whole. In it: a head, one command a line of a key
with names less the prefix, and an end that counts them, each as the store's own protocol writes an array. Plain commands can
be read by any Redis and any Valkey; what DUMP makes cannot.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import hiredis
from redis.asyncio import Redis

from crewel.errors import StoreError
from crewel.storage.keys import FORMAT, Keys

Done = Callable[[int], None]
"""Is told the number of keys, or commands, that are done."""
Line = tuple[Any, ...]

# The commands that a backup may hold, and the place of the key in each.
_KNOWN = dict.fromkeys((b"SET", b"SADD", b"ZADD", b"HSET", b"XADD", b"XSETID", b"PEXPIREAT"), 1) | {b"XGROUP": 2}
_HEAD, _END = b"crewel-backup", b"end"
_VERSION = 1
_MEMBERS = 500  # of a set, a hash or a stream in one command
_TOGETHER = 200  # commands in one write
_CHUNK = 1 << 16
_MORE = object()  # what a parser says that has no whole command yet


@dataclass(slots=True)
class Contents:
    """What a backup holds, counted command by command."""

    commands: int = 0
    keys: int = 0
    sessions: int = 0
    messages: int = 0
    """In the log."""
    letters: int = 0
    _last: bytes = b""

    def count(self, command: bytes, key: bytes) -> None:
        """Count one command of this key, whose name is less the prefix. All commands of one key come together."""
        self.commands += 1
        if key != self._last:
            self._last = key
            self.keys += 1
            self.sessions += key.startswith(b"s:")
        if command == b"XADD":
            self.messages += key == b"log"
            self.letters += key == b"dead"

    def __str__(self) -> str:
        return (
            f"{self.keys:,} keys: {self.sessions:,} sessions, {self.messages:,} messages, {self.letters:,} dead letters"
        )


class BackupError(StoreError):
    """The file is no backup, or not a whole one; or a key cannot be backed up."""


async def write(source: Redis, keys: Keys, file: BinaryIO, done: Done) -> Contents:
    """Write all keys under the prefix to `file` and return what that was; leases, which die with their servers, are left out.
    Raises BackupError if no server has kept anything under the prefix."""
    pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub knows tuples of one only
    leases = keys.lease("").encode()
    found = [name async for name in source.scan_iter(match=f"{keys.base}*", count=1000)]
    names = sorted(name for name in found if not name.startswith(leases))
    if not names:
        raise BackupError("no server has kept anything there: is that the right place?")
    contents = Contents()
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3, filename="", mtime=0) as packed:
        packed.write(pack((_HEAD, _VERSION, FORMAT, len(names))))
        for number, name in enumerate(names, 1):
            async for line in _lines(source, name, name[len(keys.base) :]):
                packed.write(pack(line))
                contents.count(line[0], line[_KNOWN[line[0]]])
            done(number)
        packed.write(pack((_END, contents.commands)))
    return contents


async def _lines(source: Redis, name: bytes, short: bytes) -> AsyncIterator[Line]:
    kind = str((await _ask(source, "TYPE", name)).decode())
    if kind not in _WRITERS:
        raise BackupError(f"the key {short.decode('utf-8', 'replace')} is a {kind}, of which Crewel makes none")
    async for line in _WRITERS[kind](source, name, short):
        yield line
    expiry = await _ask(source, "PEXPIRETIME", name)
    if expiry >= 0:
        yield (b"PEXPIREAT", short, expiry)


async def _ask(source: Redis, *command: Any) -> Any:
    # The library's methods are typed for texts only.
    return await source.execute_command(*command)  # type: ignore[no-untyped-call]


async def _string(source: Redis, name: bytes, short: bytes) -> AsyncIterator[Line]:
    yield (b"SET", short, await source.get(name))


async def _set(source: Redis, name: bytes, short: bytes) -> AsyncIterator[Line]:
    members = sorted(await source.smembers(name))
    for part in _parts(members):
        yield (b"SADD", short, *part)


async def _sorted_set(source: Redis, name: bytes, short: bytes) -> AsyncIterator[Line]:
    for part in _parts(await source.zrange(name, 0, -1, withscores=True)):
        yield (b"ZADD", short, *(word for member, score in part for word in (f"{score:.0f}", member)))  # all are whole


async def _hash(source: Redis, name: bytes, short: bytes) -> AsyncIterator[Line]:
    fields = sorted((await source.hgetall(name)).items())
    for part in _parts(fields):
        yield (b"HSET", short, *(word for pair in part for word in pair))


async def _stream(source: Redis, name: bytes, short: bytes) -> AsyncIterator[Line]:
    about: Any = await source.xinfo_stream(name)
    # An empty stream can only be made like this, and it has a newest id all the same.
    yield (b"XGROUP", b"CREATE", short, b"new", b"0", b"MKSTREAM")
    yield (b"XGROUP", b"DESTROY", short, b"new")
    after = b"-"
    while entries := await _ask(source, "XRANGE", name, after, b"+", b"COUNT", _MEMBERS):
        for entry, fields in entries:
            yield (b"XADD", short, entry, *(word for pair in fields.items() for word in pair))
        after = b"(" + entries[-1][0]
    newest, removed = about["last-generated-id"], about["max-deleted-entry-id"]
    yield (b"XSETID", short, newest, b"ENTRIESADDED", about["entries-added"], b"MAXDELETEDID", removed)


_WRITERS: dict[str, Callable[[Redis, bytes, bytes], AsyncIterator[Line]]] = {
    "string": _string,
    "set": _set,
    "zset": _sorted_set,
    "hash": _hash,
    "stream": _stream,
}


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + _MEMBERS] for start in range(0, len(items), _MEMBERS))


def check(file: Path, done: Done) -> Contents:
    """Read a backup to its end and return what it holds. Raises BackupError unless it is whole, ours, and not empty."""
    contents = Contents()
    for line in _commands(file):
        contents.count(line[0], line[_KNOWN[line[0]]])
        if contents.commands % _TOGETHER == 0:
            done(contents.commands)
    done(contents.commands)
    if not contents.keys:
        raise BackupError(f"{file}: holds nothing: there was no store where it was made")
    return contents


async def clear(target: Redis, keys: Keys) -> None:
    """Remove all keys of the prefix."""
    names: list[bytes] = []
    async for name in target.scan_iter(match=f"{keys.base}*", count=1000):
        names.append(name)
        if len(names) >= _TOGETHER:
            await target.unlink(*names)
            names.clear()
    if names:
        await target.unlink(*names)


async def apply(file: Path, target: Redis, keys: Keys, done: Done) -> None:
    """Do the commands of a backup that has been checked. The format comes last: without it no server uses the rest."""
    base = keys.base.encode()
    last: list[Line] = []
    pipeline = target.pipeline()
    for number, (name, *words) in enumerate(_commands(file), 1):
        place = _KNOWN[name] - 1
        is_format = words[place] == b"format"
        words[place] = base + words[place]
        if is_format:
            last.append((name, *words))
        else:
            pipeline.execute_command(name, *words)
        if len(pipeline) >= _TOGETHER:
            await pipeline.execute()
            done(number)
    for line in last:
        pipeline.execute_command(*line)
    await pipeline.execute()


def _commands(file: Path) -> Iterator[Line]:
    """Yield the commands of a backup. Raises BackupError at the place where it turns out to be none."""
    try:
        with gzip.open(file, "rb") as packed:
            lines = _read(packed)
            _check_head(next(lines, None), file)
            for count, line in enumerate(lines):
                if line[0] == _END:
                    if int(line[1]) != count or next(lines, None) is not None:
                        raise BackupError(f"{file}: is damaged: it holds {count} commands and not {int(line[1])}")
                    return
                if line[0] not in _KNOWN or len(line) <= _KNOWN[line[0]]:
                    raise BackupError(f"{file}: is no backup of Crewel: it holds other commands")
                yield line
    except EOFError:
        raise BackupError(f"{file}: ends too early: it was cut off") from None
    except (gzip.BadGzipFile, zlib.error, hiredis.ProtocolError, ValueError) as error:
        raise BackupError(f"{file}: is no backup, or a damaged one: {error}") from None
    except OSError as error:
        raise BackupError(f"{file}: cannot be read: {error.strerror}") from None
    raise BackupError(f"{file}: ends too early: it was cut off")


def _read(packed: Any) -> Iterator[Line]:
    reader = hiredis.Reader(notEnoughData=_MORE)
    while chunk := packed.read(_CHUNK):
        reader.feed(chunk)
        while (line := reader.gets()) is not _MORE:
            if not isinstance(line, list) or not line:
                raise ValueError("not a command")
            yield tuple(line)


def _check_head(head: Line | None, file: Path) -> None:
    if head is None or head[0] != _HEAD:
        raise BackupError(f"{file}: is no backup of Crewel")
    version, layout = int(head[1]), int(head[2])
    if version > _VERSION or layout > FORMAT:
        raise BackupError(f"{file}: was made by a newer version of Crewel")
