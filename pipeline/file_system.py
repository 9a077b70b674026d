"""The file system that the tables lie on, whichever Spark knows: a directory here, or one that a whole cluster sees."""

from __future__ import annotations

import re
from glob import glob
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from crewel.errors import SettingsError

_S3: Final = ("s3a://", "s3://")
_UNKNOWN: Final = ("ClassNotFoundException", "UnsupportedFileSystemException")
"""What Hadoop raises for an address whose file system it has no classes for."""
_LACKS: Final = re.compile(r"ClassNotFoundException: (?:Class )?([\w.$]+)")


_SIGNS: Final = re.compile(r"([\\*?\[\]{}])")
"""What readers of Spark take for a part of a pattern."""


def literal(path: str) -> str:
    """Return a path as readers of Spark want it, which take paths for patterns. An address stays as it is."""
    return path if "://" in path else _SIGNS.sub(r"\\\1", path)


class FileSystem:
    """A thin face of Hadoop's file systems. Paths are texts; one without a scheme is here."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to the file system of the tables
        self._hadoop: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def check(self, path: str) -> None:
        """Raise SettingsError, with what to do about it, if Spark has no file system for a path."""
        if "://" in path:
            self._system(self._path(path))

    def names(self, directory: str, pattern: str = "*") -> list[str]:
        """Return the names of what is in a directory, those that match, `*` for a part of a name; if there is none, nothing."""
        if "://" not in directory and str(self._hadoop.get("fs.defaultFS")).startswith("file:"):
            # A call of the JVM for each path would take a thousand times as long. The directory is no pattern.
            return sorted(glob(pattern, root_dir=directory))  # noqa: PTH207 - pathlib yields hidden files, too
        path = self._path(f"{directory}/{pattern}")
        found = self._system(path).globStatus(path)
        return sorted(str(each.getPath().getName()) for each in found or ())

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; if there is none, nothing happens."""
        found = self._path(path)
        self._system(found).delete(found, True)

    def create(self, path: str) -> None:
        """Make an empty file."""
        found = self._path(path)
        self._system(found).create(found, True).close()

    def _system(self, path: Any) -> Any:
        """Return the file system of a path. Raises SettingsError if Spark lacks the jars for it."""
        try:
            return path.getFileSystem(self._hadoop)
        except Py4JJavaError as error:
            if not any(name in str(error) for name in _UNKNOWN):
                raise
            # A jar that is there may need another one, so the class says more than the address.
            lacks = _LACKS.search(str(error))
        text = str(path)
        advice = f": it lacks {lacks[1]}" if lacks else ""
        if text.startswith(_S3):
            version = self._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
            advice += f"; s3a:// needs --spark spark.jars.packages=org.apache.hadoop:hadoop-aws:{version}"
        raise SettingsError(f"{text.partition('://')[0]}://: Spark has no file system for it{advice}")

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)
