"""What a store must be so that the server trusts it: version, append-only file, eviction, format."""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from crewel.errors import SettingsError, StoreUnavailable
from crewel.storage.keys import FORMAT

_OLDEST = {"valkey": (7, 2), "redis": (7, 0)}


class Loading(StoreUnavailable):
    """The store is there and reads its file."""


class Facts:
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


def check_server(facts: Facts) -> None:
    """Raise SettingsError for a store that is too old or would lose keys, StoreUnavailable for a replica."""
    numbers = tuple(int(part) for part in facts.version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST[facts.kind]:
        needed = ".".join(map(str, _OLDEST[facts.kind]))
        raise SettingsError(f"the store is {facts.kind} {facts.version}: {needed} or newer is needed")
    if facts.is_replica:
        raise StoreUnavailable("the store is a replica, which takes no writes")
    if not facts.appends:
        raise SettingsError(
            "the store keeps no append-only file, so that it would forget what was answered:"
            " set `appendonly yes` in its configuration"
        )
    if facts.policy != "noeviction":
        raise SettingsError(
            f"the store may evict keys when its memory is full (maxmemory-policy {facts.policy}):"
            " set `maxmemory-policy noeviction` in its configuration"
        )


def check_format(found: bytes | None, *, is_empty: bool) -> int:
    """Return the format that the store has from now on. Raises SettingsError for one that this version cannot use."""
    if found is None:
        if is_empty:
            return FORMAT
        raise SettingsError(
            "the store holds keys of Crewel without their format, as an interrupted restore leaves them:"
            " restore again with --force"
        )
    if found.isdigit() and 1 <= int(found) <= FORMAT:
        return FORMAT
    if found.isdigit() and int(found) > FORMAT:
        raise SettingsError(
            f"the store has format {int(found)}, and this version of Crewel knows {FORMAT}: use the newer version"
        )
    raise SettingsError(
        f"the store has format {found.decode('utf-8', 'replace')!r}, which no version of Crewel has written"
    )


def why_not(error: Exception) -> SettingsError | StoreUnavailable:
    """Return why no connection could be made: what an operator must mend, or what may pass."""
    while isinstance(error.__cause__, RedisError):  # the library wraps what the store answered
        error = error.__cause__
    if isinstance(error, BusyLoadingError):
        return Loading("the store reads its file")
    if isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return SettingsError(f"storage.url: the store does not accept the user or the password: {error}")
    if isinstance(error, ResponseError):
        return SettingsError(f"storage.url: the store answered: {error}")
    return StoreUnavailable(f"the store cannot be reached: {error or 'no answer in time'}")
