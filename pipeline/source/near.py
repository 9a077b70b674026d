"""Reads few entries in this process, as the source would: without a plan, a task and a process of Python of its own, which take
seconds to start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from crewel.pipeline.connection import Address
from crewel.pipeline.source.arrow import SCHEMA
from crewel.pipeline.source.batch_reader import BatchReader
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.options import Options, parsed
from crewel.pipeline.source.positions import BEGIN, END

MOST_ENTRIES: Final = 20_000
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of all columns, in memory."""


def few(address: Address, options: Mapping[str, str]) -> pa.Table | None:
    """Return what the source would with these options; None if it is more than a few entries. Raises StoreUnavailable, and
    SettingsError for a wrong option."""
    wanted = parsed(options)
    if wanted.start == BEGIN and wanted.end == END and _number(address, wanted) > MOST_ENTRIES:
        return None
    reader = BatchReader(address, wanted)
    batches: list[pa.RecordBatch] = []
    entries = size = 0
    for task in reader.partitions():
        for batch in reader.read(task):
            entries, size = entries + batch.num_rows, size + batch.nbytes
            if entries > MOST_ENTRIES or size > MOST_BYTES:
                return None
            batches.append(batch)
    return pa.Table.from_batches(batches, SCHEMA)


def _number(address: Address, wanted: Options) -> int:
    """How many entries there are, which the store knows without a look at them."""
    extents = Extents(address, wanted.patience_s)
    try:
        return sum(each.length for each in extents.look(wanted.streams).values())
    finally:
        extents.close()
