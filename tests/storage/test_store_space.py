"""The space that a store has left, and when its file is rewritten."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
from pathlib import Path

import pytest

from crewel.storage.store_info import StoreInfo
from crewel.storage.store_space import Space, why_full
from tests.storage.conftest import opened
from tests.store_process import PROGRAM

LIMIT_S = 30


async def test_a_rewrite_that_failed_is_asked_for_again(tmp_path: Path) -> None:
    """A limit for the size of files is met as a full disk; a shell lets a write beyond it fail."""
    binary = tmp_path / "store-with-a-quota"
    binary.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {shlex.quote(PROGRAM)} \"$@\"\n")
    binary.chmod(0o755)
    async with opened(tmp_path / "data", f"storage.server_binary={binary}") as store:
        for number in range(100):
            await store.reader.set(f"x{number}", os.urandom(10_000))
        pid = int((await store.reader.info("server"))["process_id"])
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        await store.reader.execute_command("BGREWRITEAOF")
        async with asyncio.timeout(LIMIT_S):
            while (await store.reader.info("persistence"))["aof_last_bgrewrite_status"] != "err":
                await asyncio.sleep(0.01)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        async with asyncio.timeout(LIMIT_S):
            while (await store.reader.info("persistence"))["aof_last_bgrewrite_status"] != "ok":
                await asyncio.sleep(0.01)


def facts(**rows: object) -> StoreInfo:
    return StoreInfo("".join(f"{name}:{value}\r\n" for name, value in rows.items()).encode())


def test_a_rewrite_is_asked_for_once_a_minute_at_most(tmp_path: Path) -> None:
    space = Space(tmp_path)
    failed = facts(aof_last_bgrewrite_status="err")
    assert space.why_full(failed) is None
    assert [space.should_rewrite(failed, now) for now in (0.0, 59.0, 61.0)] == [True, False, True]
    assert not space.should_rewrite(facts(aof_last_bgrewrite_status="err", aof_rewrite_in_progress=1), 200.0)
    assert not space.should_rewrite(facts(aof_last_bgrewrite_status="ok"), 200.0)


def test_a_rewrite_is_asked_for_only_where_it_has_room(tmp_path: Path) -> None:
    space = Space(tmp_path)
    failed = facts(aof_last_bgrewrite_status="err", used_memory=1 << 60)
    space.why_full(failed)
    assert not space.should_rewrite(failed, 0.0)


def test_a_file_that_has_grown_is_rewritten_where_the_disk_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crewel.storage.store_space.FREE_DISK", 1 << 62)
    space = Space(tmp_path)
    grown = facts(used_memory=1000, aof_current_size=2001)
    assert "MiB left" in (space.why_full(grown) or "")
    assert space.should_rewrite(grown, 0.0)
    assert not space.should_rewrite(facts(used_memory=1000, aof_current_size=2000), 100.0)


def test_a_write_that_failed_means_that_the_store_is_full(tmp_path: Path) -> None:
    failed = facts(aof_last_write_status="err")
    assert "cannot write to its disk" in (Space(tmp_path).why_full(failed) or "")
    assert "cannot write to its disk" in (why_full(failed) or ""), "of a store of others"
