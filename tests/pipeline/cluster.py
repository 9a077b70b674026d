"""Spark's own standalone cluster: a master and a worker in processes of their own, on ports that were free, within little
memory. They end with whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.ports import free_port
from tests.store_process import _die_with_owner

__all__ = ["Cluster", "cluster"]

HOME = Path(pyspark.__file__).parent
CORES, WORKER_MB = 2, 1024
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """One master with one worker."""

    url: str
    directory: Path

    def submit(self, *arguments: str, limit_s: float, **environ: str) -> subprocess.CompletedProcess[str]:
        """Give a job to spark-submit, and wait until it has ended."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "600m",
            "spark.executor.cores": str(CORES),
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            # As the defaults of a cluster may say. Days are those of UTC all the same.
            "spark.sql.session.timeZone": "Pacific/Kiritimati",
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.url, *options, *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=_environ(**environ), capture_output=True, text=True, timeout=limit_s
        )

    @property
    def log(self) -> str:
        """What master and worker have said."""
        return "".join(path.read_text() for path in sorted(self.directory.glob("*.log")))


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Start a master and a worker, and end both."""
    port = free_port()
    started = Cluster(f"spark://127.0.0.1:{port}", directory)
    processes = []
    try:
        processes.append(
            _start(directory, "master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        )
        _until(lambda: "Bound MasterWebUI" in started.log or "I have been elected leader" in started.log)
        limits = ("--cores", str(CORES), "--memory", f"{WORKER_MB}m", "--work-dir", str(directory / "work"))
        where = ("--host", "127.0.0.1", "--webui-port", str(free_port()))
        processes.append(_start(directory, "worker", *where, *limits, started.url))
        _until(lambda: "Successfully registered with master" in started.log)
        yield started
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)


def _start(directory: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    words = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}.{name.capitalize()}", *arguments]
    with (directory / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            words,
            cwd=directory,
            env=_environ(),
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_owner(),  # noqa: PLW1509
        )


def _environ(**more: str) -> dict[str, str]:
    usual = {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return {**os.environ, **usual, **more}
