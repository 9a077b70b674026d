"""Settings for few rows hold for a while only."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from crewel.pipeline.few_rows import _SETTINGS, keep, tuned
from tests.pipeline.quick_spark import QUICK


def fail_within(spark: SparkSession) -> None:
    with tuned(spark):
        assert {name: spark.conf.get(name) for name in _SETTINGS} == _SETTINGS
        raise RuntimeError


def test_what_was_set_comes_back_also_after_an_error(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    try:
        with pytest.raises(RuntimeError):
            fail_within(spark)
        assert {name: spark.conf.get(name, None) for name in _SETTINGS} == before
        with tuned(spark, is_few=False):
            assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", QUICK["spark.sql.shuffle.partitions"])


def test_what_is_kept_is_computed_once_and_of_nothing_no_rows_are_made(spark: SparkSession) -> None:
    times = spark.range(3, numPartitions=1).selectExpr("id", "uuid() AS random")
    kept = keep(times)
    assert len(kept.unionByName(kept).select("random").distinct().collect()) == 3
    nothing = keep(times.where("id > 5"))
    assert nothing.schema == times.schema
    joined = nothing.join(times, "id").groupBy("id").count()
    assert joined._jdf.queryExecution().optimizedPlan().toString().startswith("LocalRelation <empty>")
