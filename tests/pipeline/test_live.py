"""The live job on real streams: each entry once in bronze, silver and gold, however often a batch is repeated."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import Dataset
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from crewel.errors import CrewelError
from crewel.pipeline.delta import Batch
from crewel.pipeline.finished import finished
from crewel.pipeline.jobs import backfill, batches, compact, live
from crewel.pipeline.jobs.lock import TablesBusy, writing
from crewel.pipeline.schemas import RAW, TABLES, Table
from crewel.pipeline.sink import Sink
from crewel.pipeline.tables import Tables
from tests.pipeline.conftest import Streams
from tests.server_process import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # a batch has a dozen jobs of Spark, which take long beside other tests

AT = 1_790_000_040_000


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job looks every half second whether its queries are over, and waits for five before it tries again."""
    monkeypatch.setattr(live, "_LOOK_S", 0.02)
    monkeypatch.setattr(live, "_PAUSE_S", 0.0)


def publish(streams: Streams, number: int, first: int = 1, at_ms: int = AT) -> None:
    """Publish messages, one a millisecond, each owed to one session that settles it."""
    for log_id in range(first, first + number):
        streams.fact("published", {"first": log_id, "channels": ["/a"]}, f"{at_ms + log_id}-1")
        ended = [{"session": "client/joe/1", "reason": "settled", "ids": [log_id]}]
        streams.fact("ended", {"ended": ended}, f"{at_ms + log_id}-2")


def read_all(
    spark: SparkSession, streams: Streams, root: Path, rows: int = 100_000, upkeep_s: float = 0
) -> live.Result:
    options = live.Options(address=streams.address, directory=root, once=True, rows=rows, upkeep_s=upkeep_s)
    return live.run(spark, options)


class Killed(Exception):
    """Stands for kill -9: what comes after it does not happen."""


def kill_in(step: str, patched: pytest.MonkeyPatch) -> None:
    """Let the job end after it has written this table, whichever way it writes; or after it has noted that a batch is in all
    its tables, or has given the figures to the store."""
    later: dict[str, tuple[type, str]] = {"noted": (Tables, "finish"), "figures": (Sink, "write")}
    if step in later:
        owner, way = later[step]
        patched.setattr(owner, way, _killed_after(getattr(owner, way), lambda *_: True))
        return
    for way in ("write", "write_arrow"):
        patched.setattr(Tables, way, _killed_after(getattr(Tables, way), lambda table, *_: table.name == step))


def _killed_after(do: Callable[..., Any], is_it: Callable[..., bool]) -> Callable[..., Any]:
    def does(self: object, *arguments: Any) -> Any:
        done = do(self, *arguments)
        if is_it(*arguments):
            raise Killed
        return done

    return does


def files_of(root: Path, name: str) -> list[str]:
    return DeltaTable(root / TABLES[name].path).file_uris()


def by_others(root: Path, names: Iterable[str]) -> dict[str, int]:
    """Return how many rows tables have by DuckDB, and hold pandas to the same."""
    found: dict[str, int] = {}
    for name in names:
        table = DeltaTable(root / TABLES[name].path)
        rows = duckdb.from_arrow(table.to_pyarrow_dataset()).count("*").fetchall()
        found[name] = rows[0][0]
        assert len(table.to_pandas()) == found[name]
    return found


def logs(frame: DataFrame) -> list[int]:
    return sorted(row["log_id"] for row in frame.select("log_id").collect())


def column(root: Path, name: str, of: str) -> list[Any]:
    """Return what a table has in a column, without Spark: that is a tenth of the work, and the same rows."""
    return sorted(finished(root, name)[name].to_table(columns=[of])[of].to_pylist())


def number(root: Path, name: str) -> int:
    """Return how many rows a table has, without Spark."""
    return finished(root, name)[name].count_rows()


def figures(streams: Streams) -> dict[str, int]:
    """Return the figures that the store has, of all minutes."""
    found: Counter[str] = Counter()
    for key in streams.client.scan_iter(f"{streams.keys.base}pipeline:minute:*"):
        found.update({what.decode(): int(count) for what, count in streams.client.hgetall(key).items()})
    return dict(found)


def test_the_store_has_the_figures_of_the_last_day(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 1, at_ms=1)  # of 1970
    for _ in range(3):
        streams.fact("published", {"first": 1, "channels": ["/a", "/b"]})
    read_all(spark, streams, tmp_path)
    assert figures(streams) == {"published": 6}
    # As after the tables were put back from a copy: Spark counts its batches from a number that the store has passed.
    (job,) = streams.client.hkeys(streams.keys.ledger)
    streams.client.hset(streams.keys.ledger, job, "1000")
    streams.fact("published", {"first": 1, "channels": ["/a", "/b"]})
    read_all(spark, streams, tmp_path)
    assert figures(streams) == {"published": 8}


def test_alerts_end_with_their_holdbacks_however_many_sessions_end_at_once(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """More than the store takes in one command. One session was held again, and the watch was sooner than this job."""
    pipe = streams.client.pipeline(transaction=False)
    for i in range(8500):
        fact = {"t": "closed-session", "d": b'{"session":"client/s/%d"}' % i}
        pipe.xadd(streams.keys.facts, fact, f"{AT + 1}-{i}")
    pipe.execute()
    for seq, session in enumerate(("client/joe/1", "client/ann/1")):
        streams.fact("released", {"session": session}, f"{AT + 100}-{seq}")
    since = {"client/joe/1": AT + 500, "client/ann/1": AT, "client/s/8499": AT}
    for session, ms in since.items():
        streams.client.hset(streams.keys.alerts, session, orjson.dumps({"since": ms}))
    assert read_all(spark, streams, tmp_path).entries == 8502
    assert streams.client.hkeys(streams.keys.alerts) == [b"client/joe/1"]


def counts(root: Path) -> dict[str, int]:
    """Return how much was counted of each kind."""
    found: Counter[str] = Counter()
    for row in finished(root, "minutes")["minutes"].to_table(columns=["what", "count"]).to_pylist():
        found[row["what"]] += row["count"]
    return dict(found)


def test_each_entry_is_in_each_table_once(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 100)
    streams.group(
        [{"type": "settled", "channel": "/a", "count": 100, "sum": 5, "buckets": [100] + [0] * 17}], f"{AT + 500}-0"
    )
    streams.fact("published", {"first": 7}, f"{AT + 600}-0")
    streams.fact("unheard-of", {}, f"{AT + 601}-0")
    result = read_all(spark, streams, tmp_path, rows=90)
    tables = Tables(spark, tmp_path)
    assert result.batches >= 3
    assert (result.entries, result.corrupt) == (203, 2)
    assert tables.read(RAW).count() == tables.read(RAW).select("key", "id").distinct().count() == 203
    assert logs(tables.read(TABLES["fact_published"])) == logs(tables.read(TABLES["fact_ended"])) == [*range(1, 101)]
    assert counts(tmp_path) == {"published": 100, "ended:settled": 100, "settled": 100, "corrupt": 2}
    assert {*column(tmp_path, "corrupt", "why")} == {"wrong fields", "unknown type"}

    publish(streams, 10, first=1001)
    read_all(spark, streams, tmp_path)
    assert number(tmp_path, "fact_published") == 110
    assert counts(tmp_path)["published"] == 110


def test_a_repeated_batch_takes_its_own_place_and_a_new_checkpoint_begins_after_bronze(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(streams, 20)
    read_all(spark, streams, tmp_path)
    checkpoint = tmp_path / "checkpoints" / "live" / "v1"
    newest = max(
        (each for each in (checkpoint / "commits").iterdir() if each.name.isdigit()), key=lambda each: int(each.name)
    )
    newest.unlink()  # as if it had been killed before it could note that the batch was done
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    read_all(spark, streams, tmp_path)
    assert column(tmp_path, "fact_published", "log_id") == [*range(1, 21)]
    assert number(tmp_path, "raw") == 40
    assert counts(tmp_path) == {"published": 20, "ended:settled": 20}

    monkeypatch.setattr(live, "VERSION", 2)
    publish(streams, 5, first=21)
    read_all(spark, streams, tmp_path)
    assert column(tmp_path, "fact_published", "log_id") == [*range(1, 26)]


def test_an_upkeep_that_fails_does_not_end_the_job(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 10)
    streams.group(
        [{"type": "settled", "channel": "/a", "count": 9, "sum": 5, "buckets": [9] + [0] * 17}], f"{AT + 500}-0"
    )
    in_the_way = tmp_path / "gold" / "latency"
    in_the_way.parent.mkdir()
    in_the_way.touch()
    told: list[str] = []
    options = live.Options(address=streams.address, directory=tmp_path, once=True)
    assert live.run(spark, options, told.append).entries == 21
    (words,) = (each for each in told if each.startswith("the upkeep"))
    assert words.startswith("the upkeep has failed and is tried again in 600 s: ")
    assert "\n" not in words
    assert column(tmp_path, "fact_published", "log_id") == [*range(1, 11)]

    in_the_way.unlink()
    publish(streams, 1, first=1001)
    read_all(spark, streams, tmp_path, upkeep_s=600)
    assert number(tmp_path, "latency") == 1
    assert column(tmp_path, "capacity", "persistent") == [11]


@pytest.mark.parametrize(("number", "before"), [(5, ["batch 0: 10 entries"]), (0, [])])
def test_the_watch_does_not_share_the_processors_with_the_first_batch(
    spark: SparkSession,
    streams: Streams,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    before: list[str],
) -> None:
    publish(streams, number)
    told: list[str] = []

    def start(*_: object) -> None:
        raise CrewelError("the watch starts")

    monkeypatch.setattr(live.holdback_watch, "start", start)
    with pytest.raises(CrewelError, match="the watch starts"):
        live.run(spark, live.Options(address=streams.address, directory=tmp_path, trigger_s=1.0), told.append)
    # On a busy machine Spark itself may be started again.
    assert [words for words in told if not words.endswith("trying again")] == before
    assert spark.streams.active == [], "a job that fails leaves no query behind"


@pytest.mark.parametrize(("times", "ends_well"), [(2, True), (3, False)])
def test_a_process_of_spark_that_starts_too_late_is_started_again_but_not_for_ever(
    spark: SparkSession,
    streams: Streams,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    ends_well: bool,
) -> None:
    """As on a busy machine, where Spark gives its processes of Python ten seconds."""
    publish(streams, 5)
    told: list[str] = []
    follow, failures = live._Job.follow, iter(range(times))

    def follows(self: live._Job, is_over: Callable[[float], bool]) -> None:
        if next(failures, None) is not None:
            raise StreamingQueryException("Python worker failed to connect back.\n=== Streaming Query ===")
        follow(self, is_over)

    monkeypatch.setattr(live._Job, "follow", follows)
    options = live.Options(address=streams.address, directory=tmp_path, once=True, upkeep_s=0)
    if ends_well:
        assert live.run(spark, options, told.append).entries == 10
    else:
        monkeypatch.setattr(live, "_MOST_LATE", 2)
        with pytest.raises(CrewelError, match="the live job has ended: Python worker failed to connect back"):
            live.run(spark, options, told.append)
    assert sum(words.endswith("trying again") for words in told) >= 2


@pytest.mark.parametrize(
    "words",
    [
        "Python worker failed to connect back.",
        "FileNotFoundError: part-0.parquet",
        "[PATH_NOT_FOUND] Path does not exist: file:/tables/bronze/raw/v1/part-0.snappy.parquet.",
    ],
)
@pytest.mark.parametrize(("batches_each", "ends_well"), [(1, True), (0, False)])
def test_tries_are_those_of_one_batch_and_not_of_the_life_of_the_job(
    spark: SparkSession,
    streams: Streams,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    batches_each: int,
    ends_well: bool,
) -> None:
    failures = iter(range(3))

    def follows(self: live._Job, _: object) -> None:
        self.result.batches += batches_each
        if next(failures, None) is not None:
            raise StreamingQueryException(words)

    monkeypatch.setattr(live._Job, "prepare", lambda _: None)
    monkeypatch.setattr(live._Job, "follow", follows)
    monkeypatch.setattr(live, "_MOST_LATE", 1)
    monkeypatch.setattr(live, "_MOST_GONE", 1)
    options = live.Options(address=streams.address, directory=tmp_path)
    if ends_well:
        assert live.run(spark, options).batches == 4
    else:
        with pytest.raises(CrewelError, match="the live job has ended"):
            live.run(spark, options)


def test_a_job_that_waits_for_the_store_says_why_and_one_with_a_broken_table_ends(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = "the store refuses this user and password: WRONGPASS invalid username-password pair"
    troubles = iter(
        [
            StreamingQueryException(
                f"Traceback\ncrewel.errors.tree.StoreUnavailable: {refused}\n\n=== Streaming Query"
            ),
            DeltaError("the log is broken\nin many words"),
        ]
    )

    def follows(*_: object) -> None:
        raise next(troubles)

    monkeypatch.setattr(live._Job, "prepare", lambda _: None)
    monkeypatch.setattr(live._Job, "follow", follows)
    told: list[str] = []
    with pytest.raises(CrewelError, match=r"\Athe live job has ended: the log is broken\Z"):
        live.run(spark, live.Options(address=streams.address, directory=tmp_path), told.append)
    assert told == [f"{refused}; waiting for it"]


def test_a_file_that_is_removed_while_a_batch_of_a_killed_job_is_completed_does_not_end_the_job(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `compact --keep 0` removes it, which runs at the same time."""
    publish(streams, 5)
    told: list[str] = []
    complete, file = batches.complete, tmp_path / "removed.parquet"
    pq.write_table(pa.table({"a": [1]}), file)
    rows = spark.read.parquet(str(file))

    def completes(tables: Tables, progress: batches.Progress) -> None:
        if file.exists():
            file.unlink()
            rows.collect()
        complete(tables, progress)

    monkeypatch.setattr(batches, "complete", completes)
    options = live.Options(address=streams.address, directory=tmp_path, once=True, upkeep_s=0)
    assert live.run(spark, options, told.append).entries == 10
    assert "a file of the tables was removed meanwhile; trying again" in told


def test_a_backfill_takes_what_is_not_there_yet(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 20)
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=2, gold=False)
    assert backfill.run(spark, options).entries == 40
    publish(streams, 5, first=21)
    # In this zone it is the next day already.
    options = replace(options, since=datetime.fromtimestamp(AT / 1000, timezone(timedelta(hours=10))))
    with pytest.MonkeyPatch.context() as patched:
        # A clock that was set back does not make it a repeated one.
        patched.setattr("crewel.pipeline.jobs.backfill.time.time_ns", lambda: 1)
        assert backfill.run(spark, options).entries == 10
    assert column(tmp_path, "fact_published", "log_id") == [*range(1, 26)]
    assert counts(tmp_path) == {"published": 25, "ended:settled": 25}
    assert number(tmp_path, "raw") == 50


def test_entries_that_a_backfill_took_between_two_runs_of_the_live_job_are_there_once(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    publish(streams, 20)
    read_all(spark, streams, tmp_path)
    publish(streams, 10, first=21)
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=2, gold=False)
    assert backfill.run(spark, options).entries == 20
    publish(streams, 5, first=31)
    assert read_all(spark, streams, tmp_path, rows=15).entries == 10
    assert column(tmp_path, "fact_published", "log_id") == column(tmp_path, "fact_ended", "log_id") == [*range(1, 36)]
    ids = finished(tmp_path, "raw")["raw"].to_table(columns=["key", "id"])
    assert len(ids) == len(ids.group_by(["key", "id"]).aggregate([])) == 70
    assert counts(tmp_path) == {"published": 35, "ended:settled": 35}


def test_a_live_job_whose_checkpoint_was_removed_takes_no_entry_again(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """The file that says where it began stays, and is that of the first run."""
    day_ms = 24 * 3600 * 1000
    publish(streams, 5)
    publish(streams, 5, first=6, at_ms=AT + day_ms)
    read_all(spark, streams, tmp_path)
    rmtree(tmp_path / "checkpoints" / "live" / "v1")
    publish(streams, 5, first=11, at_ms=AT + day_ms)
    assert read_all(spark, streams, tmp_path, rows=6).entries == 10
    assert column(tmp_path, "fact_published", "log_id") == [*range(1, 16)]
    assert number(tmp_path, "raw") == 30


def test_a_backfill_that_was_killed_is_completed_by_the_next_job(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    publish(streams, 20)
    options = backfill.Options(address=streams.address, directory=tmp_path, partitions=2, gold=False)
    tables = Tables(spark, tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        kill_in("fact_published", patched)
        with pytest.raises(Killed):
            backfill.run(spark, options)
    assert tables.read(RAW).isEmpty()
    assert tables.read(TABLES["fact_published"]).isEmpty()
    publish(streams, 5, first=21)
    streams.client.xtrim(streams.keys.facts, maxlen=10, approximate=False)  # the first ones are in bronze only
    assert backfill.run(spark, options).entries == 10
    assert column(tmp_path, "fact_published", "log_id") == [*range(1, 26)]
    assert column(tmp_path, "fact_ended", "log_id") == [*range(1, 26)]
    assert counts(tmp_path) == {"published": 25, "ended:settled": 25}
    assert number(tmp_path, "raw") == 50
    assert tables.unfinished() == set()


@pytest.mark.parametrize("step", ["raw", "fact_published", "minutes", "noted", "figures"])
def test_a_small_batch_that_was_killed_at_any_step_is_there_once(
    spark: SparkSession, streams: Streams, tmp_path: Path, step: str
) -> None:
    publish(streams, 10, at_ms=time.time_ns() // 1_000_000)  # the store has the figures of the last day
    tables = Tables(spark, tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        kill_in(step, patched)
        with pytest.raises((Killed, CrewelError)):
            read_all(spark, streams, tmp_path)
    is_whole = step in ("noted", "figures")
    assert (len(tables.unfinished()), number(tmp_path, "raw")) == ((0, 20) if is_whole else (1, 0))
    assert bool(figures(streams)) is (step == "figures")
    assert read_all(spark, streams, tmp_path).entries == 20
    assert column(tmp_path, "fact_published", "log_id") == column(tmp_path, "fact_ended", "log_id") == [*range(1, 11)]
    assert counts(tmp_path) == figures(streams) == {"published": 10, "ended:settled": 10}
    assert number(tmp_path, "raw") == 20


def test_a_batch_that_is_killed_again_while_it_is_completed_is_there_once(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one, which comes to its tables one after another."""
    monkeypatch.setattr(batches, "SMALL", 0)
    publish(streams, 10)
    tables = Tables(spark, tmp_path)
    for step in ("raw", "fact_published", "minutes"):
        with pytest.MonkeyPatch.context() as patched:
            kill_in(step, patched)
            with pytest.raises((Killed, CrewelError)):
                read_all(spark, streams, tmp_path)
        assert len(tables.unfinished()) == 1
        assert tables.read(RAW).isEmpty()
    assert read_all(spark, streams, tmp_path).entries == 20
    assert column(tmp_path, "fact_published", "log_id") == column(tmp_path, "fact_ended", "log_id") == [*range(1, 11)]
    assert counts(tmp_path) == {"published": 10, "ended:settled": 10}
    assert number(tmp_path, "raw") == 20


def test_a_reader_sees_a_batch_in_all_tables_or_in_none(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    publish(streams, 10)
    read_all(spark, streams, tmp_path)
    tables = Tables(spark, tmp_path)
    before = tables.pinned()
    publish(streams, 10, first=11)
    seen: list[tuple[list[int], list[int], int]] = []
    write = Tables.write_arrow

    def looked_at(self: Tables, table: Table, rows: pa.Table, batch: Batch) -> None:
        write(self, table, rows, batch)
        now = tables.pinned()
        names = ("fact_published", "fact_ended")
        published, ended = (logs(now.read(TABLES[name])) for name in names)
        seen.append((published, ended, now.read(RAW).count()))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tables, "write_arrow", looked_at)
        read_all(spark, streams, tmp_path)
    assert len(seen) == 4
    assert all(each == ([*range(1, 11)], [*range(1, 11)], 20) for each in seen)
    assert logs(before.read(TABLES["fact_published"])) == [*range(1, 11)]
    assert logs(tables.pinned().read(TABLES["fact_published"])) == [*range(1, 21)]


def test_one_job_at_a_time_adds_to_the_tables(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    options = backfill.Options(address=streams.address, directory=tmp_path)
    with writing(tmp_path, "the live job"), pytest.raises(TablesBusy, match="the live job adds to these tables"):
        backfill.run(spark, options)


def test_files_are_merged_and_hold_the_same_for_every_program(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    publish(streams, 60)  # on a day that is over
    read_all(spark, streams, tmp_path, rows=30, upkeep_s=0)
    tables = Tables(spark, tmp_path)
    names = ("raw", "fact_published", "fact_ended", "minutes")
    before = {name: tables.read(TABLES[name]).count() for name in names}
    assert before == {"raw": 120, "fact_published": 60, "fact_ended": 60, "minutes": before["minutes"]}
    assert counts(tmp_path) == {"published": 60, "ended:settled": 60}
    assert by_others(tmp_path, names) == before
    files = len(files_of(tmp_path, "raw"))
    assert files >= 4
    stale = tmp_path / RAW.path / "live.x.1-00000000" / "date=2026-09-21" / "part-0.parquet"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of a write that was killed")
    os.utime(stale, (0, 0))
    begun = tmp_path / RAW.path / "live.x.2-00000000" / "_temporary" / "0" / "part-0.parquet"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"of a write that is under way")
    held = tables.pinned().read(RAW)
    first = compact.run(spark, compact.Options(directory=tmp_path))
    assert (first.merged, first.into) == (4 * files, 4)
    assert (first.removed, held.count()) == (1, 120)  # the stale one; all others are for those who read them
    assert len(files_of(tmp_path, "raw")) == 1
    assert by_others(tmp_path, names) == before
    second = compact.run(spark, compact.Options(directory=tmp_path, keep_hours=0))
    assert (second.merged, second.removed) == (0, 4 * files)
    assert begun.exists(), "what a writer has begun stays"
    for folder in (tmp_path / RAW.path).iterdir():
        if folder != begun.parents[2]:
            os.utime(folder, (0, 0))
    compact.run(spark, compact.Options(directory=tmp_path, keep_hours=0))
    left = [each.name for each in (tmp_path / RAW.path).iterdir() if each.is_dir() and "live" in each.name]
    assert left == ["live.x.2-00000000"]
    assert {name: tables.read(TABLES[name]).count() for name in names} == before
    assert by_others(tmp_path, names) == before
    assert column(tmp_path, "fact_ended", "log_id") == [*range(1, 61)]
    publish(streams, 5, first=61)
    read_all(spark, streams, tmp_path)
    assert column(tmp_path, "fact_ended", "log_id") == [*range(1, 66)]


def test_other_programs_find_all_tables_and_leave_out_what_is_half_written(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill.gold, "write", lambda *_: None)  # of gold nothing is asked but that it is there
    publish(streams, 10)
    letter = {
        "id": 7,
        "received": 1,
        "receiver": "client/joe/1",
        "code": "user.update.error",
        "reason": "no",
        "attempts": 1,
    }
    streams.add("dead", {**letter, "channel": "/a", "body": '{"data":17}', "sender": "client/ann/1", "qos": "", "p": 1})
    options = backfill.Options(address=streams.address, directory=tmp_path)
    backfill.run(spark, options)
    assert {*finished(tmp_path)} == {*TABLES}
    assert finished(tmp_path, "letters")["letters"].to_table()["body"].to_pylist() == ['{"data":17}']
    publish(streams, 5, first=11)
    with pytest.MonkeyPatch.context() as patched:
        kill_in("fact_published", patched)
        with pytest.raises(Killed):
            backfill.run(spark, options)

    def rows(found: Mapping[str, Dataset]) -> list[tuple[int]]:
        return [duckdb.from_arrow(found[name]).filter("ms > 0").count("*").fetchall()[0][0] for name in found]

    names = ("raw", "fact_published", "fact_ended")
    whole = {name: DeltaTable(tmp_path / TABLES[name].path).to_pyarrow_dataset() for name in names}
    assert rows(whole) == [30, 15, 10], "what others see by themselves"
    assert rows(finished(tmp_path, *names)) == [20, 10, 10]
    (condition,) = re.findall(
        r"```sql\n(WHERE batch .*)\n```", (ROOT / "docs" / "how-to" / "pipeline.md").read_text("utf-8")
    )
    with duckdb.connect() as connection:
        connection.register("raw", whole["raw"])
        # A row that was written again is of no batch.
        rows_in_sql = (
            f"FROM (SELECT batch FROM raw UNION ALL SELECT NULL) {condition.replace('data/pipeline', str(tmp_path))}"
        )
        assert connection.sql(f"SELECT count(*) {rows_in_sql}").fetchall() == [(21,)]
    streams.client.delete(streams.keys.dead)
    backfill.run(spark, options)
    assert rows(finished(tmp_path, *names)) == [30, 15, 15]
    assert finished(tmp_path, "letters")["letters"].count_rows() == 0
    with pytest.raises(CrewelError, match="fact_ende: no such table"):
        finished(tmp_path, "fact_ende")


@pytest.mark.parametrize("times", [2, 20])
def test_a_batch_whose_file_was_removed_is_tried_again_and_ends_with_one_sentence(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    publish(streams, 5)
    write, failures = Tables.write_arrow, iter(range(times))

    def writes(self: Tables, table: Table, rows: pa.Table, batch: Batch) -> None:
        if table.name == "fact_ended" and next(failures, None) is not None:
            raise FileNotFoundError("part-0.parquet")
        write(self, table, rows, batch)

    monkeypatch.setattr(Tables, "write_arrow", writes)
    if times < 5:
        assert read_all(spark, streams, tmp_path).entries == 10
        assert number(tmp_path, "raw") == 10
    else:
        monkeypatch.setattr(live, "_MOST_GONE", 2)
        with pytest.raises(CrewelError, match="the live job has ended: ") as raised:
            read_all(spark, streams, tmp_path)
        assert "\n" not in str(raised.value)
