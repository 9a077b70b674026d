"""Rows of silver that another program removed, added or changed: the audit finds the table and does not blame the server, and a
repair makes it again from bronze. An entry that bronze has twice counts once after it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import audit, backfill
from crewel.pipeline.jobs.lock import merging
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.tables import Tables
from tests.pipeline.conftest import Streams
from tests.pipeline.test_compact import is_waited_for
from tests.store_process import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # an audit has many jobs of Spark, which take long beside other tests

SESSION = "client/joe/1"
MESSAGES = 6
DAMAGED = ["corrupt", "fact_ended", "fact_published", "fact_subscribed"]
LOSS_MS = 60  # after the fact that cannot be understood


def subscribe(streams: Streams) -> None:
    """A receiver whose record is at the end of the log."""
    streams.fact("subscribed", {"session": SESSION, "patterns": ["/a"], "from": 0}, "1-0")
    streams.client.sadd(streams.keys.nodes, "token")
    streams.client.hset(streams.keys.node("token"), "cursor", 1_000_000)
    streams.client.hset(streams.keys.session(SESSION), mapping={"owner": "token", "s:/a": 0})


def deliver(streams: Streams) -> None:
    """Six messages in two facts, each acknowledged."""
    streams.fact("published", {"first": 11, "channels": ["/a"] * (MESSAGES // 2)}, "11-0")
    streams.fact("published", {"first": 14, "channels": ["/a"] * (MESSAGES // 2)}, "14-0")
    ids = [*range(11, 11 + MESSAGES)]
    streams.fact("ended", {"ended": [{"session": SESSION, "reason": "settled", "ids": ids}]}, "20-0")


def audited(spark: SparkSession, address: Address, root: Path) -> audit.Result:
    return audit.run(spark, audit.Options(address=address, directory=root))


def table_of(root: Path, name: str) -> DeltaTable:
    return DeltaTable(root / TABLES[name].path)


def rows_of(root: Path, name: str) -> list[str]:
    """The rows of what came before the loss, whichever batch wrote them."""
    rows = table_of(root, name).to_pyarrow_table().drop_columns("batch").to_pylist()
    return sorted(repr(row) for row in rows if row["ms"] < LOSS_MS)


def remove(root: Path, name: str, where: str | None = None) -> None:
    table_of(root, name).delete(where)


def double(root: Path, name: str) -> None:
    """Add all rows a second time."""
    table = table_of(root, name)
    write_deltalake(table, table.to_pyarrow_table(), mode="append")


def change(root: Path, name: str, column: str, value: str) -> None:
    table_of(root, name).update(new_values={column: value}, predicate="log_id = 12")


def counts(result: audit.Result) -> dict[str, int]:
    return {name: count for name, count in result.counts.items() if count}


def test_damaged_tables_are_named_beside_a_loss_and_a_repair_makes_them_again(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """One of each damage: rows that are gone with and without what they balance, rows that are there twice, other values."""
    subscribe(streams)
    deliver(streams)
    streams.fact("ended", {"ended": "x"}, "30-0")
    backfill.run(spark, backfill.Options(address=streams.address, directory=tmp_path, gold=False))
    whole = {name: rows_of(tmp_path, name) for name in ("raw", *DAMAGED)}
    assert all(whole.values())
    lost = 1000 * LOSS_MS
    streams.fact("published", {"first": lost, "channels": ["/a"]}, f"{LOSS_MS}-0")
    remove(tmp_path, "fact_ended", "log_id IN (12, 13)")
    remove(tmp_path, "fact_published", "log_id = 13")  # with its end
    change(tmp_path, "fact_published", "channel", "/b")
    double(tmp_path, "fact_subscribed")
    remove(tmp_path, "corrupt")
    found = audited(spark, streams.address, tmp_path)
    words = {each["receiver"]: each["words"] for each in found.findings}
    assert counts(found) == {"lost": 1, "damaged table": 4}, found.findings
    assert all(each["evidence"] for each in found.findings)
    assert {each["log_id"] for each in found.findings} == {lost, None}
    assert "lacks 2 rows that bronze has;" in words["silver/fact_ended"]
    assert "lacks 1 rows that bronze has and has 1 rows with other values" in words["silver/fact_published"]
    assert "has 1 rows that bronze does not have" in words["silver/fact_subscribed"]
    assert "lacks 1 rows" in words["silver/corrupt"]
    assert (found.is_clean, found.messages) == (False, MESSAGES + 1)

    double(tmp_path, "raw")  # as two merges of the same files would
    options = backfill.Options(address=streams.address, directory=tmp_path, repair=True)
    with ThreadPoolExecutor(1) as pool:
        with merging(tmp_path):  # a merge that ended after the repair would bring the old rows back
            repairing = pool.submit(backfill.run, spark, options)
            until(lambda: is_waited_for(tmp_path / "merging"))
            assert len(rows_of(tmp_path, "raw")) == 2 * len(whole["raw"])
        done = repairing.result()
    assert (done.entries, done.repaired[0], sorted(done.repaired[1:])) == (1, "raw", DAMAGED)
    assert {name: rows_of(tmp_path, name) for name in whole} == whole
    found = audited(spark, streams.address, tmp_path)
    assert counts(found) == {"lost": 1}, found.findings
    rows = table_of(tmp_path, "fact_ended").to_pyarrow_dataset().to_table()
    assert sorted(rows["log_id"].to_pylist()) == [*range(11, 11 + MESSAGES)]
    backlog = Tables(spark, tmp_path).read(TABLES["backlog"]).collect()
    assert sum(row["ended"] for row in backlog) == MESSAGES
