"""Small frames for tests: rows with what matters to the test, and all else as usual."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from crewel.pipeline.schemas import TABLES

_USUAL: Mapping[str, Any] = {
    "array<string>": [],
    "array<bigint>": [],
    "bigint": 0,
    "boolean": False,
    "double": 0.0,
    "int": 0,
    "string": "",
}


def time(ms: float) -> datetime:
    """The moment so many milliseconds after 1970."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def frame(spark: SparkSession, name: str, rows: Iterable[Mapping[str, Any]] = ()) -> DataFrame:
    """Return a table. A row's `place`, or its `ms` alone, settles all columns of the place."""
    table = TABLES[name]
    return spark.createDataFrame([tuple(_whole(row, name).values()) for row in rows], table.struct())


def silver(spark: SparkSession, **rows: Iterable[Mapping[str, Any]]) -> dict[str, DataFrame]:
    """Return all tables of silver by name, those that are not given empty."""
    return {
        name: frame(spark, name, rows.get(name, ()))
        for name, table in TABLES.items()
        if table.layer in ("silver", "bronze")
    }


def told(found: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Return these columns of all rows, in their order."""
    return sorted((tuple(row) for row in found.select(*names).collect()), key=repr)


def _whole(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    place = row.get("place") or row.get("id") or f"{row.get('ms', 0)}-0"
    ms, _, seq = str(place).partition("-")
    at = time(int(ms)) if ms.isdigit() else time(0)
    places = {"place": place, "id": place, "ms": int(ms) if ms.isdigit() else 0, "seq": int(seq or 0), "at": at}
    usual = {**places, "date": at.date()}
    table = TABLES[name]
    assert row.keys() <= {*table.names}, row.keys() - {*table.names}
    return {
        each.name: row.get(
            each.name,
            usual.get(
                each.name, None if each.nullable else time(0) if each.type == "timestamp" else _USUAL.get(each.type)
            ),
        )
        for each in table.columns
    }
