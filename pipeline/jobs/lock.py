"""Who may add to the tables, and who may put parts together: one job at a time. A lock goes with its process."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from crewel.errors import CrewelError

_WRITING: Final = "lock"
_MERGING: Final = "lock-parts"


class TablesBusy(CrewelError):
    """Another job does to the tables what one only may do at a time."""


def writing(root: Path | str, job: str) -> AbstractContextManager[None]:
    """Be the one who adds to the tables. Raises TablesBusy.

    A directory that is not of this machine, `hdfs://...`, has no such lock: there its owner starts one job at a time.
    """
    return _holding(root, _WRITING, job, "adds to these tables, and only one job may at a time")


def merging(root: Path | str, job: str) -> AbstractContextManager[None]:
    """Be the one who puts parts of the tables together. Raises TablesBusy. As `writing`, but another lock."""
    return _holding(root, _MERGING, job, "puts the parts of these tables together already")


@contextmanager
def _holding(root: Path | str, name: str, job: str, what: str) -> Iterator[None]:
    if "://" in str(root):
        yield
        return
    directory = Path(root)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / name).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            other = lock.read().strip() or "another job"
            raise TablesBusy(f"{directory}: {other} {what}") from None
        lock.truncate(0)
        lock.write(job)
        lock.flush()
        yield
