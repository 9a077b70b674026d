"""Reads many entries with tasks of Spark. The tasks are planned here, by this process: the source has Spark start two more
processes of Python for that, which stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from crewel.pipeline.connection import Address
from crewel.pipeline.schemas import RAW
from crewel.pipeline.source.batch_reader import BatchReader
from crewel.pipeline.source.options import parsed


def many(spark: SparkSession, address: Address, options: Mapping[str, str]) -> DataFrame:
    """Return what the source would read with these options: what is there now. Raises StoreUnavailable, and SettingsError for
    a wrong option."""
    reader = BatchReader(address, parsed(options))
    tasks = reader.partitions()

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from reader.read(tasks[number])

    number = len(tasks)
    return spark.range(0, number, 1, max(number, 1)).mapInArrow(rows, RAW.struct())
