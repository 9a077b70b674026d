"""The lock of a server on the data directory of its own store: whether its owner lives is known at once, also where nothing
else tells, as in a container that was started again."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from crewel.errors import SettingsError, StoreTaken

_LOCK = "server.lock"


def lock_directory(directory: Path) -> int:
    """Return the lock on this directory: an open file, which the system closes when the process ends.

    Raises StoreTaken, with the number of its process, if another server has it; SettingsError if the file cannot be made.
    """
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"storage.data_dir {directory}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise StoreTaken(f"process {owner}, which serves from {directory}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock
