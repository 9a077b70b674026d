"""Starts Spark, on this machine or as the user of a cluster, with the source registered.

Spark comes with the extra `pipeline` and needs a Java of the machine. A missing part is reported with the command that installs
it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from crewel.errors import SettingsError, install_extra
from crewel.pipeline.java_startup import java_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crewel.pipeline.connection import Address

INSTALL_EXTRA: Final = install_extra("pipeline")
INSTALL_JAVA: Final = "apt-get install default-jre-headless (or any Java from 17 on; JAVA_HOME says where it is)"
LEAST_JAVA: Final = 17
_EXTRA: Final = ("pyspark", "pyarrow", "pandas", "deltalake")

_FIXED: Final = {"spark.sql.session.timeZone": "UTC", "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""What the tables depend on: days are those of UTC, and deltalake reads the files that Spark writes."""

_SETTINGS: Final = {
    # A store that is away does not end the task that waits for it; a worker that lives on needs no second start.
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "crewel.pipeline.worker_daemon",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.metricsEnabled": "false",
    # To note for each column which line of Python made it takes a third of the calls of Java that a plan is made of.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # For its pages in the browser Spark writes each plan as a text first; this is the shortest.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "1",
    # Each of some hundred rules has its plan checked, which finds errors of Spark itself.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.retainedExecutions": "20",
    # The log of a table names its files one by one; to look at each takes less than a job of Spark.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Rows need not be sorted by day before they are written: a part has a few days at most.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # By the sizes of its files Spark guesses some ten times too little. Sizes that it has measured may be a little larger.
    "spark.sql.autoBroadcastJoinThreshold": "1m",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10m",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "32m",
    "spark.redaction.regex": "(?i)secret|password|passwd|token|url|credential|key",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "640m",
}


def ready() -> None:
    """Raise SettingsError, with what to do about it, unless everything is there that Spark needs."""
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise SettingsError(f"the pipeline needs {', '.join(missing)}: {INSTALL_EXTRA}")
    found = java_version()
    if found is None:
        raise SettingsError(f"the pipeline needs Java: {INSTALL_JAVA}")
    if found < LEAST_JAVA:
        raise SettingsError(f"the pipeline needs Java {LEAST_JAVA} or newer, here is {found}: {INSTALL_JAVA}")


def java_version(environ: Mapping[str, str] | None = None) -> int | None:
    """Return which Java Spark would use: 17, 21; None if there is none."""
    version = java_properties(os.environ if environ is None else environ).get("java.specification.version")
    return None if version is None else int(version.removeprefix("1."))


def session(
    address: Address | None = None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """Return a session of Spark that knows the source; the caller stops it.

    `address` is by default what the settings of the server say. `master` is by default that of spark-submit, or else all cores
    of this machine. `settings` are more of Spark's, and replace those here, except `_FIXED`. Spark tells on stderr what is at
    least as bad as `log_level`. Raises SettingsError.
    """
    ready()
    settings = settings or {}
    for name in [each for each in _FIXED.keys() & settings.keys() if settings[each] != _FIXED[each]]:
        raise SettingsError(f"{name}: the tables need {_FIXED[name]}, and it cannot be set")
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from crewel.pipeline.class_archive import ClassArchive
    from crewel.pipeline.connection import Address
    from crewel.pipeline.java_startup import LOCAL, java_options, keep_names, unpacked_home, without_greetings
    from crewel.pipeline.source import register

    keep_names()
    address = Address.found() if address is None else address
    # Otherwise workers are started with the first Python of the path, which lacks what is installed here.
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Java is there before us, and only it knows the options of spark-submit. Otherwise it is started by what is said below.
        SparkContext._ensure_initialized()  # noqa: SLF001
    submitted = SparkConf()
    master = master or submitted.get("spark.master", None) or "local[*]"
    ours = {**_SETTINGS, **(_LOCAL_SETTINGS if master.startswith("local") else {})}
    archive = None
    if master.startswith("local") and python == sys.executable:
        home = unpacked_home(Path(pyspark.__file__).parent, os.environ)
        if home is not None and os.environ.setdefault("SPARK_HOME", str(home)) == str(home):
            archive = ClassArchive.of(home, java_properties(os.environ))
            ours.update({"spark.driver.defaultJavaOptions": archive.options} if archive.options else {})
    if "SPARK_CONF_DIR" not in os.environ:  # that directory has a logging file of its own
        local = f" {LOCAL}" if master.startswith("local") else ""
        ours["spark.driver.extraJavaOptions"] = f"{java_options(log_level)}{local}"
    builder = SparkSession.builder.master(master).appName("crewel-pipeline")
    # What spark-submit or spark-defaults.conf say comes before what is usual here.
    usual = {name: value for name, value in ours.items() if not submitted.contains(name)}
    for name, value in {**usual, **settings, **_FIXED}.items():
        builder = builder.config(name, value)
    with without_greetings():
        spark = builder.getOrCreate()
    if archive is not None:
        jvm = spark.sparkContext._jvm  # noqa: SLF001
        assert jvm is not None
        java = jvm.java.lang.System
        archive.write_later(java.getProperty("java.home"), java.getProperty("java.class.path"))
    register(spark, address)
    return spark
