"""Words that several tables have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from crewel.pipeline.report.plots import duration as on_the_page
from crewel.pipeline.transformations.common import duration
from tests.pipeline.frames import of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LENGTHS = {
    0.4: "0 ms",
    20.0: "20 ms",
    999.0: "999 ms",
    999.7: "1 s",
    1000.0: "1 s",
    1500.0: "1.5 s",
    59_990.0: "1 min",
    90_000.0: "1.5 min",
    583_153.0: "9.7 min",
    7_200_000.0: "2 h",
    445_000_000.0: "124 h",
}


def test_a_length_of_time_is_written_in_tables_as_on_the_page(spark: SparkSession) -> None:
    rows = of_rows(spark, [(ms,) for ms in LENGTHS], "ms DOUBLE")
    found = {row["ms"]: row["words"] for row in rows.select("ms", duration(f.col("ms")).alias("words")).collect()}
    assert found == LENGTHS
    assert {ms: on_the_page(ms) for ms in LENGTHS} == LENGTHS
