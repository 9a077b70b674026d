"""The load of a store: what its INFO says, as figures of the last minute."""

from __future__ import annotations

import os
from math import isnan

import pytest

from crewel.storage.store import Store
from crewel.storage.store_info import StoreInfo
from crewel.storage.store_load import SECTIONS, Load, LoadMeter
from tests.storage.owner import started


def said(busy_s: float, disk_s: float, steps: int) -> StoreInfo:
    rows = {
        "used_cpu_user_main_thread": busy_s / 2,
        "used_cpu_sys_main_thread": busy_s / 2,
        "used_cpu_user": 99,
        "eventloop_duration_aof_sum": int(disk_s * 1e6),
        "cmdstat_evalsha": f"calls={steps},usec=1",
    }
    return StoreInfo("".join(f"{name}:{value}\r\n" for name, value in rows.items()).encode())


def test_one_look_says_nothing() -> None:
    meter = LoadMeter()
    assert meter.load is None
    meter.look(said(5.0, 1.0, 100), 10.0)
    assert meter.load is None


def test_the_load_is_that_of_the_time_between_looks() -> None:
    meter = LoadMeter()
    meter.look(said(5.0, 1.0, 100), 10.0)
    meter.look(said(6.0, 3.0, 500), 14.0)
    assert meter.load == pytest.approx(Load(0.25, 0.5, 100.0))


def test_what_is_older_than_a_minute_does_not_count() -> None:
    meter = LoadMeter()
    for second in range(120):
        busy = min(second, 40) + max(second - 40, 0) * 0.5
        meter.look(said(busy, 0.0, 0), float(second))
    assert meter.load == pytest.approx(Load(0.5, 0.0, 0.0))


def test_a_store_that_has_restarted_begins_again() -> None:
    meter = LoadMeter()
    meter.look(said(5.0, 1.0, 100), 10.0)
    meter.look(said(0.5, 0.0, 10), 11.0)
    assert meter.load is None
    meter.look(said(1.0, 0.0, 20), 12.0)
    assert meter.load == pytest.approx(Load(0.5, 0.0, 10.0))


def test_a_store_that_tells_of_all_its_threads_only_counts_them() -> None:
    assert StoreInfo(b"used_cpu_user:1.5\r\nused_cpu_sys:0.5\r\n").busy_s == 2.0


def test_of_a_store_that_does_not_tell_the_time_for_its_disk_that_is_not_known() -> None:
    meter = LoadMeter()
    for second in range(2):
        meter.look(StoreInfo(b"used_cpu_user:%d\r\n" % second), float(second))
    assert meter.load is not None
    assert meter.load.busy == 1.0
    assert isnan(meter.load.waiting)


async def test_a_real_store_tells_all_of_it(store: Store) -> None:
    owner = await started(store)
    (before,) = await store.look(("INFO", *SECTIONS))
    for _ in range(50):
        await owner.publish("/a")
    (after,) = await store.look(("INFO", *SECTIONS))
    first, last = StoreInfo(before), StoreInfo(after)
    assert last.steps - first.steps == 50
    assert last.busy_s > first.busy_s
    if "CREWEL_TEST_STORE" in os.environ and isnan(last.disk_s):
        pytest.skip("this store does not tell the time for its disk, as Redis 7.0")
    assert last.disk_s > first.disk_s
