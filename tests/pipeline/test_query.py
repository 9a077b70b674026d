"""Queries in SQL over the tables and what the store has beyond them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crewel.pipeline.job_runner import show_rows
from crewel.pipeline.jobs import query
from tests.pipeline.conftest import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_sees_tables_and_store(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    for log_id in (1, 2, 3):
        streams.fact("published", {"first": log_id, "channels": [f"/a{log_id % 2}"]}, f"{log_id}-0")

    def asked(sql: str, **options: int | bool) -> query.Result:
        return query.run(spark, query.Options(address=streams.address, directory=tmp_path, sql=sql, **options))  # type: ignore[arg-type]

    found = asked("SELECT channel, count(*) AS messages, max(at) AS last FROM fact_published GROUP BY ALL ORDER BY 1")
    assert found.columns == ["channel", "messages", "last"]
    assert found.rows == [
        ["/a0", 1, datetime(1970, 1, 1, 0, 0, 0, 2000, UTC)],
        ["/a1", 2, datetime(1970, 1, 1, 0, 0, 0, 3000, UTC)],
    ]
    assert not found.is_cut
    cut = asked("SELECT log_id, log_id FROM fact_published ORDER BY 1", limit=2)
    assert (cut.rows, cut.is_cut) == ([[1, 1], [2, 2]], True)
    assert asked("SELECT * FROM FACT_PUBLISHED", from_store=False).rows == []
    assert {"raw", "letters", "minutes"} <= {row[1] for row in asked("SHOW TABLES", from_store=False).rows}
    for wrong, words in {"SELEC 1": "SELEC", "SELECT nothing FROM raw": "nothing", "SELECT 1 FROM row": "row"}.items():
        with pytest.raises(query.BadQuery, match=words):
            asked(wrong, from_store=False)
    assert spark.catalog.listTables() == []


def test_rows_are_printed_as_a_table_and_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["/a", 12345, None], ["/b, c", 1, "[red]"]]
    show_rows(["channel", "n", "why"], rows, as_csv=True)
    assert capsys.readouterr().out == 'channel,n,why\n/a,12345,\n"/b, c",1,[red]\n'
    show_rows(["channel", "n", "why"], rows, as_csv=False)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "channel  n       why",
        "/a       12,345",
        "/b, c    1       [red]",
    ]
