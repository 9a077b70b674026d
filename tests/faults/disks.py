"""Disks that can be filled, for the store of one test."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.faults.health import store_pid
from tests.server_process import Server
from tests.store_process import PROGRAM

MIB = 1 << 20


class SmallDisk:
    """A tmpfs of its own: what is full is full. Needs root."""

    def __init__(self, directory: Path, mib: int = 160) -> None:
        self.path = directory / "disk"
        self.path.mkdir()
        _mount(self.path, mib)
        self.sets = ("storage.url=", f"storage.data_dir={self.path / 'data'}")

    def fill(self, server: Server) -> None:
        """Take all the space there is."""
        assert server.pid
        with suppress(OSError), (self.path / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(MIB))
        with suppress(OSError), (self.path / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(b"0")

    def fill_to(self, percent: int) -> None:
        """Take so much of the space."""
        found = os.statvfs(self.path)
        wanted = (found.f_blocks * percent // 100 - (found.f_blocks - found.f_bfree)) * found.f_frsize
        with (self.path / "ballast").open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), wanted)

    def free(self, server: Server) -> None:
        """Give it back."""
        assert server.pid
        (self.path / "ballast").unlink()

    def close(self) -> None:
        """Take the disk away."""
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


class Quota:
    """A limit for the size of each file of the store, which meets it as a full disk. Needs nothing."""

    def __init__(self, directory: Path) -> None:
        binary = directory / "store-with-a-quota"
        # A shell ignores the signal for it, so that a write beyond the limit fails as it does where a disk is full.
        binary.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {shlex.quote(PROGRAM)} \"$@\"\n")
        binary.chmod(0o755)
        self._data = directory / "data"
        self.sets = ("storage.url=", f"storage.data_dir={self._data}", f"storage.server_binary={binary}")

    def fill(self, server: Server) -> None:
        """Let no file grow further. A store that is started again has the limit of its server."""
        size = max(file.stat().st_size for file in (self._data / "appendonlydir").iterdir())
        self._limit(server, size)

    def free(self, server: Server) -> None:
        """Let them grow again."""
        self._limit(server, resource.RLIM_INFINITY)

    def close(self) -> None:
        """Nothing is left."""

    def _limit(self, server: Server, size: int) -> None:
        limits = (size, resource.RLIM_INFINITY)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
        with suppress(ProcessLookupError, ValueError):  # it is between two lives
            resource.prlimit(store_pid(server), resource.RLIMIT_FSIZE, limits)


def _mount(path: Path, mib: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "crewel-test", str(path)], check=True)


def can_mount() -> bool:
    """Whether this process may mount a file system."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as directory:
        try:
            _mount(Path(directory), 1)
        except (subprocess.CalledProcessError, FileNotFoundError):
            return False
        subprocess.run(["umount", directory], check=True)
    return True


DISKS = [Quota, *([SmallDisk] if can_mount() else [])]
