"""Answers a query in SQL. All tables are there by their names, with what the store has beyond them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from crewel.errors import CrewelError
from crewel.pipeline.connection import Address
from crewel.pipeline.jobs.batches import Progress, quiet
from crewel.pipeline.jobs.inputs import Inputs, gather
from crewel.pipeline.output import in_one_line
from crewel.pipeline.schemas import RAW, TABLES, Layer
from crewel.pipeline.tables import Tables

_WORD: Final = re.compile(r"\w+")


class BadQuery(CrewelError):
    """A query that Spark does not understand, or that names what there is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the job is asked for."""

    address: Address
    directory: Path | str
    sql: str
    limit: int = 1000
    """Most rows of the answer."""
    from_store: bool = True
    """Whether to read what the store has beyond the tables."""


@dataclass(frozen=True, slots=True)
class Result:
    """The answer."""

    columns: list[str]
    rows: list[list[Any]]
    is_cut: bool
    """Whether there are more rows than were asked for."""


def run(spark: SparkSession, options: Options, progress: Progress = quiet) -> Result:
    """Do the job. Raises CrewelError; BadQuery for what is wrong with the query itself."""
    inputs: Inputs | None = None
    tables = Tables(spark, options.directory)
    named = {*_WORD.findall(options.sql.lower())} & TABLES.keys() or {*TABLES}  # SHOW TABLES names none, and means all
    try:
        if options.from_store and any(TABLES[name].layer is not Layer.GOLD for name in named):
            progress("reading")
            inputs = gather(spark, tables, options.address)
        for name in named:
            _frame(tables, inputs, name).createOrReplaceTempView(name)
        progress("asking")
        found = _asked(lambda: spark.sql(options.sql))
        rows = _asked(lambda: found.limit(options.limit + 1).collect())
    finally:
        for name in named:
            spark.catalog.dropTempView(name)
        if inputs is not None:
            inputs.forget()
    shown = [[*_value(row, found.schema)] for row in rows[: options.limit]]
    return Result(found.columns, shown, len(rows) > options.limit)


def _value(value: Any, type_: DataType) -> Any:
    """Return a value of the answer; moments in UTC, which Spark gives by the clock on this machine's wall."""
    if value is None:
        return None
    match type_:
        case TimestampType():
            return value.astimezone(UTC)
        case ArrayType():
            return [_value(each, type_.elementType) for each in value]
        case MapType():
            return {_value(key, type_.keyType): _value(each, type_.valueType) for key, each in value.items()}
        case StructType():
            kinds = (each.dataType for each in type_.fields)
            return Row(*type_.names)(*map(_value, value, kinds))
    return value


def _frame(tables: Tables, inputs: Inputs | None, name: str) -> DataFrame:
    if inputs is None or TABLES[name].layer is Layer.GOLD:
        return tables.read(TABLES[name])
    return inputs.raw if name == RAW.name else inputs.silver[name]


def _asked(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except (AnalysisException, ParseException) as error:
        raise BadQuery(f"the query: {in_one_line(error)}") from None
