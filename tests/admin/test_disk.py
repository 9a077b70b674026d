"""The disk of an embedded store fills up: findings at 80 and 90 %, the right words when it is full, and what stays of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.storage.disk import look_at_disk
from tests.admin.alert_rules import HERON, LATER, SOON, Alert, Story, said_by
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
    story = Story()
    story.step(LATER, said_by(server))
    disk.fill_to(82)
    filling = until(lambda: found(desk, "disk-filling"))
    assert (filling["level"], filling["title"]) == ("warn", "The disk of the store is filling up: 82 %")
    assert "MiB are left on the disk of" in filling["cause"]
    text = said_by(server)
    story.step(SOON, text, fires=[fills_up(text)])
    disk.fill_to(91)
    nearly = until(lambda: found(desk, "disk-nearly-full"))
    assert (nearly["level"], nearly["title"]) == ("bad", "The disk of the store is nearly full: 91 %")
    assert publishes(client)
    text = said_by(server)
    is_full = Alert("CrewelDiskIsFull", f"The disk of the store of {HERON} has less than 128 MiB left")
    story.step(SOON, text, fires=[fills_up(text), is_full])
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
    text = said_by(server)
    trouble = [
        fills_up(text),
        is_full,
        Alert("CrewelNotReady", f"{HERON} does not accept all traffic"),
        *refusals(text),
    ]
    if not min(value for _, value in samples(text, "store_up")):  # it has ended, and cannot start
        trouble.append(Alert("CrewelStoreIsDown", f"{HERON} cannot use its store"))
    story.step(SOON, text, fires=trouble)
    disk.free(server)
    until(lambda: publishes(client))
    until(lambda: found(desk, "not-ready-store") is None)
    story.step(LATER, said_by(server))
    (ended,) = until(lambda: [each for each in outages(desk) if each["until"]])
    assert ended["at"] < ended["until"]
    assert f"the disk of {disk.path / 'data'} is full" in ended["why"], ended
    assert len(ended["nodes"]) == workers
    story.check(tmp_path)
    server.end_well()


def samples(text: str, name: str) -> list[tuple[str, float]]:
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(f"crewel_{name}"))
    return [(name, float(value)) for name, _, value in lines]


def refusals(text: str) -> list[Alert]:
    """What is said of publishes that the full disk has refused: either the store has no room, or it has ended."""
    found = Counter[str]()
    for name, value in samples(text, "refused_publish_reasons_total{"):
        found[name.partition('reason="')[2].partition('"')[0]] += round(value)
    assert set(+found) <= {"resource.noMoreSpace", "resource.unavailable"}
    return [
        Alert(
            "CrewelRefusesPublishes",
            f"{HERON} refused {count} publish{'' if count == 1 else 'es'} with {reason}",
            {"reason": reason},
        )
        for reason, count in (+found).items()
    ]


def fills_up(text: str) -> Alert:
    free, size = (min(value for _, value in samples(text, name)) for name in ("disk_free_bytes", "disk_bytes"))
    return Alert("CrewelDiskFillsUp", f"{100 * free / size:.0f} % of the disk of the store of {HERON} is free")


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
