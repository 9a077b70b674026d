"""What a store must be so that the server trusts it: version, append-only file, eviction, format; and the space it has left.

A store of our own rewrites its file when it has doubled. On a disk that is nearly full that can fail, and the file would stay
as large as it is: as soon as there is room for it, the store is asked again.
"""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from crewel.errors import SettingsError, StoreUnavailable
from crewel.settings.storage import Storage
from crewel.storage.disk import FREE_DISK
from crewel.storage.keys import FORMAT, OLDEST_FORMAT, RESTORING
from crewel.storage.primary import ServiceUnknown
from crewel.storage.store_connection import no_connection

_OLDEST: Final = {"valkey": (7, 2), "redis": (7, 0)}

_FULL_FROM: Final = 0.9  # of maxmemory
_SCARCE_FROM: Final = 0.5
_COPIES: Final = 4  # of a message: in the log, in a history, in a queue; and what else they take
_REWRITE_EVERY_S: Final = 60.0
_MIB: Final = 1 << 20


class Loading(StoreUnavailable):
    """The store is there and reads its file."""


class StoreInfo:
    """What INFO says, as far as it matters here."""

    def __init__(self, info: bytes) -> None:
        """`info` is the store's answer to INFO; sections that it lacks are zero or empty here."""
        pairs = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
        self._rows = {name: value for name, colon, value in pairs if colon}

    @property
    def kind(self) -> str:
        """`valkey` or `redis`."""
        return "valkey" if "valkey_version" in self._rows else "redis"

    @property
    def version(self) -> str:
        """Such as 9.1.2."""
        return self._rows.get("valkey_version") or self._rows.get("redis_version", "0")

    @property
    def run_id(self) -> str:
        """Differs between two runs of a store."""
        return self._rows.get("run_id", "")

    @property
    def history(self) -> str:
        """Names the sequence of writes that this server and its replicas share; a promoted replica begins another one."""
        return self._rows.get("master_replid", "")

    @property
    def has_changed_role(self) -> bool:
        """Whether it was a replica before its history began, or has been promoted since."""
        return bool(self._rows.get("master_replid2", "").strip("0"))

    @property
    def replicas(self) -> int:
        """How many replicas are connected."""
        return int(self._rows.get("connected_slaves", 0))

    @property
    def requires_replicas(self) -> bool:
        """Whether it takes no write without a replica that has confirmed lately (`min-replicas-to-write`)."""
        return "min_slaves_good_slaves" in self._rows

    @property
    def is_loading(self) -> bool:
        """Whether it still reads its file."""
        return self._rows.get("loading") == "1"

    @property
    def is_replica(self) -> bool:
        """Whether it takes no writes, because it follows another."""
        return self._rows.get("role") == "slave"

    @property
    def appends(self) -> bool:
        """Whether it has an append-only file."""
        return self._rows.get("aof_enabled") == "1"

    @property
    def policy(self) -> str:
        """What it does when its memory is full: noeviction, or the name of what it evicts."""
        return self._rows.get("maxmemory_policy", "")

    @property
    def max_memory(self) -> int:
        """Bytes; 0 is no limit."""
        return int(self._rows.get("maxmemory", 0))

    @property
    def used_memory(self) -> int:
        """Bytes that count towards the limit."""
        return int(self._rows.get("used_memory", 0)) - int(self._rows.get("mem_not_counted_for_evict", 0))

    @property
    def has_write_error(self) -> bool:
        """Whether its last write to its file has failed."""
        return self._rows.get("aof_last_write_status") == "err"

    @property
    def rewrite_failed(self) -> bool:
        """Whether its last rewrite of its file has failed."""
        return self._rows.get("aof_last_bgrewrite_status") == "err"

    @property
    def is_rewriting(self) -> bool:
        """Whether it rewrites its file at this moment, or is about to."""
        return "1" in (self._rows.get("aof_rewrite_in_progress"), self._rows.get("aof_rewrite_scheduled"))

    @property
    def file_size(self) -> int:
        """Bytes of its file; 0 if it has none."""
        return int(self._rows.get("aof_current_size", 0))


def check_server(info: StoreInfo, storage: Storage) -> None:
    """Raise SettingsError for a store that is too old or would lose what `storage` promises, StoreUnavailable for a replica."""
    numbers = tuple(int(part) for part in info.version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST[info.kind]:
        needed = ".".join(map(str, _OLDEST[info.kind]))
        raise SettingsError(f"the store is {info.kind} {info.version}: {needed} or newer is needed")
    if info.is_replica:
        raise StoreUnavailable("the store is a replica, which accepts no writes")
    if not info.appends and storage.durability == "file":
        raise SettingsError(
            "the store has no append-only file, so it would lose answered messages: set `appendonly yes` in its "
            "configuration, or storage.durability=managed for a service that protects them otherwise"
        )
    if info.policy != "noeviction":
        raise SettingsError(
            f"the store may evict keys when its memory is full (maxmemory-policy {info.policy}):"
            " set `maxmemory-policy noeviction` in its configuration"
        )
    if storage.may_lose_by_fail_over and not info.requires_replicas:
        raise SettingsError(
            "the store can fail over but accepts writes without a replica, so an isolated primary would confirm writes "
            "that no replica has: set `min-replicas-to-write 1` in the configuration of all its servers"
        )


def check_format(found: bytes | None, *, is_empty: bool) -> int:
    """Return the format that the store has from now on. Raises SettingsError for one that this version cannot use."""
    if found is None:
        if is_empty:
            return FORMAT
        raise SettingsError(
            "the store has keys of Crewel but no format, as after an interrupted restore: restore again with --force"
        )
    if found == RESTORING.encode():
        raise SettingsError(
            "a restore has begun and is not complete: if it was interrupted, restore again with --force"
        )
    if found.isdigit() and OLDEST_FORMAT <= int(found) <= FORMAT:
        return FORMAT
    if found.isdigit() and int(found) > FORMAT:
        raise SettingsError(
            f"the store has format {int(found)}, and this version of Crewel knows {FORMAT}: use the newer version"
        )
    if found.isdigit() and int(found) > 0:
        raise SettingsError(
            f"the store has format {int(found)}, which Crewel had before 1.0; this version reads {OLDEST_FORMAT} and newer:"
            " begin with an empty store"
        )
    raise SettingsError(
        f"the store has format {found.decode('utf-8', 'replace')!r}, which no version of Crewel has written"
    )


def why_not(error: Exception, *, is_own: bool) -> SettingsError | StoreUnavailable:
    """Return why no connection could be made: what an operator must fix, or what may pass. A store that is not the server's own
    has the address in `storage.url`, which may contain a password."""
    while isinstance(error.__cause__, RedisError):  # the library wraps what the store answered
        error = error.__cause__
    if isinstance(error, BusyLoadingError):
        return Loading("the store is loading its file")
    if isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return SettingsError(f"storage.url: the store does not accept the user or the password: {error}")
    if isinstance(error, ServiceUnknown):
        return SettingsError(f"storage.url: {error}")
    if isinstance(error, ResponseError):
        return SettingsError(f"storage.url: the store answered: {error}")
    reason = f"the store cannot be reached: {no_connection(error)}"
    return StoreUnavailable(reason if is_own else f"{reason}; start it, or correct storage.url")


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
    """Return why the memory of a store counts as full; None if it does not."""
    if info.max_memory <= 0 or info.used_memory < _FULL_FROM * info.max_memory:
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
    left = max(int(_FULL_FROM * info.max_memory) - info.used_memory, 0)
    until_scarce = int(_SCARCE_FROM * info.max_memory) - info.used_memory
    until_look = max((until_scarce if until_scarce > 0 else left) / _COPIES, _MIB)
    return Room(until_scarce <= 0, left, until_look)
