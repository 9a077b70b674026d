"""Which process something was written by, so that a later reader can tell whether that process still lives."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple


class ProcessId(NamedTuple):
    """One process, distinct from all others that have had or will have its number."""

    pid: int
    machine: str
    """Which boot of which machine, and which namespace of processes; empty where that is unknown."""
    started: str
    """When the process started, by the clock of its machine: another process may have the same number later."""

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, on this machine: then it is known whether it lives."""
        return bool(self.machine) and self.machine == _machine()

    @property
    def is_dead(self) -> bool:
        """Whether it has ended for certain. False if it lives, and if nothing can be known from here."""
        return self.is_here and not _lives(self.pid, self.started)


def this_process() -> ProcessId:
    """Return the process that asks."""
    pid = os.getpid()
    return ProcessId(pid, _machine(), _started(pid))


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return the ticks between the start of the machine and that of the process; empty if that is unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _lives(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    return fields[0] not in "ZX" and fields[19] == started
