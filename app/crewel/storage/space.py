"""How much space the store has left, in memory and, if it is a store of our own, on its disk.

A store of our own rewrites its file when it has doubled. On a disk that is nearly full that can fail, and the file would stay
as large as it is: as soon as there is room for it, the store is asked again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from crewel.storage.checks import Facts

FREE_DISK: Final = 64 * 1024 * 1024
"""Bytes that the disk of a store of our own must have left."""
_FULL_FROM: Final = 0.9  # of maxmemory
_REWRITE_EVERY_S: Final = 60.0
_MIB: Final = 1 << 20


class Space:
    """Looks at the disk of a store of our own, and knows when its file should be rewritten."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._asked_at = -_REWRITE_EVERY_S
        self._free = 0

    def why_full(self, facts: Facts) -> str | None:
        """Return why nothing should be stored at the moment; None if there is room. Looks at the disk."""
        try:
            disk = os.statvfs(self._directory)
        except OSError as error:
            return f"storage.data_dir {self._directory} cannot be looked at: {error.strerror}"
        self._free = disk.f_bavail * disk.f_frsize
        if facts.has_write_error:
            return "the store cannot write to its disk; store.log in storage.data_dir says why"
        if self._free < FREE_DISK:
            return (
                f"the disk of storage.data_dir {self._directory} has {self._free // _MIB} MiB left, less than"
                f" {FREE_DISK // _MIB}"
            )
        return why_full(facts)

    def should_rewrite(self, facts: Facts, now: float) -> bool:
        """Whether the store should rewrite its file now (monotonic seconds), because it failed to, or because that makes
        room. To be asked after `why_full`; yes is meant to be followed, and comes once a minute at most."""
        if facts.is_rewriting or now - self._asked_at < _REWRITE_EVERY_S:
            return False
        makes_room = self._free < FREE_DISK and facts.file_size > 2 * facts.used_memory
        if not (facts.rewrite_failed or makes_room) or self._free < facts.used_memory:
            return False
        self._asked_at = now
        return True


def why_full(facts: Facts) -> str | None:
    """Return why the memory of a store counts as full; None if it does not."""
    if facts.max_memory <= 0 or facts.used_memory < _FULL_FROM * facts.max_memory:
        return None
    return f"the memory of the store is full: {facts.used_memory // _MIB} of {facts.max_memory // _MIB} MiB"
