"""The same jobs on a cluster: Spark's own master and worker, and a job that spark-submit gives to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crewel.pipeline.__main__ as commands
from tests.pipeline.cluster import cluster
from tests.pipeline.conftest import Streams

LIMIT_S = 600
AFTERNOON_MS = 1_790_000_040_000
"""In UTC on 2026-09-21; in the time zone of the cluster on the next day."""


@pytest.mark.timeout(900)
def test_a_backfill_is_submitted_to_a_cluster_and_ends_by_itself(streams: Streams, tmp_path: Path) -> None:
    for number in range(1, 301):
        streams.fact("published", {"first": number, "channels": ["/a", "/b"]}, f"{AFTERNOON_MS + number}-0")
    environ = {"CREWEL_STORAGE__URL": streams.address.url, "CREWEL_STORAGE__PREFIX": streams.address.prefix}
    with cluster(tmp_path) as started:
        ended = started.submit(
            str(commands.__file__), "backfill", "--dir", str(tmp_path / "tables"), "--json", limit_s=LIMIT_S, **environ
        )
        assert ended.returncode == 0, ended.stderr[-3000:] + started.log[-3000:]
        assert "Registered app crewel-pipeline" in started.log
        assert "Launching executor" in started.log
    assert streams.address.url not in started.log, "an address may hold a password"
    result = json.loads(ended.stdout.splitlines()[-1])
    assert (result["entries"], result["corrupt"]) == (300, 0), result
    assert list((tmp_path / "tables" / "bronze").rglob("*.parquet"))
    days = {each.parent.name for each in (tmp_path / "tables").rglob("date=*/*.parquet")}
    assert days == {"date=2026-09-21"}
    assert list((tmp_path / "tables" / "gold" / "capacity").rglob("*.parquet"))
