"""How fast the pipeline reads the streams of the store.

    python bench/pipeline.py                    medians of 5, written into bench/RESULTS.md (about two minutes)
    python bench/pipeline.py --quick            once, printed only

A store of its own is filled with facts as the server writes them, and Spark reads them into a sink that takes everything and
keeps nothing: with 1, 2 and 4 tasks, as a batch and as a stream of batches. Store and Spark share the cores of the machine.
"""

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from section import Section, parser, verdict

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH.parent))
TARGET = 300_000

Figures = dict[str, list[float]]


def filled(store: Any, prefix: str, number: int) -> None:
    """Fill the stream of facts with so many entries, as a server that serves does: messages, and a commit for each two."""
    client = store.client()
    ids = itertools.count(1790000000000000)
    key = f"{prefix}{{crewel}}:facts"
    for _ in range(number // 1000):
        pipe = client.pipeline(transaction=False)
        for i in range(1000):
            log_id = next(ids)
            if i % 3:
                fields = {"t": "published", "d": orjson.dumps({"first": log_id, "channels": ["/orders/new"]})}
            else:
                ended = [{"session": "client/joe/1", "reason": "settled", "ids": [log_id - 2, log_id - 1]}]
                fields = {"t": "ended", "d": orjson.dumps({"ended": ended})}
            pipe.xadd(key, fields)
        pipe.execute()


def into_nothing(spark: Any, prefix: str, tasks: int) -> Callable[[], float]:
    """Read everything as a batch; the seconds it took."""

    def read() -> float:
        begun = time.perf_counter()
        frame = spark.read.format("crewel-events").options(streams="facts", partitions=tasks, prefix=prefix).load()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - begun

    return read


def streamed(spark: Any, prefix: str, rows: int, directory: str) -> Callable[[], float]:
    """Read everything as a stream, in batches of so many rows; the seconds its batches took, without starting and ending it."""
    checkpoints = itertools.count()

    def read() -> float:
        stream = spark.readStream.format("crewel-events").options(streams="facts", maxRows=rows, prefix=prefix).load()
        writer = stream.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{directory}/{rows}-{next(checkpoints)}").start()
        query.awaitTermination()
        return sum(progress.batchDuration for progress in query.recentProgress) / 1000

    return read


def measure(entries: int, rounds: int) -> Figures:
    """Entries a second of each way to read, by round."""
    from crewel.pipeline.connection import Address
    from crewel.pipeline.spark_session import session
    from tests.store_process import StoreProcess

    found: Figures = {}
    with TemporaryDirectory(prefix="crewel-bench-") as directory:
        store = StoreProcess(Path(directory))
        try:
            prefix = "bench:"
            filled(store, prefix, entries)
            spark = session(
                Address(store.url, prefix), "local[2]", {"spark.local.dir": directory, "spark.log.level": "ERROR"}
            )
            ways = {f"a batch, {tasks} tasks": into_nothing(spark, prefix, tasks) for tasks in (1, 2, 4)}
            ways["a stream, all at once"] = streamed(spark, prefix, 0, directory)
            ways["a stream, 200,000 a batch"] = streamed(spark, prefix, 200_000, directory)
            into_nothing(spark, prefix, 4)()  # warm
            for number in range(rounds):
                for name, read in ways.items() if number % 2 else reversed(ways.items()):
                    found.setdefault(name, []).append(entries / read())
            spark.stop()
        finally:
            store.close()
    return {name: found[name] for name in ways}


def report(measured: Figures, entries: int, rounds: int) -> Section:
    """The section of bench/RESULTS.md."""
    best = max(statistics.median(each) for name, each in measured.items() if name.startswith("a batch"))
    alone = statistics.median(measured["a batch, 1 tasks"])
    rows = [
        (
            name.replace("1 tasks", "1 task"),
            f"{statistics.median(each):,.0f} ({min(each):,.0f} to {max(each):,.0f})",
            f"{statistics.median(each) / alone:.2f}",
        )
        for name, each in measured.items()
    ]
    return Section(
        "pipeline",
        "How fast the pipeline reads",
        f"{entries:,} facts of a store into a sink that keeps nothing, medians of {rounds} interleaved rounds (in brackets the"
        " lowest and the highest). Store and Spark share the cores.",
        ("read as", "entries a second:", "to one task:"),
        rows,
        conclusion=f"Target: {TARGET:,} entries a second: {verdict(is_met=best >= TARGET)}.",
    )


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "one round of few entries").parse_args()
    entries, rounds = (500_000, 1) if options.quick else (1_000_000, 5)
    report(measure(entries, rounds), entries, rounds).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
