"""What the tests of the pipeline share: one session of Spark, and real streams of a real store."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from crewel.pipeline.class_archive import ClassArchive
from crewel.pipeline.connection import Address
from crewel.pipeline.java_startup import java_properties, unpacked_home
from tests.pipeline.quick_spark import QUICK
from tests.store_process import own_prefix, shared_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, scope="session")
def _no_class_archive() -> Iterator[None]:
    """On a new machine no process writes the archive of Java's classes, because one seems to be at it. That takes half a minute
    of processor beside the tests, of which few start a Java that would use it."""
    import pyspark

    home = unpacked_home(Path(pyspark.__file__).parent, os.environ)
    assert home is not None
    unfinished = ClassArchive.of(home, java_properties(os.environ)).stem.with_suffix(".unfinished")
    unfinished.touch()
    yield
    unfinished.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of all tests: it takes six seconds to start, and so there is one."""
    from crewel.pipeline.spark_session import session

    warehouse: Path = tmp_path_factory.mktemp("spark")
    spark = session(
        Address(shared_store().url, "nobody:"),
        "local[2]",
        {
            **QUICK,
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.local.dir": str(warehouse),
            "spark.sql.streaming.checkpointLocation": str(warehouse / "checkpoints"),
        },
    )
    yield spark
    spark.stop()


def drop_connection() -> None:
    """Talk to Java through a new connection from now on: on this one, the answer to a call that was cut off is still to come,
    and the next call would take it for its own."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that has run out of time may have been cut off in a call of Java."""
    if call.excinfo is not None and not isinstance(call.excinfo.value, Exception):
        drop_connection()
    return (yield)


@pytest.fixture
def address() -> Address:
    """A prefix of its own in the store that all tests share."""
    return Address(shared_store().url, own_prefix())


class Streams:
    """Writes into the streams of one prefix what a server would, or what it would not."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.client = address.client()
        self.keys = address.keys

    def fact(self, type_: str, fields: Mapping[str, object], place: str = "*") -> str:
        """Append a fact; return its id."""
        return self.add("facts", {"t": type_, "d": orjson.dumps(fields)}, place)

    def group(self, events: Iterable[Mapping[str, object]], place: str = "*", **fields: object) -> str:
        """Append a group of events; return its id."""
        group = {
            "v": 1, "node": "heron", "token": "t", "n": 1, "from": 1000, "until": 2000, "lost": 0, "events": list(events),
        }  # fmt: skip
        return self.add("events", {"d": orjson.dumps({**group, **fields})}, place)

    def add(self, stream: str, fields: Mapping[str, str | bytes], place: str = "*") -> str:
        """Append any entry; return its id."""
        added: bytes = self.client.xadd(f"{self.keys.base}{stream}", dict(fields), place)
        return added.decode()

    def many(self, stream: str, number: int, first_ms: int = 1, per_ms: int = 1) -> None:
        """Append entries that hold their number, from 0, so many in each millisecond."""
        pipe = self.client.pipeline(transaction=False)
        for i in range(number):
            pipe.xadd(
                f"{self.keys.base}{stream}", {"t": "x", "d": b"%d" % i}, f"{first_ms + i // per_ms}-{i % per_ms + 1}"
            )
        pipe.execute()


@pytest.fixture
def streams(address: Address) -> Iterator[Streams]:
    """The streams of this test's prefix."""
    streams = Streams(address)
    yield streams
    streams.client.close()
