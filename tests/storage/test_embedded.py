"""A store of the server's own: one a data directory, started again when it dies, and gone when its owner is."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from crewel.errors import SettingsError, StoreUnavailable
from crewel.settings.storage import Storage
from crewel.storage.embedded import Embedded, server_binary, unusable, why_ended
from crewel.storage.store import Store
from tests.faults.disks import SmallDisk, can_mount
from tests.storage.conftest import opened, settings_for, until
from tests.store_process import PROGRAM

ROOT = Path(__file__).parents[2]
LIMIT_S = 30


async def pid_of(store: Store) -> int:
    """Return the process that serves this store."""
    info = await store.reader.info("server")
    return int(info["process_id"])


async def next_pid(store: Store) -> int:
    """Return the process that serves this store, as soon as one does."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                return await pid_of(store)
            except StoreUnavailable:
                await asyncio.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Return whether this process has ended, though nobody may have asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_embedded_store_starts_and_ends_with_its_server(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as store:
        assert store.is_up
        assert not store.is_full
        pid = await pid_of(store)
        await store.reader.set(store.keys.last, 7)
    assert is_gone(pid)
    async with opened(tmp_path / "data") as store:
        assert await store.reader.get(store.keys.last) == b"7"


async def test_only_its_user_can_reach_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as store:
        await store.reader.set("x", 1)
        made = [tmp_path / "data", *(tmp_path / "data").rglob("*.*"), tmp_path / "data" / "appendonlydir"]
        assert len(made) > 4
        assert not [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077]
        assert (await store.reader.config_get("port"))["port"] == "0"


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_embedded_store_has_the_options_of_the_settings(tmp_path: Path, fsync: str) -> None:
    async with opened(tmp_path, f"storage.fsync={fsync}", "storage.max_memory_bytes=123456789") as store:
        found = await store.reader.config_get("appendfsync", "appendonly", "maxmemory", "maxmemory-policy", "save")
    assert found == {
        "appendfsync": fsync,
        "appendonly": "yes",
        "maxmemory": "123456789",
        "maxmemory-policy": "noeviction",
        "save": "",
    }


async def test_embedded_store_is_started_again_with_all_its_data(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        told: list[str] = []
        store.watch(lambda: told.append("came"), lambda: told.append("went"))
        for number in range(3):
            await store.reader.set(store.keys.last, number)
            pid = await pid_of(store)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not store.is_up)
            await until(lambda: store.is_up)
            assert await store.reader.get(store.keys.last) == b"%d" % number
            assert await pid_of(store) != pid
        assert told == ["went", "came"] * 3


async def test_embedded_store_that_keeps_dying_is_tried_with_longer_pauses(tmp_path: Path) -> None:
    """A server that ends at once, over and over, is not started without a pause."""
    starts = tmp_path / "starts"
    program = tmp_path / "broken"
    program.write_text(f"#!/bin/sh\ndate +%s%N >> {starts}\necho no space left >&2\nexit 3\n")
    program.chmod(0o755)
    store = Store(settings_for(f"storage.data_dir={tmp_path}", f"storage.server_binary={program}"))
    opening = asyncio.create_task(store.open())
    await until(lambda: starts.exists() and starts.read_text().count("\n") >= 4)
    first, *_, fourth = (int(each) / 1e9 for each in starts.read_text().split()[:4])
    assert fourth - first > 0.5  # 0.1, 0.2 and 0.4 s, and not three times the first
    await until(lambda: store.trouble == "the store ended: there was no space left on its disk")
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening


CUT_OFF = ("27106:M 28 N", "27106", "27106:M 28 Nov 2026 04:38:01.12")


@pytest.mark.parametrize(
    ("status", "said", "why"),
    [
        (-9, "12:M 28 Nov 2026 04:38:01.123 * Ready to accept connections unix", "the store was killed by signal 9"),
        (0, "12:M 28 Nov 2026 04:38:01.123 # Valkey is now ready to exit, bye bye...", "the store was told to end"),
        (
            1,
            "12:M 28 Nov 2026 04:38:01.123 # Can't recover from AOF write error: No space left on device. Exiting...",
            "the store ended: there was no space left on its disk",
        ),
        (1, "12:M 28 Nov 2026 04:38:01.123 # Fatal error, no config", "the store ended: Fatal error, no config"),
        (3, "its log says nothing", "the store ended: its log says nothing"),
        *((1, said, "the store ended with status 1, and the last line of its log is cut off") for said in CUT_OFF),
    ],
)
def test_why_a_store_has_ended_is_said_in_words(status: int, said: str, why: str) -> None:
    assert why_ended(status, said, is_disk_full=False) == why


@pytest.mark.parametrize(
    "said", [*CUT_OFF, "27106:M 28 Nov 2026 04:38:01.123 * Background saving terminated", "its log says nothing"]
)
def test_a_store_that_ends_on_a_full_disk_has_ended_because_of_that(said: str) -> None:
    assert why_ended(1, said, is_disk_full=True) == "the store ended: there was no space left on its disk"
    assert why_ended(-9, said, is_disk_full=True) == "the store was killed by signal 9"


async def test_a_store_that_never_comes_up_is_given_up_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crewel.storage.store._OPEN_LIMIT_S", 1.0)
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho no space left >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(StoreUnavailable, match="no space left on its disk"):
        async with opened(tmp_path, f"storage.server_binary={program}"):
            pass


async def test_two_servers_share_the_store_of_one_directory(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        assert await pid_of(first) == await pid_of(second)
        await first.reader.set(first.keys.last, 7)
        assert await second.reader.get(second.keys.last) == b"7"


async def test_server_that_found_a_running_store_leaves_it_running_and_starts_the_next(tmp_path: Path) -> None:
    async with opened(tmp_path) as second_owner:
        async with opened(tmp_path) as guest:
            pid = await pid_of(guest)
        assert not is_gone(pid)
        assert second_owner.is_up
    async with opened(tmp_path) as owner:
        guest = Store(settings_for(f"storage.data_dir={tmp_path}"))
        await guest.open()
        await owner.reader.set(owner.keys.last, 7)
        await owner.close()
        await until(lambda: not guest.is_up)
        await until(lambda: guest.is_up)
        assert await guest.reader.get(guest.keys.last) == b"7"
        await guest.close()


OWNER = """
import asyncio, sys
from crewel.settings import load
from crewel.storage.store import Store

async def main():
    store = Store(load(overrides=sys.argv[1:], environ={}))
    await store.open()
    print((await store.reader.info("server"))["process_id"], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def start_owner(directory: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a process that owns a store; return it, and the process of the store."""
    sets = [f"storage.data_dir={directory}", f"storage.server_binary={PROGRAM}"]
    owner = subprocess.Popen([sys.executable, "-c", OWNER, *sets], cwd=directory, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        return owner, int(owner.stdout.readline())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a process that its parent died")
async def test_embedded_store_dies_with_its_owner(tmp_path: Path) -> None:
    owner, pid = await asyncio.to_thread(start_owner, tmp_path)
    owner.kill()
    owner.wait(LIMIT_S)
    await until(lambda: is_gone(pid))
    assert "User requested shutdown" in (tmp_path / "store.log").read_text()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a process that its parent died")
async def test_a_server_does_not_begin_with_the_ending_store_of_one_that_was_killed(tmp_path: Path) -> None:
    owner, pid = await asyncio.to_thread(start_owner, tmp_path)
    owner.kill()
    owner.wait(LIMIT_S)
    async with opened(tmp_path) as store:
        assert await pid_of(store) != pid


async def test_a_survivor_is_used_and_not_killed(tmp_path: Path) -> None:
    """It hangs when its owner dies, so that it learns of that later than the next server comes."""
    owner, pid = await asyncio.to_thread(start_owner, tmp_path)
    os.kill(pid, signal.SIGSTOP)
    owner.kill()
    owner.wait(LIMIT_S)
    store = Store(settings_for(f"storage.data_dir={tmp_path}"))
    opening = asyncio.create_task(store.open())
    await until(lambda: "no answer in time" in str(store.trouble))  # so it was asked
    assert not opening.done()
    assert not is_gone(pid)
    os.kill(pid, signal.SIGCONT)
    await opening
    await until(lambda: is_gone(pid))  # by the signal that it got when its owner died
    assert await next_pid(store) != pid
    await store.close()


async def test_a_directory_with_a_long_name_will_do(tmp_path: Path) -> None:
    directory = tmp_path / ("long-" * 20) / ("longer-" * 20)
    async with opened(directory) as store:
        await store.reader.set(store.keys.last, 7)
        async with opened(directory) as guest:
            assert await guest.reader.get(store.keys.last) == b"7"
        assert (directory / "store.sock").exists()
        link = Path(str(store.reader.connection_pool.connection_kwargs["path"])).parent
        assert link.is_symlink()
        assert link.resolve() == directory
        assert stat.S_IMODE(link.parent.stat().st_mode) == 0o700
    assert not link.parent.exists()


async def test_a_link_that_was_cleaned_away_is_made_again(tmp_path: Path) -> None:
    """Systems remove old files of the place of temporary ones."""
    async with opened(tmp_path / ("long-" * 20) / ("longer-" * 20)) as store:
        link = Path(str(store.reader.connection_pool.connection_kwargs["path"])).parent
        shutil.rmtree(link.parent)
        await until(link.is_symlink)
        await store.reader.connection_pool.disconnect()
        pid = await pid_of(store)
        shutil.rmtree(link.parent)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not store.is_up)
        await until(lambda: store.is_up)
        assert await pid_of(store) != pid


async def test_a_directory_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"storage\.data_dir .*file/data: Not a directory"):
        async with opened(tmp_path / "file" / "data"):
            pass


async def test_directory_with_an_empty_format_is_used(tmp_path: Path) -> None:
    """A first start that was killed, or found the disk full, could leave one."""
    (tmp_path / "format").touch()
    async with opened(tmp_path) as store:
        assert store.is_up
    assert (tmp_path / "format").read_text() == "1\n"


async def test_first_start_on_a_full_disk_leaves_no_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SettingsError, match="No space left"):
        await Embedded(Storage(data_dir=str(tmp_path)), lambda: None).ensure()
    assert not (tmp_path / "format").exists()


@pytest.mark.skipif(not can_mount(), reason="needs root, to mount a disk")
async def test_a_start_on_a_full_disk_ends_with_one_clear_error(tmp_path: Path) -> None:
    """The last line of the store's log is cut off there."""
    disk = SmallDisk(tmp_path, 1)
    try:
        space = os.statvfs(disk.path)
        with (disk.path / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, (space.f_bavail - 4) * space.f_frsize)
        with pytest.raises(SettingsError, match=rf"{disk.path}/data: the disk has \d+ KiB left.* 64 MiB or more"):
            async with opened(disk.path / "data"):
                pass
    finally:
        disk.close()


async def test_a_directory_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("2\n")
    with pytest.raises(SettingsError, match=r"has format '2'; this version of Crewel knows 1 only"):
        async with opened(tmp_path):
            pass


async def test_a_program_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"storage\.server_binary /none: no such program"):
        async with opened(tmp_path / "data", "storage.server_binary=/none"):
            pass
    assert not (tmp_path / "data").exists()


async def test_a_disk_with_little_left_counts_as_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as store:
        monkeypatch.setattr("crewel.storage.store_space.FREE_DISK", 1 << 62)
        await until(lambda: store.is_full)
        assert store.why_full is not None
        assert "MiB left" in store.why_full
        monkeypatch.setattr("crewel.storage.store_space.FREE_DISK", 0)
        await until(lambda: not store.is_full)
        assert store.why_full is None


def test_the_program_comes_with_the_wheel_or_from_the_setting() -> None:
    program = server_binary(Storage())
    assert Path(program).name == "valkey-server"
    assert os.access(program, os.X_OK)
    assert server_binary(Storage(server_binary="sh")).endswith("/sh")


def test_a_directory_that_may_not_be_written_is_refused_with_a_remedy() -> None:
    refused = unusable(Path("/data"), PermissionError(13, "Permission denied"))
    remedy = f"make it writable for the user id {os.geteuid()}, or set storage.data_dir to another directory"
    assert str(refused) == f"storage.data_dir /data: Permission denied; {remedy}"
    read_only = "storage.data_dir /data: Read-only file system; set storage.data_dir to another directory"
    assert str(unusable(Path("/data"), OSError(30, "Read-only file system"))) == read_only
    assert str(unusable(Path("/data"), FileExistsError(17, "File exists"))) == "storage.data_dir /data: File exists"
