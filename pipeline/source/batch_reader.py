"""Reads what the streams hold, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from crewel.pipeline.connection import Address
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.options import Options
from crewel.pipeline.source.partition_reader import Task, planned, read
from crewel.pipeline.source.positions import END, Position


class BatchReader(DataSourceReader):
    """A batch is what is there when Spark plans it. What is trimmed meanwhile leaves a row that reports the gap."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address = address
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        options = self._options
        extents = Extents(self._address, options.patience_s)
        try:
            found = extents.look(options.streams)
        finally:
            extents.close()
        tasks: list[Task] = []
        for stream, extent in found.items():
            start = Position(extent.newest if options.start == END else options.start, None)
            watched = stream != "dead"  # letters leave from the middle: that is no loss
            tasks += planned(stream, start, options.end, extent, options.partitions, watched=watched)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if not isinstance(partition, Task):
            return iter(())  # where there are no tasks, Spark makes one of its own
        return read(self._address, partition, self._options.patience_s, fails_on_loss=False)
