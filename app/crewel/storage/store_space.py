"""The space that a store has left, in memory and on its disk, and when its file is to be rewritten.

A store of our own rewrites its file when it has doubled. On a disk that is nearly full that can fail, and the file would stay
as large as it is. As soon as there is room for it, the store is asked again.
"""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from crewel.storage.disk import FREE_DISK
from crewel.storage.store_info import StoreInfo

FULL_FROM: Final = 0.9
"""Of maxmemory, from where persistent publishes are refused."""
_SCARCE_FROM: Final = 0.5
_COPIES: Final = 4  # of a message: in the log, in a history, in a queue; and what else they take
_REWRITE_EVERY_S: Final = 60.0
_MIB: Final = 1 << 20


class Space:
    """Looks at the disk of a store of our own, and knows when its file should be rewritten."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._asked_at = -_REWRITE_EVERY_S
        self._free = 0

    def why_full(self, info: StoreInfo) -> str | None:
        """Return why nothing should be stored at the moment; None if there is room. Looks at the disk."""
        try:
            disk = os.statvfs(self._directory)
        except OSError as error:
            return f"storage.data_dir {self._directory} cannot be looked at: {error.strerror}"
        self._free = disk.f_bavail * disk.f_frsize
        if info.has_write_error:
            return "the store cannot write to its disk; store.log in storage.data_dir says why"
        if self._free < FREE_DISK:
            return (
                f"the disk of storage.data_dir {self._directory} has {self._free // _MIB} MiB left, less than"
                f" {FREE_DISK // _MIB}"
            )
        return why_full(info)

    def should_rewrite(self, info: StoreInfo, now: float) -> bool:
        """Whether the store should rewrite its file now (monotonic seconds), because it failed to, or because that makes
        room. To be asked after `why_full`; yes is meant to be followed, and comes once a minute at most."""
        if info.is_rewriting or now - self._asked_at < _REWRITE_EVERY_S:
            return False
        makes_room = self._free < FREE_DISK and info.file_size > 2 * info.used_memory
        if not (info.rewrite_failed or makes_room) or self._free < info.used_memory:
            return False
        self._asked_at = now
        return True


def why_full(info: StoreInfo) -> str | None:
    """Return why a store should not be written to, as far as its report tells; None if it has room."""
    if info.has_write_error:
        return "the store cannot write to its disk; its log says why"
    if info.max_memory <= 0 or info.used_memory < FULL_FROM * info.max_memory:
        return None
    return f"the memory of the store is full: {info.used_memory // _MIB} of {info.max_memory // _MIB} MiB"


class Room(NamedTuple):
    """How much the memory of a store can still take."""

    is_scarce: bool
    """Whether more than half of it is used."""
    left: int
    """Bytes until it counts as full."""
    until_look: float
    """Bytes of messages, before they are copied and indexed, that may come until it has to be looked at again."""


def room_of(info: StoreInfo) -> Room:
    """Return what room there is; without a limit there is always enough."""
    if info.max_memory <= 0:
        return Room(False, 0, inf)
    left = max(int(FULL_FROM * info.max_memory) - info.used_memory, 0)
    until_scarce = int(_SCARCE_FROM * info.max_memory) - info.used_memory
    until_look = max((until_scarce if until_scarce > 0 else left) / _COPIES, _MIB)
    return Room(until_scarce <= 0, left, until_look)
