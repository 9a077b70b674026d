"""Settings of Spark for few rows: they are read by what is there, sooner than a program for them is made and compiled, and a
plan that is made once costs less than one that each of its parts changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

MOST: Final = 50_000
"""So many entries are few."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
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
