"""Dead letters, typed: each is a message that one receiver will not get unless someone sends it again."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from crewel.pipeline.schemas import PLACE, TABLES
from crewel.pipeline.source.arrow import SHAPE

_LETTERS: Final = TABLES["letters"]


def letters(raw: DataFrame) -> DataFrame:
    """Return the letters of `raw`. What a letter says nothing of is empty or 0; one that is too long or no JSON is left out."""
    texts = f.from_json("payload", "map<string, string>")

    def text(name: str) -> Column:
        return f.coalesce(f.col("d").getItem(name), f.lit(""))

    def number(name: str, kind: str) -> Column:
        return f.coalesce(f.expr(f"try_cast(d['{name}'] AS {kind})"), f.lit(0).cast(kind))

    # A restored one has another place, and keeps the one that it had first.
    died_ms = f.expr("try_cast(split_part(d['u'], '-', 1) AS bigint)")

    return (
        raw.where((f.col("key") == "dead") & f.col("is_whole"))
        .select(f.col("id").alias("place"), *(f.col(column.name) for column in PLACE[1:]), texts.alias("d"))
        .where(f.col("d").isNotNull())
        .select(
            *(column.name for column in PLACE),
            text("id").alias("message_id"),
            number("received", "bigint").alias("received_ns"),
            text("receiver").alias("receiver"),
            text("channel").alias("channel"),
            text("code").alias("code"),
            text("reason").alias("reason"),
            number("attempts", "int").alias("attempts"),
            number("n", "int").alias("returns"),
            text("sender").alias("sender"),
            text("qos").alias("qos"),
            text("body").alias("body"),
            text(SHAPE).alias("shape"),
            (text("p") == "1").alias("is_persistent"),
            text("r").alias("redrive_of"),
            f.col("d").getItem("g").alias("code_given"),
            f.timestamp_millis(f.coalesce(died_ms, "ms")).alias("died"),
        )
        .select(*_LETTERS.names)
    )
