"""The file systems that tables can be on."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crewel.errors import SettingsError
from crewel.pipeline.delta import Batch
from crewel.pipeline.file_system import FileSystem
from crewel.pipeline.schemas import TABLES
from crewel.pipeline.tables import Tables
from tests.pipeline.frames import frame


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
        FileSystem(spark).names(directory)
    with pytest.raises(SettingsError, match=words):
        Tables(spark, directory)


def test_a_directory_whose_name_looks_like_a_pattern_has_its_files(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "a[b]*"
    directory.mkdir()
    (tmp_path / "ab").mkdir()
    for name in ("one.x", "two.x", "two.y", ".hidden"):
        (directory / name).touch()
    (tmp_path / "ab" / "three.x").touch()
    assert FileSystem(spark).names(str(directory)) == ["one.x", "two.x", "two.y"]
    assert FileSystem(spark).names(str(directory), "*.x") == ["one.x", "two.x"]
    assert FileSystem(spark).names(str(tmp_path / "none")) == []


def test_tables_in_a_directory_whose_name_looks_like_a_pattern_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    minute = datetime(2026, 11, 20, tzinfo=UTC)
    tables = Tables(spark, tmp_path / "a[b]{c}*")
    for number, table in enumerate((tables, Tables(spark, tmp_path / "ab")), 1):
        table.replace(TABLES["deaths"], frame(spark, "deaths", [{"minute": minute, "letters": number}]))
        table.begin(Batch("fill", number))
    assert [row["letters"] for row in tables.read(TABLES["deaths"]).collect()] == [1]
    assert tables.unfinished() == {"fill.1"}
