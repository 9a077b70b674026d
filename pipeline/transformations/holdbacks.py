"""The holdback watch: receivers that have been on hold for longer than a limit.

State is kept for each session that is held, and a timer wakes it when the limit has ended, whether or not anything comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from crewel.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

HELD: Final = "since_ms BIGINT, code STRING, who STRING, reason STRING"
"""What is remembered of a session that is held; the whole of it at its first fact, and nothing once it is released."""

_STATE: Final = "held"


def steps(held: DataFrame, released: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return what begins holdbacks and, without `since_ms`, ends them: (session, ms, seq, since_ms, code, who, reason)."""
    found = held.select("session", "ms", "seq", f.unix_millis("since").alias("since_ms"), "code", "who", "reason")
    nothing = [f.lit(None).cast(kind).alias(name) for name, kind in (part.split() for part in HELD.split(", "))]
    over = (released, sessions.where(f.col("what") == "closed"))
    for each in over:
        found = found.unionByName(each.select("session", "ms", "seq", *nothing))
    return found.select("session", "ms", "seq", "since_ms", "code", "who", "reason")


def watch(found: DataFrame, limit_ms: int) -> DataFrame:
    """Return the table `holdbacks` as a stream, a row when a holdback is longer than the limit; from the stream of `steps`."""
    raised: DataFrame = found.groupBy("session").transformWithState(
        statefulProcessor=Watch(limit_ms),
        outputStructType=TABLES["holdbacks"].struct(),
        outputMode="append",
        timeMode="processingTime",
    )
    return raised.select(TABLES["holdbacks"].names)


class Watch(StatefulProcessor):
    """One session: held since, and alarmed when the limit has ended. A holdback raises one alert."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take hold of the state."""
        self._handle = handle
        self._held = handle.getValueState(_STATE, HELD)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Note what has begun and what has ended. Rows of one trigger come in any order."""
        for row in sorted(rows, key=lambda each: (each["ms"], each["seq"])):
            if row["since_ms"] is None:
                self._forget()
            elif not self._held.exists():
                self._held.update((row["since_ms"], row["code"], row["who"], row["reason"]))
                now = timerValues.getCurrentProcessingTimeInMs()
                self._handle.registerTimer(max(row["since_ms"] + self._limit_ms, now + 1))
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """Raise the alert."""
        held = self._held.get()
        if held is not None:
            since_ms, code, who, reason = held
            now = timerValues.getCurrentProcessingTimeInMs()
            yield Row(
                session=key[0],
                since=_time(since_ms),
                raised=_time(now),
                held_ms=now - since_ms,
                code=code,
                who=who,
                reason=reason,
            )

    def close(self) -> None:
        """Nothing is open."""

    def _forget(self) -> None:
        self._held.clear()
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
