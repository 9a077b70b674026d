"""The files of the server's own store: nothing starts empty where something was, and what is lost is logged."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path
from time import monotonic

import pytest

from crewel.errors import SettingsError, StoreUnavailable
from crewel.storage.store import Store
from crewel.storage.store_files import Damaged
from tests.storage.conftest import opened, settings_for, until
from tests.storage.owner import started

LIMIT_S = 30


async def filled(directory: Path, count: int = 5) -> list[int]:
    """Leave a store there with so many messages; return their ids."""
    async with opened(directory) as store:
        owner = await started(store)
        ids = [(await owner.publish("/a"))[0] for _ in range(count)]
        await until(lambda: marked(directory) == ids[-1])
    return [*map(int, ids)]


def marked(directory: Path) -> int:
    marker = directory / "contents.json"
    return max(json.loads(marker.read_text())["last"].values()) if marker.exists() else 0


def appended(directory: Path) -> Path:
    (file,) = (directory / "appendonlydir").glob("*.incr.aof")
    return file


@pytest.mark.parametrize("gone", ["appendonlydir", "appendonlydir/appendonly.aof.manifest"])
async def test_a_store_whose_files_are_gone_does_not_start_empty(tmp_path: Path, gone: str) -> None:
    ids = await filled(tmp_path)
    path = tmp_path / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = sorted(each.name for each in tmp_path.rglob("*.aof"))
    with pytest.raises(Damaged, match=rf"is missing, and a store was here; its last message was {ids[-1]} of 20"):
        async with opened(tmp_path):
            pass
    assert sorted(each.name for each in tmp_path.rglob("*.aof")) == before


async def test_a_manifest_that_is_gone_is_noticed_without_a_marker(tmp_path: Path) -> None:
    """As a version of Crewel has left it that wrote none."""
    await filled(tmp_path)
    (tmp_path / "contents.json").unlink()
    (tmp_path / "appendonlydir" / "appendonly.aof.manifest").unlink()
    with pytest.raises(Damaged, match=r"appendonly\.aof\.manifest is missing"):
        async with opened(tmp_path):
            pass


async def test_a_file_that_the_manifest_lists_and_is_gone_is_named(tmp_path: Path) -> None:
    await filled(tmp_path)
    file = appended(tmp_path)
    file.unlink()
    with pytest.raises(Damaged, match=f"lacks {file.name}"):
        async with opened(tmp_path):
            pass


async def test_a_damaged_file_is_reported_at_once(tmp_path: Path) -> None:
    await filled(tmp_path)
    file = appended(tmp_path)
    file.write_bytes(b"*1\r\nnonsense" + file.read_bytes())
    begun = monotonic()
    with pytest.raises(SettingsError, match=r"cannot read its files: .*Bad file format.*crewel doctor --repair"):
        async with opened(tmp_path):
            pass
    assert monotonic() - begun < 8  # and not after the ten seconds that a store may take to come up


async def test_loss_of_a_cut_tail_is_logged_with_ids_and_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await filled(tmp_path)
    file = appended(tmp_path)
    text = file.read_bytes()
    os.truncate(file, text.rindex(b"%d-0" % ids[3]))  # within the fourth message
    async with opened(tmp_path) as store:
        assert int(await store.reader.get(store.keys.last)) == ids[2]
    (line,) = [record.getMessage() for record in caplog.records if "has lost messages" in record.getMessage()]
    assert f"those after {ids[2]} of 20" in line
    assert f"up to {ids[4]} of 20" in line
    caplog.clear()
    async with opened(tmp_path):
        assert "has lost" not in caplog.text  # it is logged once


async def test_leftovers_of_an_interrupted_rewrite_are_removed(tmp_path: Path) -> None:
    ids = await filled(tmp_path)
    (tmp_path / "temp-rewriteaof-bg-17.aof").write_bytes(b"x" * 1000)
    async with opened(tmp_path) as store:
        assert not list(tmp_path.glob("temp-*"))
        assert int(await store.reader.get(store.keys.last)) == ids[-1]


async def test_a_data_directory_that_vanishes_for_a_while_is_survived(tmp_path: Path) -> None:
    """Publishes are refused meanwhile, and the store is not started in a new directory."""
    data = tmp_path / "data"
    async with opened(data) as store:
        pid = int((await store.reader.info("server"))["process_id"])
        data.rename(tmp_path / "away")
        await until(lambda: store.is_full)
        assert store.why_full is not None
        assert "cannot be looked at" in store.why_full
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not store.is_up and store.trouble is not None and "has vanished" in store.trouble)
        assert not data.exists()
        (tmp_path / "away").rename(data)
        await until(lambda: store.is_up and not store.is_full)
        assert store.supervisor.trouble is None


async def test_a_store_that_comes_up_in_time_is_no_damage(tmp_path: Path) -> None:
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 3\n")
    program.chmod(0o755)
    store = Store(settings_for(f"storage.data_dir={tmp_path}", f"storage.server_binary={program}"))
    opening = asyncio.create_task(store.open())
    await until(lambda: store.trouble == "the store ended: there was no space left on its disk")
    opening.cancel()
    with pytest.raises((asyncio.CancelledError, StoreUnavailable)):
        await opening
