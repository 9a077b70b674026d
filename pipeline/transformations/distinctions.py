"""What tells the messages that a receiver rejected from those that it took: first the time, then one field or value.

Of every message the facts tell who took it when, and on which channel. The data of a message that was taken is known only if
another receiver rejected it, and its shape and sender also if the server sampled it. Such messages are what is compared with. A
receiver that rejects by the value of a field shows messages with that value only, so for a field in which all that it shows are
alike it is no witness. Messages are compared with those of their own channel. Without enough of them, nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crewel.pipeline.transformations.changes import Keep
from crewel.pipeline.transformations.common import stretch
from crewel.pipeline.transformations.expected import stored


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on a difference is no accident, also if many fields are looked at."""

    messages: int = 3
    """Fewer rejected messages have nothing in common."""
    known: int = 5
    """At least so many that it took are compared with."""
    difference: float = 0.5
    """Between the two rates."""
    deviations: float = 4.0
    """How many standard deviations the difference is, if both were drawn from the same messages."""
    runs: int = 3
    """More stretches of time explain nothing."""
    run_share: float = 0.25
    """How many of the rejected messages such stretches hold together."""
    chance: float = 0.01
    """How likely a run of rejections as long as this may be, if they were spread evenly."""
    shown: int = 1000
    """So many dead letters of a receiver on a channel are compared with; of more, some are drawn."""


LIMITS: Final = Limits()
_LONGEST, _LONGEST_SHAPE = 40, 120  # characters of a value
_FIELDS: Final = "array<struct<rank: int, name: string, value: string>>"
_DIGITS: Final = r"^-?\d+(\.\d+)?$"
_FIELD, _CHANNEL, _ABOUT, _SIZE = range(4)
"""What is named first of two that differ alike."""
_WHOLE: Final = 0.95


def distinctions(
    rejected: DataFrame, caused: DataFrame, silver: Mapping[str, DataFrame], keep: Keep, limits: Limits = LIMITS
) -> DataFrame:
    """Return (receiver, common): texts, two at most, such as `everything from 2026-11-20 04:50:10 to 04:50:40` and `country IT
    in 100 % of them, in 2 % of 40 others that it took`. `rejected` are rows of `caused`, which are those of `causes`, and
    `silver` has in `fact_ended` what was taken in the same time."""
    ended = silver["fact_ended"].where(f.col("reason") == "settled")
    took = ended.join(f.broadcast(rejected.select("receiver").distinct()), "receiver", "left_semi")
    took = keep(took.select("receiver", "log_id", "at").dropDuplicates(["receiver", "log_id"]))
    runs = keep(_runs(rejected, took, limits))
    times = (
        runs.groupBy("receiver")
        .agg(
            (f.sum("number") / f.max("rejected")).alias("share"),
            f.array_join(_in_order("begin"), " and ").alias("when"),
        )
        .where(f.col("share") >= limits.run_share)
    )
    told = runs.join(times, "receiver", "left_semi").select(f.col("receiver").alias("of"), "first_id", "last_id")
    of_it = (f.col("receiver") == f.col("of")) & f.col("log_id").between(f.col("first_id"), f.col("last_id"))
    rest = rejected.join(f.broadcast(told), of_it, "left_anti")
    part = f.format_string("%.0f %% of them: ", f.col("share") * 100)
    is_whole = f.col("share") >= _WHOLE
    moments = times.select(
        "receiver",
        f.lit(0).alias("rank"),
        f.concat(f.when(is_whole, "").otherwise(part), f.lit("everything "), "when").alias("words"),
    )
    fields = keep(_rejected_fields(rest, limits))
    others = _witnessed(caused, took, silver, limits).unionByName(_taken_channels(took, silver))
    values = _differing(fields, others, limits).select("receiver", f.lit(1).alias("rank"), "words")
    return moments.unionByName(values).groupBy("receiver").agg(_in_order("rank").alias("common"))


def _in_order(by: str) -> Column:
    return f.transform(f.array_sort(f.collect_list(f.struct(by, "words"))), lambda each: each["words"])


def _runs(rejected: DataFrame, took: DataFrame, limits: Limits) -> DataFrame:
    """Return (receiver, number, begin, end, first_id, last_id, rejected, words) of the stretches in which a receiver rejected
    everything, at most three of a receiver, each too long to be an accident."""
    answers = took.select("receiver", "log_id", "at", f.lit(False).alias("is_rejected")).unionByName(
        rejected.where(f.col("log_id").isNotNull()).select(
            "receiver", "log_id", f.col("last_at").alias("at"), f.lit(True).alias("is_rejected")
        )
    )
    # In the order of the log: what a receiver takes is recorded a little later than what it rejects.
    in_order = (
        Window.partitionBy("receiver").orderBy("log_id").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    receiver = Window.partitionBy("receiver")
    rate = f.col("rejected") / f.col("answered")
    is_no_accident = f.col("number") * f.log(rate) + f.log("answered") < f.log(f.lit(limits.chance))
    return (
        answers.withColumn("run", f.count_if(~f.col("is_rejected")).over(in_order))
        .withColumn("answered", f.count("*").over(receiver))
        .withColumn("rejected", f.count_if("is_rejected").over(receiver))
        .where("is_rejected")
        .groupBy("receiver", "run", "answered", "rejected")
        .agg(
            f.count("*").alias("number"),
            f.min("at").alias("begin"),
            f.max("at").alias("end"),
            f.min("log_id").alias("first_id"),
            f.max("log_id").alias("last_id"),
        )
        .where((f.col("number") >= limits.messages) & is_no_accident)
        .withColumn("runs", f.count("*").over(receiver))
        .where(f.col("runs") <= limits.runs)
        .withColumn("words", stretch("begin", "end"))
    )


def _differing(fields: DataFrame, others: DataFrame, limits: Limits) -> DataFrame:
    """Return (receiver, words) of the field or value in which rejected messages differ most from `others`, which were taken."""
    wanted = _candidates(fields)
    is_alike = (
        f.when(f.col("is_range"), _number("value").between(f.col("least"), f.col("most")))
        .when(f.col("wanted").isNull(), f.lit(True))
        .otherwise(f.col("value") == f.col("wanted"))
    )
    compared = (
        wanted.join(others, ["receiver", "within", "name"])
        .groupBy(*wanted.columns, "known")
        .agg(f.sum(f.when(is_alike, f.col("weight")).otherwise(0)).alias("alike"))
        .where(f.col("known") >= limits.known)
        .withColumn("rate", f.col("have") / f.col("of"))
        .withColumn("other_rate", f.col("alike") / f.col("known"))
    )
    difference = f.col("rate") - f.col("other_rate")
    together = (f.col("have") + f.col("alike")) / (f.col("of") + f.col("known"))
    deviation = f.sqrt(together * (1 - together) * (1 / f.col("of") + 1 / f.col("known")))
    is_clear = (difference >= limits.difference) & (difference >= limits.deviations * deviation)
    order = (f.desc("difference"), "rank", f.desc_nulls_last("wanted"), "is_range", "name")
    rates = f.format_string(
        " in %.0f %% of them, in %.0f %% of %d others that it took",
        f.col("rate") * 100,
        f.col("other_rate") * 100,
        f.col("known"),
    )
    return (
        compared.withColumn("difference", difference)
        .where(is_clear)
        .withColumn("place", f.row_number().over(Window.partitionBy("receiver").orderBy(*order)))
        .where("place = 1")
        .select("receiver", f.concat(_named(), rates).alias("words"))
    )


def _rejected_fields(rest: DataFrame, limits: Limits) -> DataFrame:
    """Return (receiver, within, of, rank, name, value): what each rejected message has, and of how many of the receiver within
    its channel it is one; the channel itself is within nothing."""
    known = rest.where(f.col("body").isNotNull()).withColumn("of", _number_of("receiver", "channel"))
    fields = known.select("receiver", f.col("channel").alias("within"), "of", f.explode(_of_body()).alias("field"))
    channel = _field(_CHANNEL, "channel", f.col("channel")).alias("field")
    channels = rest.select("receiver", f.lit("").alias("within"), _number_of("receiver").alias("of"), channel)
    rows = fields.unionByName(channels).select("receiver", "within", "of", "field.*")
    return rows.where((f.col("of") >= limits.messages) & _is_told())


def _number_of(*columns: str) -> Column:
    return f.count("*").over(Window.partitionBy(*columns))


def _candidates(fields: DataFrame) -> DataFrame:
    """Return what most of the rejected messages have alike: a value, a narrow range of numbers, or a field at all; as
    (receiver, within, of, rank, name, wanted, is_range, least, most, have)."""
    is_most = f.col("have") * 2 >= f.col("of")
    one = ["receiver", "within", "of", "rank", "name"]
    nothing = f.lit(None).cast("double")
    no_range = f.lit(False).alias("is_range"), nothing.alias("least"), nothing.alias("most")
    values = fields.groupBy(*one, f.col("value").alias("wanted")).agg(f.count("*").alias("have")).where(is_most)
    by_name = fields.groupBy(*one).agg(f.count("*").alias("have"), *_spread())
    ranges = by_name.where((f.col("have") == f.col("of")) & _is_narrow() & (f.col("least") < f.col("most")))
    there = by_name.where(is_most & (f.col("rank") == _FIELD))
    no_value = f.lit(None).cast("string").alias("wanted")
    return (
        values.select(*one, "wanted", *no_range, "have")
        .unionByName(ranges.select(*one, no_value, f.lit(True).alias("is_range"), "least", "most", "have"))
        .unionByName(there.select(*one, no_value, *no_range, "have"))
    )


def _witnessed(caused: DataFrame, took: DataFrame, silver: Mapping[str, DataFrame], limits: Limits) -> DataFrame:
    """Return (receiver, within, name, value, weight, known): how many messages of a channel, of which more is known than that,
    a receiver took with this value, and how many in all from witnesses of the field."""
    # Dead letters may be without number, and each is compared with all that took it. Which ones are drawn says nothing of them.
    drawn = Window.partitionBy("channel", "receiver").orderBy(f.xxhash64("log_id"), "log_id")
    letters = (
        caused.where(f.col("body").isNotNull() & f.col("log_id").isNotNull())
        .withColumn("place", f.row_number().over(drawn))
        .where(f.col("place") <= limits.shown)
        .select("log_id", "channel", f.col("receiver").alias("witness"), _of_body().alias("fields"))
    )
    samples = silver["event_shape"].select(
        "log_id", "channel", f.lit("").alias("witness"), f.array(*_of_sample()).alias("fields")
    )
    messages = took.select("receiver", "log_id").join(letters.unionByName(samples), "log_id")
    witness = ["receiver", "channel", "witness"]
    fields = (
        messages.withColumn("shown", f.count("*").over(Window.partitionBy(*witness)))
        .select(*witness, "shown", f.explode("fields").alias("field"))
        .select(*witness, "shown", "field.name", "field.value")
        .where(_is_told())
    )
    of_witness = fields.groupBy(*witness, "shown", "name").agg(
        f.count("*").alias("have"), f.count_distinct("value").alias("values"), *_spread()
    )
    is_mixed = (f.col("values") > 1) | (f.col("have") < f.col("shown"))
    usable = of_witness.where((f.col("witness") == "") | (is_mixed & ~_is_narrow()))
    one = ["receiver", "channel", "name"]
    known = usable.groupBy(*one).agg(f.sum("shown").alias("known"))
    return (
        fields.join(usable.select(*witness, "name"), [*witness, "name"], "left_semi")
        .groupBy(*one, "value")
        .agg(f.count("*").alias("weight"))
        .join(known, one)
        .select("receiver", f.col("channel").alias("within"), "name", "value", "weight", "known")
    )


def _taken_channels(took: DataFrame, silver: Mapping[str, DataFrame]) -> DataFrame:
    """Return the same for the channel, which is known of every message that was taken."""
    return (
        took.join(stored(silver), "log_id")
        .groupBy("receiver", f.col("channel").alias("value"))
        .agg(f.count("*").alias("weight"))
        .withColumn("known", f.sum("weight").over(Window.partitionBy("receiver")))
        .select("receiver", f.lit("").alias("within"), f.lit("channel").alias("name"), "value", "weight", "known")
    )


def _of_body() -> Column:
    """Return what is known of a message with a body, as an array: the fields of its data first."""
    data = f.from_json(f.get_json_object("body", "$.data"), "map<string, string>")
    fields = f.transform(f.map_entries(data), lambda each: _field(_FIELD, each["key"], each["value"]))
    size = _field(_SIZE, "bytes", f.length("body").cast("string"))
    return f.concat(f.coalesce(fields, f.array().cast(_FIELDS)), f.array(*_of_sample(), size))


def _of_sample() -> list[Column]:
    return [_field(_ABOUT, name, f.col(name)) for name in ("sender", "shape")]


def _field(rank: int, name: str | Column, value: Column) -> Column:
    named = f.lit(name) if isinstance(name, str) else name
    return f.struct(f.lit(rank).alias("rank"), named.alias("name"), value.alias("value"))


def _is_told() -> Column:
    return f.col("value").isNotNull() & (f.col("value") != "")


def _number(name: str) -> Column:
    return f.when(f.col(name).rlike(_DIGITS), f.col(name).cast("double"))


def _spread() -> list[Column]:
    number = _number("value")
    return [f.count(number).alias("numbers"), f.min(number).alias("least"), f.max(number).alias("most")]


def _is_narrow() -> Column:
    """Whether all are numbers, and less than half of the greatest one apart."""
    return (f.col("numbers") == f.col("have")) & (f.col("most") - f.col("least") < f.abs("most") / 2)


def _named() -> Column:
    """Return the value, range or field in words."""
    longest = f.when(f.col("name") == "shape", _LONGEST_SHAPE).otherwise(_LONGEST)
    cut = f.concat(f.expr(f"substring(wanted, 1, {_LONGEST - 1})"), f.lit("…"))
    short = f.when(f.length("wanted") > longest, cut).otherwise(f.col("wanted"))

    def plain(number: str) -> Column:
        return f.regexp_replace(f.col(number).cast("string"), r"\.0$", "")

    what = (
        f.when(f.col("is_range"), f.concat("name", f.lit(" from "), plain("least"), f.lit(" to "), plain("most")))
        .when(f.col("wanted").isNull(), f.concat(f.lit("field "), "name"))
        .otherwise(f.concat("name", f.lit(" "), short))
    )
    return f.concat(what, f.when(f.col("within") != "", f.concat(f.lit(" on "), "within")).otherwise(""))
