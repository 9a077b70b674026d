"""The data source `crewel-events`: the streams of the store as rows of `raw`, in batches and as a stream.

    spark.read.format("crewel-events").option("streams", "facts").load()
    spark.readStream.format("crewel-events").option("maxRows", 200000).load()

Its registration contains the address of the store. Spark does not push filters down to it: its options select the entries.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from crewel.errors import SettingsError
from crewel.pipeline.connection import Address
from crewel.pipeline.schemas import RAW
from crewel.pipeline.source.batch_reader import BatchReader
from crewel.pipeline.source.options import Options, parsed
from crewel.pipeline.source.stream import StreamReader

__all__ = ["NAME", "register"]

NAME: Final = "crewel-events"


def register(spark: SparkSession, address: Address) -> None:
    """Make the source known to a session, for one store. Another one may be registered later in its place."""

    # A class of its own for each address: Spark takes classes, and passes them on with what they hold, out of sight.
    class Registered(_CrewelEvents):
        _address = address

    spark.dataSource.register(Registered)


class _CrewelEvents(DataSource):
    _address: Address

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return RAW.struct()

    def reader(self, schema: StructType) -> BatchReader:
        options = self._parsed(schema)
        return BatchReader(self._store(options), options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        options = self._parsed(schema)
        if "dead" in options.streams:
            raise SettingsError("option streams: dead letters leave their stream, so they are read in batches only")
        return StreamReader(self._store(options), options)

    def _parsed(self, schema: StructType) -> Options:
        if schema.fieldNames() != RAW.names:
            raise SettingsError("crewel-events has a fixed schema; select columns from it")
        return parsed(self.options)

    def _store(self, options: Options) -> Address:
        return Address(self._address.url, options.prefix or self._address.prefix)
