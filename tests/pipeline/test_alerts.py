"""A receiver that is held back for too long, from its server through the live job to the operator who asks, and back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import live
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.source import register
from crewel.pipeline.tables import Tables
from tests.admin.desk import SETS, Desk, Receiver
from tests.conftest import StartServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_S = 360.0  # a live job starts and waits ten seconds or more for each process that is late, on a slow machine
HELD_FOR_S = 0.5
LOOK_S = 0.3  # between two looks of each query: a batch takes about as long


@contextmanager
def at_work(spark: SparkSession, options: live.Options) -> Iterator[None]:
    """Let the live job run meanwhile, on a thread, where it hears no signals: it ends with its queries."""
    trouble: list[BaseException] = []

    def work() -> None:
        try:
            live.run(spark, options)
        except BaseException as error:  # noqa: BLE001 - the test tells it
            trouble.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
        assert thread.is_alive(), trouble
    finally:
        while thread.is_alive():
            for query in spark.streams.active:
                query.stop()
            thread.join(0.5)
    assert trouble == []


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)


@pytest.mark.timeout(900)
def test_an_alert_comes_and_goes_with_a_receiver_that_is_held_for_too_long(
    spark: SparkSession,
    address: Address,
    start_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live.holdback_watch, "_OFTENEST_S", LOOK_S)
    monkeypatch.setattr(live, "_LOOK_S", 0.05)
    server = start_server(*SETS, f"storage.url={address.url}", f"storage.prefix={address.prefix}")
    register(spark, address)
    desk = Desk(server)
    for name in ("joe/1", "ann/1"):
        Receiver(server).be(name, persistent=True).subscribe("/orders/*")

    def alerts() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = desk.get("/alerts")["alerts"]
        return found

    options = live.Options(address=address, directory=tmp_path, trigger_s=LOOK_S, hold_limit_s=HELD_FOR_S, upkeep_s=0)
    with address.client() as store, at_work(spark, options):
        # A job whose clock was ahead, or whose tables were newer, has left a larger number than any of today.
        store.hset(address.keys.ledger, "holdbacks", str(2**50))
        desk.post("/sessions/joe/1/hold", {"reason": "the disk is full"})
        until(alerts)
        (alert,) = alerts()
        assert (alert["session"], alert["reason"]) == ("client/joe/1", "the disk is full")
        assert alert["raised"] - alert["since"] == alert["held_ms"] >= HELD_FOR_S * 1000
        assert [each.decode() for each in store.hkeys(address.keys.alerts)] == ["client/joe/1"]

        desk.post("/sessions/joe/1/activate")
        assert alerts() == [], "the server knows at once"
        until(lambda: not store.exists(address.keys.alerts))

        desk.post("/sessions/joe/1/hold", {"reason": "lunch", "code": "user.lunch"})
        until(alerts)
        assert [each["reason"] for each in alerts()] == ["lunch"], "it is another holdback, and another alert"
        desk.post("/sessions/joe/1/activate")
        until(lambda: not store.exists(address.keys.alerts))
    rows = Tables(spark, tmp_path).read(TABLES["holdbacks"]).orderBy("since").collect()
    assert [(row["session"], row["code"], row["reason"]) for row in rows] == [
        ("client/joe/1", "", "the disk is full"),
        ("client/joe/1", "user.lunch", "lunch"),
    ]
