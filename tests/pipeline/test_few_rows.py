"""Settings for few rows hold for a while only."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from crewel.pipeline.few_rows import _SETTINGS, tuned


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
        spark.conf.set("spark.sql.shuffle.partitions", "2")
