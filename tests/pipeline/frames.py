"""Small frames for tests: rows with what matters to the test, and all else as usual."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from crewel.pipeline.lazy_mapping import LazyMapping
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.tables import empty

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


def of_rows(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: StructType | str) -> DataFrame:
    """Return rows as a frame. By way of Arrow Spark has them in its plan, without a worker in Python that hands them over."""
    struct = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    columns = to_arrow_schema(struct, timezone="UTC")
    found = [dict(zip(columns.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(found, columns), struct)


def frame(spark: SparkSession, name: str, rows: Iterable[Mapping[str, Any]] = ()) -> DataFrame:
    """Return a table. A row's `place`, or its `ms` alone, settles all columns of the place."""
    table = TABLES[name]
    whole = [tuple(_whole(row, name).values()) for row in rows]
    return of_rows(spark, whole, table.struct()) if whole else empty(spark, table)


def silver(spark: SparkSession, **rows: Iterable[Mapping[str, Any]]) -> Mapping[str, DataFrame]:
    """Return all tables of silver by name, those that are not given empty."""
    return LazyMapping(
        {
            name: partial(frame, spark, name, rows.get(name, ()))
            for name, table in TABLES.items()
            if table.layer in ("silver", "bronze")
        }
    )


def told(found: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Return these columns of all rows, in their order."""
    return sorted((tuple(row) for row in found.select(*names).collect()), key=repr)


def with_rows(tables: Mapping[str, DataFrame]) -> set[str]:
    """Return the names of the tables that have rows, by one job of Spark for all."""
    found = reduce(DataFrame.union, (rows.select(f.lit(name)) for name, rows in tables.items()))
    return {row[0] for row in found.distinct().collect()}


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
