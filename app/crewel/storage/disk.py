"""The disk of an embedded store: how full it is, and how much of it the store's own files have.

It is looked at on request.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

FREE_DISK: Final = 64 * 1024 * 1024
"""Bytes that the disk of a store of our own must have left."""
_FILES = "appendonlydir"
"""Where the store has its append-only file, which has several parts."""


class Disk(NamedTuple):
    """One disk, in bytes."""

    directory: str
    total: int
    free: int
    """What a process without special rights may still use."""
    used: int
    file: int
    """The append-only file of the store."""

    @property
    def share(self) -> float:
        """The used part of what can be used, as `df` has it: 1 is full."""
        return self.used / max(self.used + self.free, 1)


def look_at_disk(directory: Path) -> Disk | None:
    """Return how full the disk of this directory is; None if it cannot be looked at."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    size = found.f_frsize
    used = (found.f_blocks - found.f_bfree) * size
    return Disk(str(directory), found.f_blocks * size, found.f_bavail * size, used, _file_size(directory / _FILES))


def _file_size(directory: Path) -> int:
    size = 0
    with suppress(OSError), os.scandir(directory) as files:
        for file in files:
            with suppress(OSError):  # a rewrite has removed it meanwhile
                size += file.stat().st_size
    return size
