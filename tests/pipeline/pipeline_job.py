"""Jobs of Spark as processes of their own, to be killed with all that they have started; and what tables hold, read without it.

python -m tests.pipeline.pipeline_job <address> <prefix> <directory> <trigger_s | once>

That one starts Spark, and begins as soon as it gets a line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from crewel.pipeline.schemas import Table
from tests.pipeline.quick_spark import QUICK
from tests.server_process import ROOT

START_S = 600.0
"""Java starts in ten seconds on a machine of its own, and in minutes beside many others."""


class Job:
    """A command that starts Spark. It ends with `close`, if not before."""

    def __init__(self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env={**os.environ, **(environ or {})},
                start_new_session=True,
            )

    def begin(self) -> None:
        """Have it begin, if it waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """The process that has started all others."""
        return self._process.pid

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait until something holds while it runs."""
        deadline = time.monotonic() + START_S
        while not is_so():
            assert self._process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, "it did not come about in time: " + self.log.read_text()[-4000:]
            time.sleep(0.02)

    def kill(self) -> int:
        """Kill it with all processes that it has started, at once; how many there were."""
        for pid in tree(self.pid):
            _send(pid, signal.SIGSTOP)  # so that none sees another one go
        found = list(tree(self.pid))
        for pid in found:
            _send(pid, signal.SIGKILL)
        self._process.wait(20)
        return len(found)

    def finish(self, limit_s: float) -> None:
        """Wait until it has ended by itself, and well."""
        assert self._process.wait(limit_s) == 0, self.log.read_text()[-4000:]

    def close(self) -> None:
        """End it, however it is."""
        if self._process.poll() is None:
            self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()


class PipelineJob(Job):
    """One run of the live job, which waits for `begin`."""

    def __init__(self, url: str, prefix: str, tables: Path, trigger: str = "1") -> None:
        self._checkpoint = tables / "checkpoints" / "live" / "v1"
        command = ["tests.pipeline.pipeline_job", url, prefix, str(tables), trigger]
        super().__init__(command, tables.parent / "job.log")

    def batch(self) -> tuple[int, int]:
        """The newest batch that was begun, and the newest that was done; -1 if there is none."""
        return _newest(self._checkpoint / "offsets"), _newest(self._checkpoint / "commits")

    def wait_for_batch(self, done: int) -> None:
        """Wait until this batch is done."""
        self.wait_for(lambda: self.batch()[1] >= done)


def rows_of(tables: Path, table: Table, *columns: str) -> list[dict[str, Any]]:
    """Return what another program reads of a table."""
    read = DeltaTable(tables / table.path).to_pyarrow_table(columns=list(columns) or None)
    rows: list[dict[str, Any]] = read.to_pylist()
    return rows


def counts_of(tables: Path, table: Table, *key: str) -> tuple[int, int, int]:
    """How many rows DuckDB and pandas find in a table at one moment, and how many different keys."""
    delta = DeltaTable(tables / table.path)
    found = duckdb.from_arrow(delta.to_pyarrow_dataset())
    ((rows, keys),) = found.aggregate(f"count(*), count(DISTINCT ({', '.join(key)}))").fetchall()
    return rows, len(delta.to_pandas(columns=list(key))), keys


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # workers come and go
        os.kill(pid, number)


def _newest(directory: Path) -> int:
    if not directory.is_dir():
        return -1
    return max((int(each.name) for each in directory.iterdir() if each.name.isdigit()), default=-1)


def tree(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started, also through others."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(each.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(each.parent.name))
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += children.get(found, ())


def main() -> None:
    from crewel.pipeline.connection import Address
    from crewel.pipeline.java_startup import java_options
    from crewel.pipeline.jobs import live
    from crewel.pipeline.spark_session import session

    url, prefix, directory, trigger = sys.argv[1:]
    address = Address(url, prefix)
    # As for a command: Spark says nothing of what the job says in one line.
    java = "spark.driver.extraJavaOptions"
    quiet = {
        java: QUICK[java].replace(java_options("ERROR"), java_options("OFF")),
        "spark.local.dir": directory + ".tmp",
    }
    spark = session(address, "local[2]", {**QUICK, **quiet}, "OFF")
    sys.stdin.readline()
    options = (
        live.Options(address=address, directory=directory, once=True, upkeep_s=1)
        if trigger == "once"
        else live.Options(address=address, directory=directory, trigger_s=float(trigger), upkeep_s=15, hold_limit_s=0)
    )
    live.run(spark, options, lambda line: print(line, flush=True))
    spark.stop()


if __name__ == "__main__":
    main()
