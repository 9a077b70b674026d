"""The holdback watch as a query beside the live job: receivers that are on hold for too long are reported to the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from crewel.pipeline.connection import Address, patiently
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.source import NAME
from crewel.pipeline.steps import run
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations import holdbacks, silver

VERSION: Final = 1
"""Version of the checkpoint, which holds what the watch remembers."""

_LOOKS_A_LIMIT: Final = 10
_RAREST_S: Final = 60.0
_OFTENEST_S: Final = 1.0
"""How often timers are looked at, each time at about the cost of a batch: an alert is late by a tenth of the limit, or
a second."""

_PORTION: Final = 10_000
"""Words of one command to the store, which does nothing else meanwhile: two for each session."""
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_HOLDBACKS: Final = TABLES["holdbacks"]


def start(spark: SparkSession, tables: Tables, address: Address, limit_s: float) -> StreamingQuery:
    """Start the watch. An alert is a field of the hash `alerts`, under the name of the session, and a row of `holdbacks`."""
    source = spark.readStream.format(NAME).option("prefix", address.prefix).option("streams", "facts")
    raw = source.option("failOnDataLoss", "false").option("maxRows", 500_000).option("partitions", 2).load()
    made = silver.facts(raw)
    found = holdbacks.steps(made["fact_held"], made["fact_released"], made["fact_sessions"])
    usual = spark.conf.get(_PARTITIONS)
    # Few sessions are held at a time, and each partition has files and a process of its own.
    spark.conf.set(_PARTITIONS, "1")
    try:
        query = (
            holdbacks.watch(found, round(limit_s * 1000))
            .writeStream.queryName("crewel-holdbacks")
            .option("checkpointLocation", tables.checkpoint("holdbacks", VERSION))
            .outputMode("append")
            .trigger(processingTime=f"{round(_pause_s(limit_s) * 1000)} milliseconds")
            .foreachBatch(lambda raised, _: _tell(tables, address, raised))
            .start()
        )
    finally:
        spark.conf.set(_PARTITIONS, usual or "4")
    return query


def end(address: Address, released: Mapping[str, int]) -> None:
    """Take away the alerts of sessions that were released at these milliseconds. The alert of a later holdback stays: the watch
    may be ahead of the live job. Repeated, it changes nothing. Raises StoreUnavailable."""
    words = [word for each in released.items() for word in each]
    _in_portions(address, words, lambda client, portion: run(client, "released", [address.keys.alerts], portion))


def _pause_s(limit_s: float) -> float:
    return min(max(limit_s / _LOOKS_A_LIMIT, _OFTENEST_S), _RAREST_S)


def _tell(tables: Tables, address: Address, raised: DataFrame) -> None:
    """Write down the alerts of a batch, and tell the server. A batch that is repeated finds its rows there already, and tells
    the same again: the server shows only alerts of receivers that are still on hold."""
    told = raised.select(
        "*", f.unix_millis("since").alias("since_ms"), f.unix_millis("raised").alias("raised_ms")
    ).collect()
    if not told:
        return
    rows = [tuple(row[name] for name in _HOLDBACKS.names) for row in told]
    new = raised.sparkSession.createDataFrame(rows, _HOLDBACKS.struct())
    known = tables.read(_HOLDBACKS)
    tables.replace(_HOLDBACKS, known.unionByName(new).dropDuplicates([*_HOLDBACKS.key]))
    words = [word for row in told for word in (row["session"], _alert(row))]
    _in_portions(address, words, lambda client, portion: client.execute_command("HSET", address.keys.alerts, *portion))


def _alert(row: Row) -> bytes:
    return orjson.dumps(
        {
            "session": row["session"],
            "since": row["since_ms"],
            "raised": row["raised_ms"],
            "held_ms": row["held_ms"],
            "code": row["code"],
            "who": row["who"],
            "reason": row["reason"],
        }
    )


def _in_portions(address: Address, words: Sequence[Any], ask: Callable[[Any, Sequence[Any]], object]) -> None:
    """Ask the store once for each portion of the words. Raises StoreUnavailable."""

    def step(portion: Sequence[Any]) -> None:
        with address.client() as client:  # a client of its own looks for the primary again
            ask(client, portion)

    for first in range(0, len(words), _PORTION):
        patiently(partial(step, words[first : first + _PORTION]))
