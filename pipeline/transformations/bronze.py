"""Bronze: entries as they were read, each once."""

from __future__ import annotations

from pyspark.sql import DataFrame

from crewel.pipeline.schemas import RAW

ORDER = ("key", "t", "ms", "seq")
"""How the rows of a file lie. Files of Parquet tell the least and the largest value of each page, so that who asks for one type
reads little else."""


def arranged(raw: DataFrame) -> DataFrame:
    """Return entries in the order in which they are kept."""
    return raw.select(*RAW.names).sortWithinPartitions(*ORDER)


def missing(raw: DataFrame, known: DataFrame) -> DataFrame:
    """Return the entries that are not known yet."""
    return raw.join(known.select("key", "id"), ["key", "id"], "left_anti").select(*RAW.names)
