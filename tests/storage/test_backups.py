"""Backups of keys that change meanwhile, and restores that are interrupted. The commands: tests/cli/test_backup.py."""

from __future__ import annotations

import asyncio
import errno
import gzip
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.client import Pipeline

from crewel.errors import SettingsError, StoreError, StoreUnavailable
from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage import backups
from crewel.storage.admin_connection import AdminConnection, admin_connection
from crewel.storage.keys import FORMAT, Keys
from crewel.storage.store import Store
from crewel.storage.store_connection import Reader, pack, pool_of
from tests.store_group import WatchedStore
from tests.store_process import StoreProcess, own_prefix

FAR = 4_000_000_000_000  # milliseconds; the year 2096


class Killed(Exception):
    """What ends a restore as SIGKILL would."""


class Disturbed(Reader):
    """A reader of a store in which something happens while it is read."""

    expires_before = ""
    """The command before which the key expires that it asks for."""
    expires_after = ""
    expiring = b""
    """This key."""
    yields_twice = False
    """Whether a scan yields each name twice, as it may."""

    fails_at_second = ""
    """The command that fails when it comes for the second time."""
    _come = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        command, is_of_it = args[0], args[1:2] == (self.expiring,)
        self._come += command == self.fails_at_second
        if self._come > 1:
            raise Killed
        if is_of_it and command == self.expires_before:
            await super().execute_command("DEL", self.expiring)
        answer = await super().execute_command(*args, **options)
        if is_of_it and command == self.expires_after:
            await super().execute_command("DEL", self.expiring)
        return answer

    async def scan_iter(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        async for name in super().scan_iter(*args, **options):
            yield name
            if self.yields_twice:
                yield name


@pytest.fixture
def keys() -> Keys:
    """The keys under a prefix that no other test uses."""
    return Keys(own_prefix())


@pytest.fixture
async def reader(server: StoreProcess, keys: Keys) -> AsyncIterator[Disturbed]:
    """A reader of the shared store, which has a format, a key that expires, and a log with one entry."""
    pool = pool_of(server.url, "test")
    async with Disturbed(connection_pool=pool) as reader:
        reader.expiring = f"{keys.base}k:x".encode()
        await reader.set(keys.format, FORMAT)
        await reader.set(reader.expiring, "7", pxat=FAR)
        await reader.xadd(keys.log, {"c": "/a"}, id="1-0")
        yield reader
    await pool.aclose()


async def written(reader: Reader, keys: Keys, file: Path) -> bytes:
    """Write a backup to the file, and return its text."""
    packed = io.BytesIO()
    await backups.write(reader, keys, packed, lambda _: None)
    file.write_bytes(packed.getvalue())
    return gzip.decompress(packed.getvalue())


@pytest.mark.parametrize("command", ["PEXPIRETIME", "TYPE", "GET"])
async def test_key_that_expires_before_it_is_read_is_left_out(
    reader: Disturbed, keys: Keys, tmp_path: Path, command: str
) -> None:
    reader.expires_before = command
    text = await written(reader, keys, tmp_path / "a.backup")
    assert b"k:x" not in text
    assert b"format" in text
    assert backups.check(tmp_path / "a.backup", lambda _: None).keys == 2


async def test_key_that_expires_after_it_was_read_keeps_its_expiry(
    reader: Disturbed, keys: Keys, tmp_path: Path
) -> None:
    """Without one, a publish with that key would count as a repeated one until someone deletes the key."""
    reader.expires_after = "GET"
    text = await written(reader, keys, tmp_path / "a.backup")
    assert b"PEXPIREAT\r\n$3\r\nk:x\r\n$13\r\n%d" % FAR in text


async def test_name_that_a_scan_yields_twice_is_saved_once(
    reader: Disturbed, keys: Keys, server: StoreProcess, tmp_path: Path
) -> None:
    reader.yields_twice = True
    await written(reader, keys, tmp_path / "a.backup")
    again = Keys(own_prefix())
    await backups.apply(tmp_path / "a.backup", reader, again, lambda _: None)
    assert await reader.xlen(again.log) == 1


async def test_no_write_of_a_restore_is_large(
    reader: Disturbed, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store, which has to sync it, does nothing else meanwhile, and perhaps has a server beside."""
    value = b"x" * 20_000
    for start in (0, 250):
        await reader.hset(keys.inbox("client/joe/1"), mapping={str(start + number): value for number in range(250)})
    for number in range(2, 300):
        await reader.xadd(keys.log, {"b": value}, id=f"{number}-0")
    await written(reader, keys, tmp_path / "a.backup")
    sizes: list[int] = []
    execute = Pipeline.execute

    async def measured(pipeline: Pipeline, raise_on_error: bool = True) -> list[Any]:
        sizes.append(sum(len(pack(command)) for command, _ in pipeline.command_stack))
        return await execute(pipeline, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", measured)
    again = Keys(own_prefix())
    await backups.apply(tmp_path / "a.backup", reader, again, lambda _: None)
    assert await reader.hlen(again.inbox("client/joe/1")) == 500
    assert await reader.xlen(again.log) == 299
    assert sum(sizes) > 15_000_000
    assert max(sizes) < 3_000_000


# Copies that fail


async def test_a_full_disk_of_the_backup_is_not_taken_for_a_fault_of_the_store(
    reader: Disturbed, keys: Keys, server: StoreProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda *_: Full())
    with pytest.raises(OSError, match="No space left on device"):
        async with backups.snapshot(admin_of(reader, keys, server), tmp_path, lambda _: None):
            pass


async def test_a_store_that_sends_no_copy_is_told_with_a_reason(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_gone = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        has_gone.set()

    monkeypatch.setattr(backups, "_COPY_LIMIT_S", 0.1)
    url = f"unix://{tmp_path}/silent.sock"
    pool = pool_of(url, "test")
    source = AdminConnection(Storage(url=url), keys, pool, Reader(connection_pool=pool))
    async with await asyncio.start_unix_server(say_nothing, tmp_path / "silent.sock"):
        with pytest.raises(StoreUnavailable, match="nothing came"):
            async with backups.snapshot(source, tmp_path, lambda _: None):
                pass
        await has_gone.wait()
    await pool.aclose()


# Restores that are interrupted


def admin_of(reader: Reader, keys: Keys, server: StoreProcess) -> AdminConnection:
    """The connection of a command to what is under the prefix."""
    storage = Storage(url=server.url, prefix=keys.base.removesuffix("{crewel}:"))
    return AdminConnection(storage, keys, reader.connection_pool, reader)


async def assert_no_server_starts(server: StoreProcess, keys: Keys) -> None:
    """Assert that a server refuses what is under the prefix, and that no backup is made of it."""
    pool = pool_of(server.url, "test")
    reader = Reader(connection_pool=pool)
    store = Store(Settings(storage=admin_of(reader, keys, server).storage))
    with pytest.raises(SettingsError, match="restore again with --force"):
        await store.open()
    with pytest.raises(backups.BackupError, match="not complete"):
        await backups.write(reader, keys, io.BytesIO(), lambda _: None)
    await pool.aclose()


async def test_no_server_starts_on_the_first_part_of_a_restore(
    reader: Disturbed, keys: Keys, server: StoreProcess, tmp_path: Path
) -> None:
    """By then there is none of the keys by which a store without a format is noticed."""
    await reader.set(keys.last, 7)
    await reader.sadd(keys.audit, "a")
    for number in range(300):
        await reader.sadd(f"{keys.base}a{number}", "a")
    await written(reader, keys, tmp_path / "a.backup")
    target = Keys(own_prefix())

    def stop(_: int) -> None:
        raise Killed

    await backups.begin_restore(admin_of(reader, target, server), is_empty=True)
    with pytest.raises(Killed):
        await backups.apply(tmp_path / "a.backup", reader, target, stop)
    assert not await reader.exists(target.last)
    await assert_no_server_starts(server, target)
    await backups.clear(reader, target)
    await backups.apply(tmp_path / "a.backup", reader, target, lambda _: None)
    assert await reader.get(target.format) == b"%d" % FORMAT


async def test_no_server_starts_on_what_is_half_removed(reader: Disturbed, keys: Keys, server: StoreProcess) -> None:
    for number in range(300):
        await reader.sadd(f"{keys.base}a{number}", "a")
    await backups.begin_restore(admin_of(reader, keys, server), is_empty=False)
    reader.fails_at_second = "UNLINK"
    with pytest.raises(Killed):
        await backups.clear(reader, keys)
    await assert_no_server_starts(server, keys)


async def test_format_stays_away_if_a_command_beside_it_is_refused(
    reader: Disturbed, keys: Keys, server: StoreProcess, tmp_path: Path
) -> None:
    await written(reader, keys, tmp_path / "a.backup")
    target = Keys(own_prefix())
    await backups.begin_restore(admin_of(reader, target, server), is_empty=True)
    await reader.set(target.log, "not a stream")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await backups.apply(tmp_path / "a.backup", reader, target, lambda _: None)
    await assert_no_server_starts(server, target)


@pytest.mark.parametrize("before", [b"1", None])
async def test_server_that_starts_beside_a_restore_keeps_the_format(
    reader: Disturbed, keys: Keys, server: StoreProcess, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    await (reader.delete(keys.format) if before is None else reader.set(keys.format, before))
    target = admin_of(reader, keys, server)

    async def is_in_use(_: AdminConnection) -> bool:
        return True

    monkeypatch.setattr(AdminConnection, "is_in_use", is_in_use)
    with pytest.raises(backups.BackupError, match="a server is using this store"):
        await backups.begin_restore(target, is_empty=False)
    assert await reader.get(keys.format) == before


# Several servers


async def test_copy_is_taken_from_the_primary_that_sentinels_name(tmp_path: Path) -> None:
    watched = WatchedStore(tmp_path)
    try:
        with watched.primary.client() as client:
            client.set("crewel:{crewel}:format", FORMAT)
        copy = tmp_path / "copy"
        copy.mkdir()
        async with (
            admin_connection(Storage(url=watched.url, replicas=1)) as source,
            backups.snapshot(source, copy, lambda _: None) as reader,
        ):
            assert await reader.get(source.keys.format) == b"%d" % FORMAT
    finally:
        watched.close()


async def test_primary_that_is_not_found_gives_no_copy(tmp_path: Path) -> None:
    url = "redis+sentinel://127.0.0.1:1/main"
    pool = pool_of(url, "test")
    source = AdminConnection(Storage(url=url, replicas=1), Keys("crewel:"), pool, Reader(connection_pool=pool))
    with pytest.raises(StoreUnavailable, match=r"primary of the store cannot be found.*'main'"):
        async with backups.snapshot(source, tmp_path, lambda _: None):
            pass
    await pool.aclose()
