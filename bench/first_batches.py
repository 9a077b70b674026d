"""What the pipeline's commands cost with few entries and with a million: from their start, with all their processes.

    python bench/first_batches.py                       two rounds of all, printed
    python bench/first_batches.py --only small          one of: first, small, few, many
    python bench/first_batches.py --code ../other       the code of another checkout, with this environment

A store of its own holds facts as `bench/jobs.py` makes them. Each command is a process as an operator starts it; memory is the
proportional set size of it and of all that it starts, processor time likewise. Store and Spark share the cores.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH.parent))
from jobs import PREFIX, cpu, fill  # noqa: E402 - what the tests have comes from the checkout

SMALL, BATCHES, WARM = 500, 8, 3
"""Facts of a small batch, how many such batches, and how many of them come first and do not count."""
LIMIT_S = 300.0


class Command:
    """A command of the pipeline, watched until it ends."""

    def __init__(self, url: str, directory: Path, code: Path, *words: str) -> None:
        environ = {
            **os.environ,
            "CREWEL_STORAGE__URL": url,
            "CREWEL_STORAGE__PREFIX": PREFIX,
            "PYTHONPATH": str(code / "app"),
        }
        self.began = time.time()
        self._log = (directory.parent / "job.log").open("ab")
        line = [sys.executable, "-m", "crewel.pipeline", *words, "--dir", str(directory), "--quiet"]
        self._process = subprocess.Popen(line, env=environ, stdout=self._log, stderr=self._log, cwd=directory.parent)
        self.peak_mb: list[float] = []
        """Of each process, when there was most in all."""

    @property
    def processor_s(self) -> float:
        """Of it and all that it has started and that lives."""
        return cpu(self._process.pid)

    def wait(self) -> float:
        """Wait until it has ended; the seconds since its start."""
        while self._process.poll() is None:
            self.peak_mb = max(self.peak_mb, [*map(proportional_mb, tree(self._process.pid))], key=sum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.25)
        assert self._process.returncode == 0
        return time.time() - self.began

    def wait_for(self, path: Path) -> None:
        """Wait until there is such a file."""
        deadline = time.monotonic() + LIMIT_S
        while not path.exists():
            assert self._process.poll() is None, "it has ended"
            assert time.monotonic() < deadline, path
            time.sleep(0.01)

    def end(self) -> None:
        """Have it end well."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
        self._log.close()


def tree(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started."""
    yield pid
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if memory_of(int(child)) != memory_of(pid):
                    yield from tree(int(child))


def memory_of(pid: int) -> tuple[bytes, bytes]:
    """The same for a process and a child that Java is just starting, which has no memory of its own yet."""
    with contextlib.suppress(OSError):
        process = Path(f"/proc/{pid}")
        return (process / "cmdline").read_bytes(), (process / "statm").read_bytes()
    return b"", b""


def proportional_mb(pid: int) -> float:
    """Memory of a process; what it shares with others counts in parts."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def filled(entries: int) -> Iterator[tuple[Any, Path]]:
    """A store with so many entries, and where tables may lie."""
    from tests.store_process import StoreProcess

    with TemporaryDirectory(prefix="crewel-bench-") as name:
        directory = Path(name)
        (directory / "store").mkdir()
        store = StoreProcess(directory / "store")
        try:
            fill(store, entries)
            yield store, directory / "tables"
        finally:
            store.close()


def live(code: Path, parts: str) -> Iterator[str]:
    """The first batch of `live`, and batches of a few facts each: by the files in which Spark notes when a batch began and
    ended."""
    with filled(2000) as (store, tables):
        job = Command(store.url, tables, code, "live", "--trigger", "0.5")
        notes = tables / "checkpoints" / "live" / "v1"
        try:
            job.wait_for(notes / "commits" / "0")
            yield f"first batch of live: {time.time() - job.began:.1f} s, {job.processor_s:.1f} s of processor"
            walls, costs = [], []
            for _ in range(BATCHES if parts != "first" else 0):
                time.sleep(1.0)  # what the batch before left to do is no part of the next
                number = max(int(each.name) for each in (notes / "commits").glob("[0-9]*")) + 1
                before = job.processor_s
                facts(store, SMALL)
                job.wait_for(notes / "commits" / str(number))
                costs.append(job.processor_s - before)
                walls.append(
                    (notes / "commits" / str(number)).stat().st_mtime
                    - (notes / "offsets" / str(number)).stat().st_mtime
                )
            if walls:
                yield (
                    f"batch of {SMALL} facts: {median(walls[WARM:]):.2f} s, {median(costs[WARM:]):.2f} s of processor"
                    f" (all: {' '.join(f'{each:.2f}' for each in walls)} s)"
                )
        finally:
            job.end()


def facts(store: Any, number: int) -> None:
    """Append facts of one transaction, so that one batch has all of them."""
    pipe = store.client().pipeline(transaction=True)
    log_id = time.time_ns() // 1000
    for each in range(number):
        text = f'{{"first":{log_id + each},"channels":["/orders/{each % 50}"]}}'
        pipe.xadd(f"{PREFIX}{{crewel}}:facts", {"t": "published", "d": text})
    pipe.execute()


def backfill(code: Path, entries: int) -> Iterator[str]:
    """A backfill to gold, with its start and its end."""
    with filled(entries) as (store, tables):
        job = Command(store.url, tables, code, "backfill")
        try:
            seconds = job.wait()
            parts = " + ".join(f"{each:,.0f}" for each in job.peak_mb)
            yield f"backfill of {entries:,} entries: {seconds:.1f} s, {sum(job.peak_mb):,.0f} MB ({parts})"
        finally:
            job.end()


def main() -> None:
    """Measure and print."""
    line = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    line.add_argument("--only", default="", choices=["", "first", "small", "few", "many"])
    line.add_argument("--code", type=Path, default=BENCH.parent)
    line.add_argument("--rounds", type=int, default=2)
    options = line.parse_args()
    code = options.code.resolve()
    for _ in range(options.rounds):
        if options.only in ("", "first", "small"):
            for words in live(code, options.only):
                print(words, flush=True)
        for name, entries in (("few", 3000), ("many", 1_000_000)):
            if options.only in ("", name):
                for words in backfill(code, entries):
                    print(words, flush=True)
        print(f"load average {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
