"""Tables in an object store: the commands work on `s3a://` as they do on a directory, also after a job was killed there.

A server on this machine speaks S3: moto, from PyPI. The jars that Spark needs come from Maven.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from crewel.pipeline.schemas import RAW, TABLES
from tests.pipeline.conftest import Streams
from tests.pipeline.pipeline_job import Job
from tests.server_process import ROOT
from tests.store_process import _die_with_owner, until

pytestmark = pytest.mark.timeout(1500)

JARS = ROOT / ".cache" / "object-store"
SETS_UP = "`make .cache/stamps/object-store` brings it"
LIMIT_S = 600
BUCKET, DIRECTORY = "crewel", "s3a://crewel/tables"
JOE = "client/joe/1"
HALF = 200


@pytest.fixture
def jars() -> str:
    """What Spark needs for `s3a://`, as `spark.jars` wants it."""
    found = sorted(map(str, JARS.glob("*.jar")))
    for name in ("hadoop-aws", "s3", "s3-transfer-manager"):
        if not any(re.fullmatch(rf"{name}-\d[\d.]*\.jar", Path(each).name) for each in found):
            pytest.fail(f"{JARS} lacks {name}.jar: {SETS_UP}")
    return ",".join(found)


class ObjectStore:
    """moto, with one bucket."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "object-store.log"
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_die_with_owner())  # noqa: PLW1509
        until(self._port)
        self.url = f"http://127.0.0.1:{self._port()}"
        self._ask("PUT", BUCKET)

    def keys(self, prefix: str) -> list[str]:
        """The names of the objects that begin so."""
        return re.findall("<Key>(.*?)</Key>", self._ask("GET", f"{BUCKET}?list-type=2&prefix={prefix}"))

    def close(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT_S)

    def _ask(self, method: str, path: str) -> str:
        asked = urllib.request.Request(f"{self.url}/{path}", method=method)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def _port(self) -> str | None:
        assert self._process.poll() is None, self._log.read_text()
        found = re.search(r"Running on http://127\.0\.0\.1:(\d+)", self._log.read_text())
        return found and found[1]


@pytest.fixture
def object_store(tmp_path: Path) -> Iterator[ObjectStore]:
    for name in ("moto", "flask_cors"):
        if find_spec(name) is None:
            pytest.fail(f"the package {name} is not installed: {SETS_UP}")
    store = ObjectStore(tmp_path)
    yield store
    store.close()


def credentials(store: ObjectStore) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": store.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "crewel",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


class Commands:
    """The commands of the pipeline with their tables in the object store."""

    def __init__(self, streams: Streams, store: ObjectStore, jars: str) -> None:
        address = streams.address
        self.environ = {
            "CREWEL_STORAGE__URL": address.url,
            "CREWEL_STORAGE__PREFIX": address.prefix,
            "CREWEL_PIPELINE__DIR": DIRECTORY,
            **credentials(store),
        }
        self.settings = [
            f"--spark=spark.jars={jars}",
            "--spark=spark.hadoop.fs.s3a.path.style.access=true",
            "--spark=spark.hadoop.fs.s3a.endpoint.region=us-east-1",
            "--spark=spark.sql.shuffle.partitions=2",
        ]

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one until it has ended."""
        command = [sys.executable, "-m", "crewel.pipeline", name, *arguments, *self.settings]
        environ = {**os.environ, **self.environ}
        return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S)

    def json(self, name: str, *arguments: str) -> dict[str, Any]:
        """Run one that ends well, and return its result."""
        ended = self.run(name, *arguments, "--json")
        assert ended.returncode == 0, ended.stderr[-4000:] + ended.stdout[-4000:]
        result: dict[str, Any] = json.loads(ended.stdout)
        return result


def publish(streams: Streams, first: int) -> None:
    """Publish half of the messages, which a session acknowledges."""
    for log_id in range(first, first + HALF):
        streams.fact("published", {"first": log_id, "channels": ["/orders/lima"]})
        streams.fact("ended", {"ended": [{"session": JOE, "reason": "settled", "ids": [log_id]}]})


def test_tables_in_an_object_store_have_each_entry_once_after_a_kill(
    streams: Streams, object_store: ObjectStore, jars: str, tmp_path: Path
) -> None:
    commands = Commands(streams, object_store, jars)
    streams.fact("subscribed", {"session": JOE, "patterns": ["/orders/*"], "from": 0})
    streams.client.hset(streams.keys.session(JOE), mapping={"owner": "t", "at": 2 * HALF, "s:/orders/*": 0})
    publish(streams, 1)
    following = ["crewel.pipeline", "live", "--trigger=0.1", "--held-for=0", *commands.settings]
    job = Job(following, tmp_path / "job.log", commands.environ)
    try:
        job.wait_for(lambda: "batch 0: " in job.log.read_text())
        publish(streams, HALF + 1)
        job.wait_for(lambda: bool(object_store.keys("tables/unfinished/")))
    finally:
        job.close()  # as kill -9 does, in the middle of its second batch

    assert commands.json("live", "--once")["corrupt"] == 0
    entries = 1 + 4 * HALF
    audited = commands.json("audit")
    assert (audited["messages"], audited["unread"]) == (2 * HALF, 0)
    assert set(audited["counts"].values()) == {0}, audited["findings"]
    sql = "SELECT count(*), count(DISTINCT key, id) FROM raw"
    assert commands.json("query", sql, "--no-store")["rows"] == [[entries, entries]]
    sql = "SELECT reason, count(DISTINCT log_id) FROM fact_ended GROUP BY ALL"
    assert commands.json("query", sql)["rows"] == [["settled", 2 * HALF]]

    def by_deltalake(name: str) -> int:
        table = DeltaTable(f"s3://{BUCKET}/tables/{TABLES[name].path}", storage_options=credentials(object_store))
        number: int = table.to_pyarrow_dataset().count_rows()
        return number

    assert {name: by_deltalake(name) for name in (RAW.name, "fact_published", "fact_ended")} == {
        RAW.name: entries,
        "fact_published": 2 * HALF,
        "fact_ended": 2 * HALF,
    }
