"""The Grafana dashboard of the pipeline: DuckDB answers the query of each panel from tables with the documented columns."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from crewel.pipeline.delta import _arrow
from crewel.pipeline.schemas import TABLES
from tests.server_process import ROOT

DASHBOARD = ROOT / "docs" / "how-to" / "monitoring" / "pipeline-dashboard.json"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BEFORE = datetime(2026, 11, 19, 12, tzinfo=UTC)
DAY = date(2026, 11, 20)
JOE = "client/joe/1"

TRIAGE = {"code": "c", "channel": "/a", "receiver": JOE, "cause": "receiver", "sample_reason": "full", "last_at": NOON}
ROWS: dict[str, list[dict[str, Any]]] = {
    "deaths": [
        {"minute": NOON, "code": "c", "letters": 2},
        {"minute": NOON, "code": "c", "letters": 3},
        {"minute": BEFORE, "code": "c", "letters": 9},
    ],
    "backlog": [{"minute": NOON, "waiting": 7, "date": DAY}],
    "latency": [{"minute": NOON, "channel": "/a", "p99_ms": 5.0, "date": DAY}],
    "capacity": [{"hour": NOON, "channel": "/a", "persistent": 3, "transient": 4, "date": DAY}],
    "triage": [{**TRIAGE, "letters": 2}, {**TRIAGE, "letters": 3}],
    "receivers": [
        {
            "session": JOE,
            "failed": 2,
            "rejected": 1,
            "failure_rate": 0.5,
            "held_ms": 0,
            "is_sick": True,
            "why": ["a", "b"],
        },
        {"session": "client/ann/1", "failed": 0, "is_sick": False},
    ],
    "poison": [{"channel": "/a", "message_id": "8", "receivers": 2, "failures": 2, "why": "w", "last_at": NOON}],
    "audit": [{"finding": "lost", "words": "w"}, {"finding": "lost", "words": "w"}],
}
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "Dead letters": [(NOON, "c", 5.0)],
    "Messages that wait": [(NOON, 7.0)],
    "Latency p99": [(NOON, "/a", 5.0)],
    "Volume by channel": [(NOON, "/a", 7.0)],
    "Causes of dead letters": [("receiver", "c", "/a", JOE, 5, NOON, "full")],
    "Failing receivers": [(JOE, 2, 1, 50.0, 0, "a; b")],
    "Poison messages": [("/a", "8", 2, 2, "w", NOON)],
    "Audit": [("lost", 2, "w")],
}


def test_each_panel_of_the_dashboard_is_answered_from_the_tables(tmp_path: Path) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    names: dict[str, str] = {}
    for name, rows in ROWS.items():
        table = TABLES[name]
        columns = pa.schema([(each.name, _arrow(each.type)) for each in table.columns])
        path = tmp_path / table.path
        path.parent.mkdir(parents=True)
        write_deltalake(path, pa.Table.from_pylist(rows, columns))
        connection.register(name, DeltaTable(path).to_pyarrow_table())
        names[table.path] = name
    panels = {panel["title"]: panel for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]}
    assert panels.keys() == EXPECTED.keys()
    for title, expected in EXPECTED.items():
        # DuckDB's own reader of Delta tables is an extension that it loads from the network, so deltalake stands for it here.
        sql = re.sub(
            r"delta_scan\('\$\{tables\}/([^']+)'\)",
            lambda found: names[found[1]],
            panels[title]["targets"][0]["rawSql"],
        )
        sql = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 >= TIMESTAMPTZ '2026-11-20 00:00:00Z'", sql)
        assert connection.sql(sql).fetchall() == expected, title
