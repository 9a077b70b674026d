"""The disk of an embedded store fills up: findings at 80 and 90 %, the right words when it is full, and what stays of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.storage.disk import look_at_disk
from tests.admin.desk import SETS, STORED, Desk, Receiver
from tests.faults.disks import MIB, SmallDisk, can_mount
from tests.functional.wire import until
from tests.server_process import Server

SIZE = 800
"""Of the disk in MiB, so that at 90 % the store still has as much as it needs."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if not can_mount():
        pytest.skip("needs the right to mount a file system")
    disk = SmallDisk(tmp_path, SIZE)
    yield disk
    disk.close()


def found(desk: Desk, key: str) -> Any:
    """The finding with this key, if there is one."""
    return next((each for each in desk.get("/overview")["findings"] if each["key"] == key), None)


def publishes(client: Receiver) -> bool:
    """Whether the server stores what is published."""
    return client.send(client.message("/disk", data=1, ext=STORED))[-1]["successful"] is True


@pytest.mark.server
@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_disk_that_fills_up_is_said_in_time_and_stays_in_the_timeline(
    disk: SmallDisk, tmp_path: Path, workers: int
) -> None:
    server = Server(
        ["--port=0", *(f"--set={text}" for text in (*SETS, *disk.sets, f"cluster.workers={workers}"))], tmp_path
    )
    desk, client = Desk(server), Receiver(server).be("joe/1")
    shown = desk.get("/overview")["store"]["disk"]
    assert (shown["total"], shown["directory"]) == (SIZE * MIB, str(disk.path / "data"))
    assert 0 < shown["file"] <= shown["used"] < shown["free"]
    assert found(desk, "disk-filling") is None
    disk.fill_to(82)
    filling = until(lambda: found(desk, "disk-filling"))
    assert (filling["level"], filling["title"]) == ("warn", "The disk of the store is filling up: 82 %")
    assert "MiB are left on the disk of" in filling["cause"]
    disk.fill_to(91)
    nearly = until(lambda: found(desk, "disk-nearly-full"))
    assert (nearly["level"], nearly["title"]) == ("bad", "The disk of the store is nearly full: 91 %")
    assert publishes(client)
    disk.fill(server)
    assert until(lambda: not publishes(client))
    full = until(lambda: found(desk, "not-ready-store"))
    assert full["title"] == "The disk of the store is full"
    assert f"Make room on the disk of {disk.path / 'data'}" in full["advice"]
    assert "storage.url" not in full["advice"] + full["cause"]
    assert found(desk, "disk-nearly-full") is None  # one cause, one finding
    lasting = until(lambda: [each for each in desk.get("/timeline")["events"] if each["until"] is None])
    assert [each["what"] for each in lasting] == ["store outage"]
    assert until(lambda: (found(desk, "not-ready-store") or {}).get("since")) == lasting[0]["at"]
    disk.free(server)
    until(lambda: publishes(client))
    (ended,) = until(lambda: [each for each in outages(desk) if each["until"]])
    assert ended["at"] < ended["until"]
    assert f"the disk of {disk.path / 'data'} is full" in ended["why"], ended
    assert len(ended["nodes"]) == workers
    server.end_well()


def outages(desk: Desk) -> list[dict[str, Any]]:
    """The outages of the store, if they are all over."""
    events = [each for each in desk.get("/timeline")["events"] if each["what"] == "store outage"]
    return events if all(each["until"] for each in events) else []


def test_a_disk_that_cannot_be_looked_at_is_unknown(tmp_path: Path) -> None:
    assert look_at_disk(tmp_path / "missing") is None
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "a").write_bytes(bytes(7))
    seen = look_at_disk(tmp_path)
    assert seen is not None
    assert (seen.file, seen.directory) == (7, str(tmp_path))
    assert 0 <= seen.share <= 1
