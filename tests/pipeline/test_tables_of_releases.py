"""Tables that an earlier release has written are read, continued, compacted and reported by the current state.

It takes minutes, and needs the history: `make faults` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import audit, backfill, compact, live, report
from crewel.pipeline.schemas import RAW, TABLES, Layer
from crewel.pipeline.tables import Tables
from tests.admin.desk import SETS, Desk, Receiver, publish
from tests.functional.bayeux import Client
from tests.functional.wire import close_connections, until
from tests.pipeline.quick_spark import QUICK
from tests.server_process import Server
from tests.upgrade import scene
from tests.upgrade.releases import Release, earlier  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


def job_of(release: Release, address: Address, *words: str) -> None:
    """Run a job of that release to its end."""
    spark = [f"--spark={name}={value}" for name, value in QUICK.items()]
    store = {"CREWEL_STORAGE__URL": address.url, "CREWEL_STORAGE__PREFIX": address.prefix}
    command = (sys.executable, "-m", "crewel", "pipeline", *words, "--quiet", *spark)
    ended = subprocess.run(
        command,
        env={**os.environ, **store, **release.environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]


def rows(tables: Tables) -> dict[str, int]:
    """How many rows each table of bronze and silver has."""
    return {name: tables.read(table).count() for name, table in TABLES.items() if table.layer is not Layer.GOLD}


def test_tables_of_a_release_are_read_on(
    earlier: Release,  # noqa: F811
    spark: SparkSession,
    address: Address,
    tmp_path: Path,
) -> None:
    directory = tmp_path / "tables"
    started = ["--port=0", *(f"--set={each}" for each in (*SETS, f"storage.url={address.url}"))]
    started.append(f"--set=storage.prefix={address.prefix}")
    server = Server(started, tmp_path, earlier.environ)
    scene.write(server)
    close_connections()
    server.end_well()
    job_of(earlier, address, "live", "--once", f"--dir={directory}")
    job_of(earlier, address, "audit", f"--dir={directory}")
    tables = Tables(spark, directory)
    before = rows(tables)
    assert before["letters"] == 2

    server = Server(started, tmp_path)
    desk, till = Desk(server), Receiver(server).be("client/till/1", timeout=600_000)
    till.subscribe("/till")
    publish(server, "/till", 3)
    till.reject(till.take(timeout=5000))
    until(lambda: len(desk.letters("receiver=client/till/1")) == 3)
    (reply,) = (
        Client(server).start().publish("/till", "later", ext={"publish": {"persistent": True, "deliverAfter": 1}})
    )
    assert reply["successful"], reply
    assert [each["data"] for each in until(till.take)] == ["later"]
    close_connections()
    server.end_well()
    # With the checkpoint of that release.
    result = live.run(spark, live.Options(address=address, directory=directory, once=True))
    assert (result.entries > 0, result.corrupt) == (True, 0)
    after = rows(tables)
    assert after["letters"] == before["letters"] + 3
    assert backfill.run(spark, backfill.Options(address=address, directory=directory)).entries == 0
    whole = tmp_path / "whole"
    backfill.run(spark, backfill.Options(address=address, directory=whole))
    assert after == rows(Tables(spark, whole))
    shapes = {each["shape"] for each in tables.read(TABLES["letters"]).select("shape").collect()}
    assert "number" in shapes
    compact.run(spark, compact.Options(directory=directory, keep_hours=0))
    assert rows(tables) == after
    assert tables.read(RAW).count() == after[RAW.name]
    found = audit.run(spark, audit.Options(address=address, directory=directory))
    assert found.is_clean, found.findings
    page = tmp_path / "report.html"
    report.run(spark, report.Options(address=address, directory=directory, html=page, audit=False))
    assert all(each in page.read_text("utf-8") for each in ("client/bob/1", "client/till/1"))
