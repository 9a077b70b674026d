"""One job at a time adds to the tables, and one merges, removes or replaces their files. A lock goes with its process.

Delta's log finds out that a batch is there already, but not that another batch has the same entries: a backfill and the live
job would each add what the other is about to. Nor does deltalake refuse the second of two merges of the same files (1.6.6): it
takes what both made of them, and each row is there twice. In the same way a merge could bring rows back that another job has
removed or replaced meanwhile.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from crewel.errors import CrewelError

_NAME: Final = "lock"
_MERGING: Final = "merging"


class TablesBusy(CrewelError):
    """Another job adds to the tables."""


def check(root: Path | str) -> None:
    """Raise TablesBusy if another job adds to the tables now: before Spark takes its time to start."""
    if "://" in str(root) or not (Path(root) / _NAME).is_file():
        return
    with writing(root, "a job"):
        pass


@contextmanager
def writing(root: Path | str, job: str) -> Iterator[None]:
    """Be the one who adds to the tables. Raises TablesBusy.

    A directory that is not of this machine, `hdfs://...`, has no such lock: there its owner starts one job at a time.
    """
    if "://" in str(root):
        yield
        return
    directory = Path(root)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _NAME).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            other = lock.read().strip() or "another job"
            raise TablesBusy(f"{directory}: {other} adds to these tables, and only one job may at a time") from None
        lock.truncate(0)
        lock.write(job)
        lock.flush()
        yield


@contextmanager
def merging(root: Path | str) -> Iterator[None]:
    """Be the one that merges files, or lets files of tables that are merged count no more, when all others have ended. As with
    `writing`, other machines have no such lock."""
    if "://" in str(root):
        yield
        return
    with (Path(root) / _MERGING).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
