"""The log of a table, without Spark: what counts, each batch once, and what other programs read."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from crewel.errors import CrewelError
from crewel.pipeline.delta import Batch, DeltaLog
from crewel.pipeline.schemas import TABLES, Column
from crewel.pipeline.schemas.table import BATCH

DISCARDED, DEATHS = TABLES["fact_discarded"], TABLES["deaths"]
DAY = date(2026, 11, 20)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return DeltaLog(DISCARDED, str(tmp_path / "a tablé" / "v1"))


def folder(log: DeltaLog, name: str, *seqs: int, day: date = DAY) -> str:
    """Write a file as Spark does."""
    path = Path(log.path) / name / f"date={day.isoformat()}"
    path.mkdir(parents=True)
    rows = {
        "place": [f"1-{seq}" for seq in seqs],
        "ms": [seq * 1000 for seq in seqs],
        "seq": [*seqs],
        "at": pa.array([datetime(2026, 11, 20, tzinfo=UTC)] * len(seqs), pa.timestamp("us", "UTC")),
        "letter": ["x"] * len(seqs),
        BATCH: [name] * len(seqs),
    }
    pq.write_table(pa.table(rows), path / "part-0.parquet")
    return name


def seqs(log: DeltaLog) -> list[int]:
    """Return what DuckDB reads."""
    rows = duckdb.from_arrow(DeltaTable(log.path).to_pyarrow_dataset()).select("seq").fetchall()
    return sorted(row[0] for row in rows)


def test_what_is_added_counts_for_every_program(log: DeltaLog) -> None:
    assert (log.version, log.files(), log.days(), log.written()) == (-1, [], [], None)
    begin = datetime.now(UTC).replace(microsecond=0)
    folder(log, "never added", 9)
    added = log.add(folder(log, "a", 1, 2), Batch("live.x", 0))
    log.add(folder(log, "b", 3, day=date(2026, 11, 21)), Batch("live.x", 1))
    assert seqs(log) == [1, 2, 3]
    assert len(log.files()) == 2
    assert set(added) < set(log.files())
    assert log.files("date >= '2026-11-21'") == log.files("seq > 2") == sorted(set(log.files()) - set(added))
    assert log.days() == [DAY, date(2026, 11, 21)]
    written = log.written()
    assert written is not None
    assert written >= begin
    table = DeltaTable(log.path)
    assert table.metadata().description == DISCARDED.meaning
    comments = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    assert comments["letter"] == "Id of the dead letter."


def test_a_batch_is_known_by_its_job_and_number(log: DeltaLog) -> None:
    assert not log.has(Batch("live.x", 0))
    log.add(folder(log, "a", 1), Batch("live.x", 3))
    other = DeltaLog(DISCARDED, log.path)
    assert [other.has(Batch("live.x", number)) for number in (2, 3, 4)] == [True, True, False]
    assert not other.has(Batch("live.y", 0))
    assert (other.newest("live.x"), other.newest("live.y")) == (3, None)
    log.add(folder(log, "b", 2), Batch("live.y", 0))
    assert other.has(Batch("live.y", 0))


def test_two_that_write_the_same_batch_do_not_both_succeed(log: DeltaLog) -> None:
    log.add(folder(log, "a", 1), Batch("live.x", 0))
    late = log.pinned()  # has looked before the other one wrote
    log.add(folder(log, "b", 2), Batch("live.x", 1))
    with pytest.raises(CommitFailedError, match="Concurrent transaction"):
        late.add(folder(log, "c", 2), Batch("live.x", 1))
    late.add(folder(log, "d", 3), Batch("fill", 7))  # other jobs are not in the way
    assert seqs(log) == [1, 2, 3]


def test_a_folder_without_files_adds_nothing(log: DeltaLog) -> None:
    assert log.add("none", Batch("live.x", 0)) == []
    assert not log.has(Batch("live.x", 0))


def test_a_table_as_it_was_at_one_moment(log: DeltaLog) -> None:
    before = log.pinned()
    log.add(folder(log, "a", 1), Batch("live.x", 0))
    then = log.pinned()
    log.add(folder(log, "b", 2), Batch("live.x", 1))
    assert [len(each.files()) for each in (before, then, log)] == [0, 1, 2]
    assert (then.has(Batch("live.x", 1)), log.has(Batch("live.x", 1))) == (False, True)


def test_a_whole_table_is_replaced_in_one_step_by_the_last_who_writes(tmp_path: Path) -> None:
    def whole(name: str, count: int) -> str:
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"letters": [count]}), tmp_path / name / "part-0.parquet")
        return name

    log, other = DeltaLog(DEATHS, str(tmp_path)), DeltaLog(DEATHS, str(tmp_path))
    log.replace(whole("a", 1))
    assert other.version == log.version == 1
    log.replace(whole("b", 2))
    other.replace(whole("c", 3))
    assert DeltaTable(tmp_path).to_pyarrow_table()["letters"].to_pylist() == [3]
    assert log.vacuum(0) == 2
    assert DeltaTable(tmp_path).to_pyarrow_table()["letters"].to_pylist() == [3]
    for name in ("a", "b"):
        os.utime(tmp_path / name, (0, 0))  # an empty folder may be that of a write that has just begun
    log.vacuum(0)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["_delta_log", "c"]


def test_days_are_replaced_with_a_note_and_what_was_added_since_is_known(log: DeltaLog) -> None:
    days = [date(2026, 11, number) for number in (20, 21, 22)]
    for number, day in enumerate(days):
        log.add(folder(log, f"f{number}", number, day=day), Batch("live.x", number))
    version = log.version
    assert log.added(version) == []
    assert [(each.day, each.first_ms, each.last_ms) for each in log.added(version - 1)] == [(days[2], 2000, 2000)]
    assert sorted(each.day for each in log.added(None)) == days
    assert {each.path for each in log.added(None)} == {*log.files()}
    log.replace(folder(log, "again", 9, day=days[1]), days[:2], {"from": 7})
    assert seqs(log) == [2, 9]
    assert (log.newest("from"), [each.day for each in log.added(version)]) == (7, [days[1]])
    log.replace("nothing", days[2:], {"from": 8})
    assert (seqs(log), log.newest("from")) == ([9], 8)


def test_files_that_were_merged_bring_nothing_new(log: DeltaLog) -> None:
    for number in range(3):
        log.add(folder(log, f"f{number}", number), Batch("live.x", number))
    version, last = log.version, log.added(log.version - 1)
    assert log.compact(date(2026, 11, 21), 2) == (3, 1)
    assert log.version > version
    assert log.added(version) == []
    assert log.added(version - 1) == last
    log.add(folder(log, "f3", 3), Batch("live.x", 3))
    assert [each.first_ms for each in log.added(version - 1)] == [2000, 3000]
    assert log.vacuum(0) == 3
    every = [(0, 2000), (3000, 3000)]  # the file from before the merge is gone: all that count may bring something
    assert sorted((each.first_ms, each.last_ms) for each in log.added(version - 1)) == every


def test_a_log_that_does_not_reach_back_names_all_files(log: DeltaLog) -> None:
    for number in range(3):
        log.add(folder(log, f"f{number}", number), Batch("live.x", number))
    DeltaTable(log.path).create_checkpoint()
    (Path(log.path) / "_delta_log" / f"{log.version - 1:020}.json").unlink()
    assert len(log.added(log.version - 1)) == 1
    assert len(log.added(log.version - 2)) == 3


def test_small_files_of_a_day_are_merged(log: DeltaLog) -> None:
    for number in range(4):
        log.add(folder(log, f"f{number}", number), Batch("live.x", number))
    log.add(folder(log, "late", 4, day=date(2026, 11, 21)), Batch("live.x", 4))
    assert log.compact(DAY, fewest=5) == (0, 0)
    assert log.compact(DAY, fewest=4) == (4, 1)
    assert log.compact(date(2026, 11, 22), fewest=4) == (0, 0)
    log.add(folder(log, "later", 5, day=date(2026, 11, 21)), Batch("live.x", 5))
    assert log.compact(date(2026, 11, 22), fewest=4) == (2, 1)
    assert seqs(log) == [*range(6)]
    assert log.has(Batch("live.x", 5))
    assert log.vacuum(24) == 0
    assert log.vacuum(0) == 6
    assert seqs(log) == [*range(6)]


def test_a_column_that_was_added_is_null_in_older_rows(log: DeltaLog) -> None:
    log.add(folder(log, "a", 1), Batch("live.x", 0))
    more = replace(DISCARDED, columns=(*DISCARDED.columns, Column("why", "string", "A reason.", nullable=True)))
    newer = DeltaLog(more, log.path)
    newer.add(folder(log, "b", 2), Batch("live.x", 1))
    table = DeltaTable(log.path)
    assert [field.name for field in table.schema().fields][-1] == "why"
    assert table.to_pyarrow_table()["why"].to_pylist() == [None, None]
    log.add(folder(log, "c", 3), Batch("live.x", 2))  # one of an earlier version leaves it alone
    assert seqs(log) == [1, 2, 3]


def test_a_table_whose_files_cannot_be_read_alone_is_refused(log: DeltaLog) -> None:
    log.add(folder(log, "a", 1), Batch("live.x", 0))
    newer = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}}
    (Path(log.path) / "_delta_log" / f"{log.version + 1:020}.json").write_text(json.dumps(newer))
    with pytest.raises(CrewelError, match="features that are not known here"):
        log.files()


@pytest.mark.parametrize("name", ["live.5f2c.17", "fill.1790000000000"])
def test_a_batch_has_a_name(name: str) -> None:
    assert str(Batch.parse(name)) == name


@pytest.mark.parametrize("name", ["", "live", "live.", ".5", "live.x"])
def test_what_is_no_name_of_a_batch(name: str) -> None:
    assert Batch.parse(name) is None


@pytest.mark.parametrize("name", ["minutes", "fact_held", "event_settled", "latency"])
@pytest.mark.parametrize("is_older", [False, True], ids=["new", "of an earlier version"])
def test_other_programs_find_rows_by_any_column(tmp_path: Path, name: str, is_older: bool) -> None:
    """The log has bounds of whole numbers only. Without saying so, a filter by any other column would find no row."""
    table = TABLES[name]
    log = DeltaLog(table, str(tmp_path))
    if is_older:
        DeltaTable.create(tmp_path, log._schema(), partition_by=[*table.partitions])
    now = datetime.now(UTC).replace(microsecond=0)
    values = {
        "string": "a", "bigint": 1, "int": 1, "boolean": True, "double": 1.0, "timestamp": now, "date": now.date(),
        "array<bigint>": [1],
    }  # fmt: skip
    row = {column.name: values[column.type] for column in table.columns}
    schema = pa.schema([field for field in log._schema() if field.name != BATCH])
    log.write(pa.Table.from_pylist([row], schema), "a", Batch("live.x", 0))
    found = DeltaTable(tmp_path).to_pyarrow_dataset()
    for column in table.columns:
        if not column.type.startswith("array"):
            assert found.to_table(filter=pc.field(column.name) == row[column.name]).num_rows == 1, column.name


def test_a_new_table_says_which_columns_are_never_null(log: DeltaLog) -> None:
    log.create()
    fields = {field.name: field.nullable for field in DeltaTable(log.path).schema().fields}
    assert {name: fields[name] for name in ("letter", "place", "who", BATCH)} == {
        "letter": False, "place": False, "who": True, BATCH: True,
    }  # fmt: skip
    assert (log.written(), log.files()) == (None, [])
    log.create()
    assert log.version == 0
