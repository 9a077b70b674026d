"""Reads what the streams hold and what comes, batch by batch.

A batch takes all streams up to the same instant: they are looked at together, and one that is cut because a batch may not be
larger cuts the others at the same id. So no watermark runs ahead of a stream that lags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from crewel.pipeline.connection import Address
from crewel.pipeline.source.extents import Extents
from crewel.pipeline.source.losses import EntriesLost, gap_between
from crewel.pipeline.source.options import Options
from crewel.pipeline.source.partition_reader import Task, planned, read
from crewel.pipeline.source.positions import (
    BEGIN,
    END,
    EntryId,
    Extent,
    Offset,
    Position,
    offset_of,
    positions_of,
    shares,
)

_BEFORE_ALL: Final = Position(BEGIN, None)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are positions: what was read last of each stream, and how many entries there had been ever."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address = address
        self._options = options
        self._extents = Extents(address, options.patience_s)
        self._target: dict[str, Position] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a stream without a checkpoint begins."""
        found = self._extents.look(self._options.streams)
        start = self._options.start
        return offset_of(
            {
                stream: extent.end
                if start == END
                else self._extents.counted(stream, Position(min(start, extent.newest), None), extent)
                for stream, extent in found.items()
            }
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch takes at most."""
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what is there now: the last batch ends with it."""
        self._target = {stream: extent.end for stream, extent in self._extents.look(self._options.streams).items()}

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Offset:  # noqa: N802
        """Return up to where the next batch goes; `start` itself if there is nothing new."""
        streams = self._options.streams
        found = self._extents.look(streams)
        starts = {
            stream: self._extents.counted(stream, position, found[stream])
            for stream, position in positions_of(start, streams, _BEFORE_ALL).items()
        }
        ends = {stream: extent.end for stream, extent in found.items()} if self._target is None else self._target
        ends = {stream: end if end.id > starts[stream].id else starts[stream] for stream, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = self._cut(starts, ends, found, limit.max_rows)
        # Only an offset that is the same, letter by letter, says that there is nothing to do.
        told = offset_of(ends)
        return {
            **start,
            **{
                stream: each
                for stream, each in told.items()
                if ends[stream].id > starts[stream].id or stream not in start
            },
        }

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return how far the streams go, for those that watch the query."""
        return offset_of({stream: extent.end for stream, extent in self._extents.look(self._options.streams).items()})

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch, also when it is repeated. Raises EntriesLost."""
        streams = [stream for stream in self._options.streams if stream in end]
        found = self._extents.look(streams)
        ends = positions_of(end, streams, _BEFORE_ALL)
        tasks: list[Task] = []
        for stream, begin in positions_of(start, streams, _BEFORE_ALL).items():
            extent = found[stream]
            gap = gap_between(stream, begin, ends[stream], extent)
            if gap is not None and self._options.fails_on_loss:
                raise EntriesLost(gap)
            tasks += [Task(gap)] if gap is not None else []
            tasks += planned(stream, begin, ends[stream].id, extent, self._options.partitions, watched=True)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        assert isinstance(partition, Task)
        options = self._options
        return read(self._address, partition, options.patience_s, fails_on_loss=options.fails_on_loss)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Note how far the job is, if it is the one whose positions count. It may lag by a batch, and never runs ahead."""
        if self._options.notes_positions:
            self._extents.note(
                self._address.keys.positions, {stream: orjson.dumps(told) for stream, told in end.items()}
            )

    def stop(self) -> None:
        """Let go of the connection."""
        self._extents.close()

    def __getstate__(self) -> dict[str, Any]:
        # Tasks take the reader along; a connection stays here.
        return {**self.__dict__, "_extents": Extents(self._address, self._options.patience_s)}

    def _cut(
        self, starts: Mapping[str, Position], ends: Mapping[str, Position], found: Mapping[str, Extent], most: int
    ) -> dict[str, Position]:
        """Return the ends of a batch of at most `most` entries, or of one entry a stream. All streams stop at one id."""
        available = {
            stream: found[stream].between(starts[stream], end)
            for stream, end in ends.items()
            if end.id > starts[stream].id
        }
        if not available or (None not in available.values() and sum(filter(None, available.values())) <= most):
            return dict(ends)
        cuts = {
            stream: self._after(stream, starts[stream], found[stream], ends[stream].id, share.entries)
            for stream, share in shares(available, most).items()
            if not share.is_all
        }
        cut = min((each.id for each in cuts.values()), default=END)
        ends = {**ends, **cuts}
        return {
            stream: end if end.id <= cut else self._after(stream, starts[stream], found[stream], cut)
            for stream, end in ends.items()
        }

    def _after(self, stream: str, start: Position, extent: Extent, until: EntryId, most: int | None = None) -> Position:
        """Return the position of the last entry up to an id, or of the last of so many."""
        last, passed = self._extents.walk(stream, start.id, until, most)
        if not passed:
            return start
        if extent.between(start, extent.end) is None:
            return self._extents.counted(stream, Position(last, None), extent)
        return Position(last, max(start.count or 0, extent.trimmed) + passed)
