"""The lease of a running server: while it lasts, no other server takes the sessions of its owner.

A server renews its lease as long as it lives. One that was killed leaves a lease behind; a server on the same machine need not
wait for its end, because the lease names the process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from crewel.delivery.records import LogId
from crewel.storage.answers import unless_refused
from crewel.storage.keys import Keys
from crewel.storage.steps import Step


@dataclass(frozen=True, slots=True)
class Owner:
    """What a lease says of the server that has it."""

    node: str
    """The server's `node.name`."""
    pid: int
    host: str
    machine: str
    """Which boot of which machine, and which namespace of processes; empty where nothing tells."""
    started: str
    """When the process started, by the clock of its machine: another process may have the same number later."""
    has_directory: bool
    """Whether it holds the lock on the data directory of its own store."""

    def __str__(self) -> str:
        return f"{self.node}, process {self.pid} on {self.host}"

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended for certain. False if it lives, and if nothing can be known from here."""
        return bool(self.machine) and self.machine == _machine() and not _lives(self.pid, self.started)


@dataclass(frozen=True, slots=True)
class Claimed:
    """Another server has a lease."""

    token: str
    owner: Owner
    lasts: float
    """Seconds until the lease ends, unless it is renewed."""


def this_process(node: str, *, has_directory: bool) -> Owner:
    """Return what a lease says of this process."""
    pid = os.getpid()
    return Owner(node, pid, socket.gethostname(), _machine(), _started(pid), has_directory)


def claim(
    k: Keys, token: str, node_name: str, owner: Owner, lasts_ms: int, dead: Iterable[str] = ()
) -> Step[LogId | Claimed]:
    """Register a starting server with a lease, unless another server has one; those of `dead` tokens do not count. Returns its
    cursor as `sessions.boot` does, or whose lease it was."""
    keys = (k.last, k.nodes, k.node(token), k.epoch, k.lease(token))
    return Step("boot", keys, (token, node_name, k.base, lasts_ms, orjson.dumps(asdict(owner)), *dead), _claimed)


def renew(k: Keys, token: str, owner: Owner, lasts_ms: int) -> Step[None]:
    """Let the lease last for so long from now on; 0 ends it. Raises Fenced if another server has taken the sessions."""
    return Step("renew", (k.node(token), k.lease(token)), (lasts_ms, orjson.dumps(asdict(owner))), _renewed)


@unless_refused
def _claimed(answer: Any) -> LogId | Claimed:
    if isinstance(answer, int):
        return LogId(answer)
    token, owner, lasts_ms = answer
    return Claimed(token.decode(), Owner(**orjson.loads(owner)), lasts_ms / 1000)


@unless_refused
def _renewed(answer: Any) -> None:
    return None


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return the ticks between the start of the machine and that of the process; empty if nothing tells."""
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
