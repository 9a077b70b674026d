"""Which process something was written by, so that a later reader can tell whether that process still lives."""

from __future__ import annotations

import os
import select
from collections.abc import Collection, Iterable, Mapping
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


class Watch:
    """Tells which processes of this machine have ended. Where the system has descriptors of processes (Linux since 5.3), one is
    open for each that lives, so that a further look at it reads no file."""

    def __init__(self) -> None:
        self._descriptors: dict[ProcessId, int] = {}

    def keep(self, processes: Collection[ProcessId]) -> set[ProcessId]:
        """Watch none but these; returns those that `met` has to look at, for there is no descriptor of them."""
        for process in self._descriptors.keys() - processes:
            os.close(self._descriptors.pop(process))
        return set(processes) - self._descriptors.keys()

    def add(self, descriptors: Mapping[ProcessId, int]) -> None:
        """Watch these, too, as `met` has returned them."""
        for process, descriptor in descriptors.items():
            if process in self._descriptors:
                os.close(descriptor)
            else:
                self._descriptors[process] = descriptor

    def ended(self) -> set[ProcessId]:
        """Those that have ended since they are watched."""
        if not self._descriptors:
            return set()
        poll = select.poll()
        for descriptor in self._descriptors.values():
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(0)}
        return {process for process, descriptor in self._descriptors.items() if descriptor in ready}


def met(processes: Iterable[ProcessId]) -> tuple[set[ProcessId], dict[ProcessId, int]]:
    """Return which of these have ended, and descriptors of others. Reads files."""
    dead, descriptors = set(), {}
    for process in processes:
        descriptor = _descriptor(process.pid)  # before the look, for another process may have the number after it
        if process.is_dead:
            dead.add(process)
            if descriptor is not None:
                os.close(descriptor)
        elif descriptor is not None:
            descriptors[process] = descriptor
    return dead, descriptors


def _descriptor(pid: int) -> int | None:
    """A descriptor that can be read when this process has ended; None if there is none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


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
