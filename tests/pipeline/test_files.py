"""The file systems that tables can be on."""

import pytest
from pyspark.sql import SparkSession

from crewel.errors import SettingsError
from crewel.pipeline.files import Files
from crewel.pipeline.tables import Tables


@pytest.mark.parametrize(
    ("directory", "words"),
    [
        (
            "s3a://bucket/tables",
            r"s3a://: .*lacks org[.\w]+S3AFileSystem; .* spark.jars.packages=org.apache.hadoop:hadoop-aws:\d",
        ),
        ("nowhere://bucket/tables", "nowhere://: Spark has no file system for it$"),
    ],
)
def test_a_file_system_that_spark_lacks_is_named_with_what_it_needs(
    spark: SparkSession, directory: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        Files(spark).names(directory)
    with pytest.raises(SettingsError, match=words):
        Tables(spark, directory)
