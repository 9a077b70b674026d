"""Settings of Spark for few rows: they are read by what is there, sooner than a program for them is made and compiled, and a
plan that is made once costs less than one that each of its parts changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession

MOST: Final = 50_000
"""So many entries are few."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # What follows from the conditions of a plan is looked for in each of its parts, and spares a few rows at most.
    "spark.sql.constraintPropagation.enabled": "false",
}


@contextmanager
def tuned(spark: SparkSession, *, is_few: bool = True) -> Iterator[None]:
    """Let what is asked of a session meanwhile be done as is best for few rows, if they are few."""
    if not is_few:
        yield
        return
    conf = spark.conf
    before = {name: conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name, usual in before.items():
            if usual is None:
                conf.unset(name)
            else:
                conf.set(name, usual)


def keep(frame: DataFrame) -> DataFrame:
    """Return a frame that is computed once, however often it is used: Spark keeps the plan of one that is only persisted, and
    looks through it again for each that is made of it. Of a frame without rows it knows that, and leaves out what would be
    done with them."""
    kept = frame.localCheckpoint()
    return kept.where("false") if kept.isEmpty() else kept
