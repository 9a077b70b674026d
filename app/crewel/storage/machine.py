"""The machine that the store of the server's own runs on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_CONTAINER_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_bytes(container_limits: tuple[Path, ...] = _CONTAINER_LIMITS) -> int:
    """The memory of the machine, or of the container, if that may use less. Reads files."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *(limit for path in container_limits if (limit := _limit(path)) is not None)])


def _limit(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):  # there is no such file, or it says `max`
        return None
