"""How long the jobs of the pipeline take, and what the resident one costs while nothing happens.

    python bench/jobs.py                    5 million entries, written into bench/RESULTS.md (about eight minutes)
    python bench/jobs.py --quick            a tenth of them, printed only
    python bench/jobs.py --only idle        one of: backfill, triage, scaling, growth, idle

A store of its own holds facts as a server writes them, and every twentieth message dies. Store and Spark share the cores.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from section import Section, parser, verdict

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH.parent))
PREFIX = "bench:"
IDLE_S, SETTLING_S = 120.0, 120.0
DAY_MS, HOUR_MS = 1_790_035_200_000, 3_600_000
"""When a day begins, by UTC, and how long an hour is."""
CODES = ("user.update.error", "user.update.holdback.sink", "communication.responseTimeout")

Row = tuple[str, str, str, bool]


def fill(store: Any, events: int) -> None:
    """So many facts and letters: of each three messages that are settled a commit tells together; every twentieth dies."""
    client = store.client()
    base = f"{PREFIX}{{crewel}}:"
    ids = itertools.count(1790000000000000)
    for portion in range(events // 1000):
        pipe = client.pipeline(transaction=False)
        for i in range(1000):
            log_id = next(ids)
            channel, session = f"/orders/{log_id % 50}", f"client/joe/{log_id % 200 + 1}"
            if i % 20 == 0:
                code = CODES[log_id % 3]
                died(pipe, base, log_id, channel, session, code)
            elif i % 3:
                pipe.xadd(
                    f"{base}facts", {"t": "published", "d": orjson.dumps({"first": log_id, "channels": [channel]})}
                )
            else:
                ended = [{"session": session, "reason": "settled", "ids": [log_id - 2, log_id - 1]}]
                pipe.xadd(f"{base}facts", {"t": "ended", "d": orjson.dumps({"ended": ended})})
        if portion % 100 == 0:
            subscribed = {"session": f"client/joe/{portion // 100 + 1}", "patterns": ["/orders/*"], "from": 1}
            pipe.xadd(f"{base}facts", {"t": "subscribed", "d": orjson.dumps(subscribed)})
        pipe.execute()


def died(pipe: Any, base: str, log_id: int, channel: str, session: str, code: str) -> None:
    """A letter and its fact."""
    ended = [{"session": session, "reason": "dead", "code": code, "ids": [log_id]}]
    pipe.xadd(f"{base}facts", {"t": "ended", "d": orjson.dumps({"ended": ended})})
    reason = f"order {log_id} of 'Joe' has no price (attempt {log_id % 7})"
    fields = {
        "id": log_id, "received": log_id * 1000, "receiver": session, "code": code, "reason": reason, "attempts": 1,
        "channel": channel, "body": '{"data":{"order":17}}', "sender": "client/ann/1", "qos": "", "p": 1,
    }  # fmt: skip
    pipe.xadd(f"{base}dead", fields)


def taken(step: Callable[[], object]) -> float:
    """Seconds."""
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def say(words: str) -> None:
    print(f"{time.strftime('%T')} {words}", file=sys.stderr)


def backfill(spark: Any, address: Any, events: int, directory: str) -> Row:
    """All that the store has, up to gold."""
    from crewel.pipeline.jobs import backfill as job

    seconds = taken(lambda: job.run(spark, job.Options(address=address, directory=f"{directory}/tables"), say))
    limit = 180 * events / 5_000_000
    what = f"backfill of {events:,} entries to gold"
    return what, f"{seconds:.1f} s ({events / seconds:,.0f}/s)", f"at most {limit:.0f} s", seconds <= limit


def scaling(address: Any, events: int, directory: str) -> list[Row]:
    """The same with one, two and four tasks side by side, in a Java that has run it before."""
    from crewel.pipeline.jobs import backfill as job
    from crewel.pipeline.spark_session import session

    rows: list[Row] = []
    alone = 0.0
    for tasks in (1, 2, 4):
        spark = session(address, f"local[{tasks}]", {"spark.local.dir": directory})
        options = job.Options(address=address, directory=f"{directory}/tables-{tasks}")
        seconds = taken(lambda spark=spark, options=options: job.run(spark, options))  # type: ignore[misc]
        spark.stop()
        alone = alone or seconds
        what = f"backfill of {events:,} entries, {tasks} task{'s' if tasks > 1 else ''} at a time"
        rows.append((what, f"{seconds:.1f} s ({events / seconds:,.0f}/s), {alone / seconds:.2f} times one", "", True))
        say(str(rows[-1]))
    return rows


def triage(spark: Any, address: Any, events: int, directory: str, what: str, target: float | None = None) -> Row:
    """What died and why: of so many facts, and a letter for each twentieth, by tables in a directory and the store."""
    from crewel.pipeline.jobs.inputs import gather
    from crewel.pipeline.jobs.report import answers
    from crewel.pipeline.tables import Tables

    letters = 0

    def ask() -> None:
        nonlocal letters
        inputs = gather(spark, Tables(spark, directory), address, ("facts",))
        found = answers(inputs, datetime.fromtimestamp(0, UTC), datetime.now(UTC)).tables["triage"]
        letters = sum(row["letters"] for row in found.collect())
        inputs.forget()

    seconds = taken(ask)
    told = f"triage of {events:,} entries with {letters:,} deaths, {what}"
    return told, f"{seconds:.1f} s", f"at most {target:.0f} s" if target else "", target is None or seconds <= target


def add_hour(spark: Any, tables: Any, number: int, begin_ms: int, messages: int) -> None:
    """Add an hour of messages to silver as a batch: each with the fact that it has ended, and an event for each thousand."""
    from pyspark.sql import functions as f

    from crewel.pipeline.delta import Batch
    from crewel.pipeline.schemas import TABLES

    rows = {
        "fact_published": (messages, {"bytes": "60D"}),
        "fact_ended": (messages, {"receiver": "'client/joe/1'", "reason": "'settled'", "bytes": "80D"}),
        "event_settled": (messages // 1000, {"count": "1000L", "sum_ms": "5000L", "bytes": "50D"}),
    }
    for name, (count, values) in rows.items():
        every = {
            "ms": f"{begin_ms} + id * {HOUR_MS} div {count}",
            "log_id": f"{begin_ms * 1000} + id * {HOUR_MS * 1000} div {count}", "seq": "id",
            "channel": "concat('/orders/', id % 50)", "buckets": "array(0L, 1000L)", **values,
        }  # fmt: skip
        every |= {"at": f"timestamp_millis({every['ms']})", "place": f"concat({every['ms']}, '-', id)"}
        every["date"] = f"to_date({every['at']})"
        columns = [
            f.expr(every.get(each.name, "NULL")).cast(each.type).alias(each.name) for each in TABLES[name].columns
        ]
        tables.write(TABLES[name], spark.range(count).select(*columns), Batch("bench", number))


def growth(spark: Any, events: int, directory: str) -> list[Row]:
    """Gold of a day, and after a little more on the same day and on the next one: seconds, and rows that are written. Silver is
    made by Spark: by way of a store it would take hours."""
    from crewel.pipeline.delta import Batch
    from crewel.pipeline.jobs import gold
    from crewel.pipeline.schemas import TABLES
    from crewel.pipeline.tables import Tables

    tables = Tables(spark, f"{directory}/growth")
    made = [TABLES[name] for name in ("latency", "backlog", "capacity")]
    joe = {
        "session": "client/joe/1",
        "pattern": "/orders/*",
        "begins": True,
        "from_id": DAY_MS * 1000 - 1,
        "ms": DAY_MS,
    }
    joe |= {"at": datetime.fromtimestamp(DAY_MS / 1000, UTC), "date": datetime.fromtimestamp(DAY_MS / 1000, UTC).date()}
    subscribed = TABLES["fact_subscribed"]
    rows_of = [tuple(joe.get(each.name) for each in subscribed.columns)]
    tables.write(subscribed, spark.createDataFrame(rows_of, subscribed.struct()), Batch("bench", 0))
    rows: list[Row] = []
    number = 0
    for what, hours, share in (
        ("a day", range(23), 1.0),
        ("one percent more in its last hour", range(23, 24), 0.01),
        ("one percent more on the next day", range(24, 25), 0.01),
        ("nothing more", range(0), 0.0),
    ):
        for hour in hours:
            number += 1
            add_hour(spark, tables, number, DAY_MS + hour * HOUR_MS, round(events * share / len(hours) / 2))
        before = [(table, tables.version(table)) for table in made]
        seconds = taken(lambda: gold.write(tables, say))
        written = sum(tables.added(table, None if version < 0 else version).count() for table, version in before)
        rows.append((f"gold of {events:,} facts: {what}", f"{seconds:.1f} s, {written:,} rows", "", True))
        say(str(rows[-1]))
    return rows


def idle(url: str, directory: str) -> Row:
    """The resident job while nothing comes: processor time of all its processes."""
    environ = {**os.environ, "CREWEL_STORAGE__URL": url, "CREWEL_STORAGE__PREFIX": "idle:"}
    command = [sys.executable, "-m", "crewel.pipeline", "live", "--dir", f"{directory}/live", "--quiet"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        try:
            time.sleep(SETTLING_S)
            begun = cpu(job.pid)
            time.sleep(IDLE_S)
            share = (cpu(job.pid) - begun) / IDLE_S
        finally:
            job.send_signal(signal.SIGTERM)
    return (
        f"the resident job while nothing happens, {SETTLING_S:.0f} s after its start",
        f"{share:.1%} of a core",
        "below 3 %",
        share < 0.03,
    )


def cpu(pid: int) -> float:
    """Seconds of processor time of a process and all below it that live."""
    total = 0.0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += cpu(int(child))
    return total


def measure(events: int, only: str) -> list[Row]:
    """The rows of the report."""
    from crewel.pipeline.connection import Address
    from crewel.pipeline.spark_session import session
    from tests.store_process import StoreProcess

    rows = []
    with TemporaryDirectory(prefix="crewel-bench-") as directory:
        store = StoreProcess(Path(directory), appendonly="yes")
        address = Address(store.url, PREFIX)
        settings = {"spark.local.dir": directory}
        try:
            if only in ("", "triage", "backfill", "scaling"):
                spark = session(address, "local[2]", settings)
                some = min(events, 1_000_000)
                fill(store, some)
                if only in ("", "triage"):
                    for what, target in (
                        ("by the store alone, as the first thing that a new session does", None),
                        ("the same once it has started", 10),
                    ):
                        rows.append(triage(spark, address, some, f"{directory}/none", what, target))
                        say(str(rows[-1]))
                if only != "triage":
                    fill(store, events - some)
                    rows.append(backfill(spark, address, events, directory))
                    say(str(rows[-1]))
                    rows.append(triage(spark, address, events, f"{directory}/tables", "by tables, which have all"))
                    say(str(rows[-1]))
                spark.stop()
            if only in ("", "growth"):
                spark = session(address, "local[2]", settings)
                rows += growth(spark, events, directory)
                spark.stop()
            if only in ("", "scaling"):
                rows += scaling(address, events, directory)
            if only in ("", "idle"):
                rows.append(idle(store.url, directory))
        finally:
            store.close()
    return rows


def report(rows: list[Row]) -> Section:
    """The section of bench/RESULTS.md."""
    return Section(
        "jobs",
        "How long the pipeline's jobs take",
        "once each; store and Spark share the cores. The first thing that a session does takes longer: Spark starts its"
        " processes of Python, and Java loads and compiles what it runs for the first time.",
        ("what", "measured:", "target", ""),
        [(what, measured, target, verdict(is_met=met) if target else "") for what, measured, target, met in rows],
    )


def main() -> None:
    """Measure and write."""
    line = parser(__doc__, "a tenth of the entries")
    line.add_argument("--only", default="", choices=["", "backfill", "triage", "scaling", "growth", "idle"])
    line.add_argument("--entries", type=int, help="how many entries the store has")
    options = line.parse_args()
    rows = measure(options.entries or (500_000 if options.quick else 5_000_000), options.only)
    report(rows).publish(is_part=options.quick or bool(options.only))


if __name__ == "__main__":
    main()
