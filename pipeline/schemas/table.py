"""What a table is: its columns as data, and the shapes that Spark and people want of them.

Types are Spark's own names. PySpark is imported only where its objects are made, so that the tables can be read without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


BATCH: Final = "batch"
"""Name of the column that jobs add to the tables that they append to: which batch the row came with."""


class Layer(StrEnum):
    """How far the content of a table is from what the store holds."""

    BRONZE = "bronze"
    """As it was read."""
    SILVER = "silver"
    """Typed, one row a fact or event."""
    GOLD = "gold"
    """Answers."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `unit` is what a number counts; a column that is not `nullable` always has a value."""

    name: str
    type: str
    meaning: str
    unit: str = ""
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table. It lies under `<layer>/<name>/v<version>`; another version is another table."""

    layer: Layer
    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns that no two rows share; `batch` may be among them."""
    partitions: tuple[str, ...] = ("date",)
    """The columns that name the directories; of a table that is rewritten as a whole, none."""
    is_derived: bool = False
    """Whether it is computed from other tables as a whole, and not appended to."""
    version: int = 1

    @property
    def path(self) -> str:
        """Where it lies, below the directory of all tables."""
        return f"{self.layer}/{self.name}/v{self.version}"

    @property
    def names(self) -> list[str]:
        """The names of the columns, for a `select`."""
        return [column.name for column in self.columns]

    @property
    def ddl(self) -> str:
        """The columns in SQL: "`id` STRING NOT NULL, ..."."""
        return ", ".join(
            f"`{column.name}` {column.type.upper()}{'' if column.nullable else ' NOT NULL'}" for column in self.columns
        )

    def struct(self, *, strict: bool = False) -> StructType:
        """Return the columns as Spark's type. Files and streams do not promise what is never null: only with `strict` it
        asks for it."""
        from pyspark.sql.types import StructField, StructType

        return StructType(
            [
                StructField(column.name, _spark_type(column.type), column.nullable or not strict)
                for column in self.columns
            ]
        )

    def column(self, name: str) -> Column:
        """Return one column. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


def _spark_type(name: str) -> DataType:
    """Return the type of this name; unlike Spark's parser it needs no session."""
    from pyspark.sql import types

    if name.startswith("array<"):
        return types.ArrayType(_spark_type(name.removeprefix("array<").removesuffix(">")))
    return {
        "bigint": types.LongType,
        "boolean": types.BooleanType,
        "date": types.DateType,
        "double": types.DoubleType,
        "int": types.IntegerType,
        "string": types.StringType,
        "timestamp": types.TimestampType,
    }[name]()


def unique(tables: Iterable[Table]) -> dict[str, Table]:
    """Return the tables by their names. Raises ValueError if two have the same, or a key names no column."""
    found: dict[str, Table] = {}
    for table in tables:
        if table.name in found or not {*table.key, *table.partitions} <= {*table.names, BATCH}:
            raise ValueError(table.name)
        found[table.name] = table
    return found
