"""What several tables need: lengths of time in words, and what rejected messages have in common.

The latter are the messages that one receiver rejects, as far as their dead letters show it. Nothing tells the data of what was
taken, so the others that are compared are the dead letters of the same receiver: all of them have it in common.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

_LEAST: Final = 3
"""Messages: of fewer it is no surprise."""
_MOST: Final = 4
_LONGEST: Final = 40  # characters of a value
_DIGITS: Final = r"^-?\d+(\.\d+)?$"


def duration(ms: Column) -> Column:
    """Return milliseconds as a length of time for people: 20 ms, 1.5 s, 3 min, 2.1 h, as `report.plots.duration` does."""

    def words(length: int, unit: str) -> Column:
        value = f.round(ms / length, 1)
        text = f.when(value >= 100, f.format_string("%,.0f", value)).otherwise(f.format_string("%.1f", value))
        return f.concat(f.regexp_replace(text, r"\.0$", ""), f.lit(f" {unit}"))

    # What is rounded up to 60 s is 1 min.
    return (
        f.when(f.round(ms) < 1000, f.format_string("%.0f ms", ms))
        .when(f.round(ms / 1000, 1) < 60, words(1000, "s"))
        .when(f.round(ms / 60_000, 1) < 60, words(60_000, "min"))
        .otherwise(words(3_600_000, "h"))
    )


def clock(at: str) -> Column:
    """Return a time to the second, with its date."""
    return f.date_format(at, "yyyy-MM-dd HH:mm:ss")


def in_common(rejected: DataFrame) -> DataFrame:
    """Return (receiver, common) of rows of `causes`: texts such as `country CH`, `channel /orders` and `amount from 900 to
    990`, at most four. A range of numbers is named if it is narrow: its length is less than half of its greatest value."""
    known = rejected.where(f.col("body").isNotNull()).withColumn(
        "letters_known", f.count("*").over(Window.partitionBy("receiver"))
    )
    data = f.from_json(f.get_json_object("body", "$.data"), "map<string, string>")
    about = f.map_from_arrays(
        f.array(*(f.lit(name) for name in ("channel", "code", "sender", "shape", "bytes"))),
        f.array(
            "channel",
            f.when(f.size("codes") == 1, f.col("codes")[0]),
            "sender",
            "shape",
            f.length("body").cast("string"),
        ),
    )
    fields = known.select(
        "receiver", "letters_known", f.explode(f.map_entries(about)).alias("field"), f.lit(1).alias("rank")
    ).unionByName(
        known.select("receiver", "letters_known", f.explode(f.map_entries(data)).alias("field"), f.lit(0).alias("rank"))
    )
    number = f.when(f.col("field.value").rlike(_DIGITS), f.col("field.value").cast("double"))
    found = (
        fields.where(
            (f.col("letters_known") >= _LEAST) & f.col("field.value").isNotNull() & (f.col("field.value") != "")
        )
        .groupBy("receiver", "letters_known", "rank", f.col("field.key").alias("name"))
        .agg(
            f.count("*").alias("have"),
            f.min("field.value").alias("value"),
            f.min("field.value").eqNullSafe(f.max("field.value")).alias("is_one"),
            f.count(number).alias("numbers"),
            f.min(number).alias("least"),
            f.max(number).alias("most"),
        )
        .where(f.col("have") == f.col("letters_known"))
    )
    is_narrow = (f.col("numbers") == f.col("have")) & (f.col("most") - f.col("least") < f.abs("most") / 2)
    is_long = f.length("value") > _LONGEST
    short = f.when(is_long, f.concat(f.substring("value", 1, _LONGEST - 1), f.lit("…"))).otherwise(f.col("value"))
    words = f.when(f.col("is_one"), f.concat("name", f.lit(" "), short)).when(
        is_narrow,
        f.concat(
            "name",
            f.lit(" from "),
            f.regexp_replace(f.col("least").cast("string"), r"\.0$", ""),
            f.lit(" to "),
            f.regexp_replace(f.col("most").cast("string"), r"\.0$", ""),
        ),
    )
    told = found.withColumn("words", words).where(f.col("words").isNotNull())
    ordered = f.array_sort(f.collect_list(f.struct("rank", "name", "words")))
    return told.groupBy("receiver").agg(
        f.transform(f.slice(ordered, 1, _MOST), lambda each: each["words"]).alias("common")
    )
