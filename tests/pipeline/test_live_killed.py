"""The live job is killed as a whole between any two steps, while `compact` merges and removes files, and the store is killed
and started again meanwhile: bronze, silver and gold hold each event once, and no job shows a traceback.

FAULTS=full kills twenty times.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
import redis

from crewel.pipeline.delta import DeltaLog
from crewel.pipeline.jobs import compact
from crewel.pipeline.schemas import RAW, TABLES, Table
from crewel.storage.keys import Keys
from tests.faults.conftest import IS_FULL
from tests.faults.report import DID
from tests.pipeline.pipeline_job import PipelineJob, counts_of, rows_of
from tests.store_process import StoreProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 20 if IS_FULL else 2
EVENTS_A_SECOND = 200
TICK_S = 0.05
PAUSE_S = 3
"""Between two runs of compact."""
PREFIX = "crewel:"
CHANNELS = ("/a/b", "/a/c")
SESSION = "client/joe/1"
MINUTE_MS = 60_000


class Writer:
    """Writes facts and events as a server does, so many a second, some of which nobody can understand. Each has an id that is
    known before, so that one whose answer was lost can be written again."""

    def __init__(self, store: StoreProcess) -> None:
        self.added: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.owed: Counter[int] = Counter()
        """By minute, as all of these."""
        self.ended: Counter[int] = Counter()
        self.settled: Counter[int] = Counter()
        self._store = store
        self._keys = Keys(PREFIX)
        self._log_id = 0
        self._group = 0
        self._ended = 0
        self._ms = time.time_ns() // 1_000_000
        self._rng = random.Random(7)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic()
        self._add([self._subscribed()])
        while not self._is_over.is_set():
            self._ms = max(time.time_ns() // 1_000_000, self._ms + 1)
            entries = [
                (key, f"{self._ms}-{seq}", fields)
                for seq, (key, fields) in enumerate(self._entries(round(EVENTS_A_SECOND * TICK_S)), 1)
            ]
            self._add(entries)
            due = max(due + TICK_S, time.monotonic() - 1)
            self._is_over.wait(max(due - time.monotonic(), 0.002))

    def _add(self, entries: list[tuple[str, str, dict[str, bytes | str]]]) -> None:
        while True:
            try:
                with self._store.client() as client:
                    pipe = client.pipeline(transaction=False)
                    for key, place, fields in entries:
                        pipe.xadd(key, fields, id=place)
                    for answer in pipe.execute(raise_on_error=False):
                        if isinstance(answer, redis.ResponseError) and "equal or smaller" in str(answer):
                            continue  # it is there since the attempt before
                        if isinstance(answer, Exception):
                            raise answer
                    return
            except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.BusyLoadingError):
                time.sleep(0.05)

    def _entries(self, number: int) -> Iterator[tuple[str, dict[str, bytes | str]]]:
        for _ in range(number):
            dice = self._rng.random()
            if dice < 0.5:
                yield self._published(self._rng.randint(1, 3))
            elif dice < 0.99:
                yield self._ended_now(self._rng.randint(1, 3))
            elif dice < 0.995:
                yield self._failed()
            else:
                yield self._odd()

    def _subscribed(self) -> tuple[str, str, dict[str, bytes | str]]:
        self.counts["subscribed"] += 1
        key, fields = self._fact("subscribed", {"session": SESSION, "patterns": ["/a/*"], "from": 0})
        return key, f"{self._ms}-0", fields

    def _published(self, number: int) -> tuple[str, dict[str, bytes | str]]:
        first = self._log_id + 1
        self._log_id += number
        self.counts["published"] += number
        self.owed[self._ms // MINUTE_MS] += number
        return self._fact("published", {"first": first, "channels": [channel_of(first + i) for i in range(number)]})

    def _ended_now(self, number: int) -> tuple[str, dict[str, bytes | str]]:
        ids = list(range(self._ended + 1, min(self._ended + number, self._log_id) + 1))
        if not ids:  # nothing ends that was not published
            return self._published(number)
        self._ended = ids[-1]
        self.counts["ended:settled"] += len(ids)
        self.ended[self._ms // MINUTE_MS] += len(ids)
        return self._fact("ended", {"ended": [{"session": SESSION, "reason": "settled", "ids": ids[::-1]}]})

    def _failed(self) -> tuple[str, dict[str, bytes | str]]:
        self._group += 1
        self.counts["failed"] += 1
        self.counts["settled"] += 2
        self.added["events"] += 1
        self.settled[self._ms // MINUTE_MS] += 2
        failed = {
            "type": "failed", "at": 1, "session": SESSION, "channel": "/a/b", "id": "1", "code": "user.update.error",
            "outcome": "letter",
        }  # fmt: skip
        settled = {"type": "settled", "channel": "/a/b", "count": 2, "sum": 3, "buckets": [0, 2] + [0] * 16}
        group = {"v": 1, "node": "n", "token": "t", "n": self._group, "from": self._ms, "until": self._ms, "lost": 0}
        return self._keys.events, {"d": orjson.dumps({**group, "events": [failed, settled]})}

    def _odd(self) -> tuple[str, dict[str, bytes | str]]:
        self.counts["corrupt"] += 1
        self.added["facts"] += 1
        text = self._rng.choice((b"{", b"\xff\xfe", b'{"first":1}', b'{"v":9,"first":1,"channels":[]}', b"[" * 5000))
        return self._keys.facts, {"t": "published", "d": text}

    def _fact(self, type_: str, fields: dict[str, object]) -> tuple[str, dict[str, bytes | str]]:
        self.added["facts"] += 1
        return self._keys.facts, {"t": type_, "d": orjson.dumps(fields)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    directory = tmp_path / "store"
    directory.mkdir()
    store = StoreProcess(directory)
    yield store
    store.close()


def check_readers(spark: SparkSession, tables: Path, table: Table, *key: str) -> None:
    """Three programs read the same rows of the files that count, each of them once."""
    by_duckdb, by_pandas, keys = counts_of(tables, table, *key)
    by_spark = spark.read.parquet(*DeltaLog(table, str(tables / table.path)).files()).count()
    assert by_spark == by_duckdb == by_pandas == keys > 0, f"another program reads other rows of {table.name}"


class Compaction:
    """Merges small files over and over, and removes what does not count any more at once, as `compact --keep 0` does.

    It uses the session of all tests, which outlives the jobs: a process has one, and to stop it takes it from later tests.
    """

    def __init__(self, spark: SparkSession, tables: Path) -> None:
        self.runs = self.merged = self.removed = 0
        self._options = compact.Options(directory=tables, keep_hours=0)
        self._spark = spark
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End it; raise what it has run into."""
        self._is_over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def has_merged(self) -> bool:
        """Tell whether it has merged files; raise what it has run into."""
        if self._error is not None:
            raise self._error
        return self.merged > 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let others read meanwhile: they need files that it would remove, which is why it usually keeps them for a week."""
        with self._turn:
            yield

    def _run(self) -> None:
        try:
            while not self._is_over.wait(PAUSE_S):
                if not (Path(self._options.directory) / RAW.path / "_delta_log").is_dir():
                    continue
                with self._turn:
                    done = compact.run(self._spark, self._options)
                self.runs += 1
                self.merged += done.merged
                self.removed += done.removed
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self._error = error


@pytest.mark.timeout(2400)
def test_each_event_is_there_once_however_often_the_job_is_killed(
    store: StoreProcess, spark: SparkSession, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tables = tmp_path / "tables"
    rng = random.Random(1)
    writer = Writer(store)
    compaction = Compaction(spark, tables)
    moments: Counter[str] = Counter()
    processes = done = 0
    job = spare = PipelineJob(store.url, PREFIX, tables)
    try:
        for shot in range(KILLS):
            is_last = shot == KILLS - 1
            # The Java of the next one starts meanwhile: half of the time between two kills went to that.
            job, spare = spare, PipelineJob(store.url, PREFIX, tables, "once" if is_last else "1")
            job.begin()
            job.wait_for_batch(done + rng.randint(0, 2))
            if is_last:  # a quick job is killed twice before there are enough files
                job.wait_for(compaction.has_merged)
            if shot % 3 == 1:
                store.kill()
                time.sleep(rng.uniform(0.2, 2))
                store.start()
                job.wait_for_batch(job.batch()[0] + 1)
            time.sleep(rng.uniform(0, 3))
            processes += job.kill()
            job.close()
            begun, done = job.batch()
            moments["within a batch" if begun > done else "between batches"] += 1
            done += 1
            with compaction.paused():
                for table, key in ((RAW, ("key", "id")), (TABLES["fact_published"], ("log_id",))):
                    check_readers(spark, tables, table, *key)
        writer.stop()
        compaction.stop()
        spare.begin()
        spare.finish(300)
    finally:
        job.close()
        spare.close()
        writer.stop()
        compaction.stop()
    log = spare.log.read_text()
    assert not [words for words in ("Traceback", "Exception") if words in log], log

    entries = sum(writer.added.values())
    places = [(row["key"], row["id"]) for row in rows_of(tables, RAW, "key", "id")]
    assert Counter(key for key, _ in places) == writer.added
    assert len({*places}) == entries
    for name, what in (("fact_published", "published"), ("fact_ended", "ended:settled")):
        logs = [row["log_id"] for row in rows_of(tables, TABLES[name], "log_id")]
        assert sorted(logs) == [*range(1, writer.counts[what] + 1)], name
    groups = [row["n"] for row in rows_of(tables, TABLES["event_groups"], "n")]
    assert sorted(groups) == [*range(1, writer.counts["failed"] + 1)]
    assert len(rows_of(tables, TABLES["corrupt"], "place")) == writer.counts["corrupt"]

    minutes: Counter[str] = Counter()
    for row in rows_of(tables, TABLES["minutes"], "what", "count"):
        minutes[row["what"]] += row["count"]
    assert minutes == writer.counts
    assert _figures(store) == writer.counts
    _check_gold(tables, writer)
    record_property(
        DID,
        f"{KILLS} kills of {processes} processes ({', '.join(f'{number} {when}' for when, number in sorted(moments.items()))})"
        f" beside {compaction.runs} runs of compact, which merged {compaction.merged} files and removed {compaction.removed};"
        f" {entries} entries, {sum(writer.counts.values())} rows: each once in bronze, silver, gold and the store's figures;"
        " no traceback; after each kill Spark, DuckDB and pandas read the same",
    )


def _check_gold(tables: Path, writer: Writer) -> None:
    """Compare what is written anew as a whole with what was really published."""
    settled = {_minute(row["minute"]): row for row in rows_of(tables, TABLES["latency"])}
    assert {minute: row["count"] for minute, row in settled.items()} == writer.settled
    for row in settled.values():
        assert (row["mean_ms"], row["p50_ms"], row["p99_ms"]) == (1.5, 2.0, 2.0)
        assert row["buckets"] == [0, row["count"]] + [0] * 16
    backlog = {
        _minute(row["minute"]): (row["owed"], row["ended"], row["waiting"])
        for row in rows_of(tables, TABLES["backlog"])
    }
    waiting = 0
    for minute in sorted(writer.owed | writer.ended):
        waiting += writer.owed[minute] - writer.ended[minute]
        assert backlog.pop(minute) == (writer.owed[minute], writer.ended[minute], waiting)
    assert backlog == {}
    messages, ends = writer.counts["published"], writer.counts["ended:settled"]
    found: dict[str, Counter[str]] = {channel: Counter() for channel in CHANNELS}
    for row in rows_of(tables, TABLES["capacity"]):
        found[row["channel"]].update({name: row[name] for name in ("persistent", "transient", "deliveries")})
        assert row["sessions"] <= 1
    for channel in CHANNELS:
        assert found[channel]["persistent"] == sum(channel_of(each) == channel for each in range(1, messages + 1))
        assert found[channel]["deliveries"] == sum(channel_of(each) == channel for each in range(1, ends + 1))
        assert found[channel]["transient"] == 0


def channel_of(log_id: int) -> str:
    """The channel of a message."""
    return CHANNELS[log_id % 3 == 0]


def _minute(moment: datetime) -> int:
    return round(moment.timestamp() * 1000) // MINUTE_MS


def _figures(store: StoreProcess) -> Counter[str]:
    found: Counter[str] = Counter()
    with store.client() as client:
        for key in client.scan_iter(match=f"{Keys(PREFIX).base}pipeline:minute:*", count=1000):
            for what, count in client.hgetall(key).items():
                found[what.decode()] += int(count)
    return found
