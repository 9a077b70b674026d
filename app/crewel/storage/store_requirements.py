"""What a store must be so that the server trusts it: version, append-only file, eviction, replicas, format."""

from __future__ import annotations

from typing import Final

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
from crewel.storage.keys import FORMAT, RESTORING
from crewel.storage.primary import ServiceUnknown
from crewel.storage.store_connection import no_connection
from crewel.storage.store_info import StoreInfo

_OLDEST: Final = {"valkey": (7, 2), "redis": (7, 0)}


class Loading(StoreUnavailable):
    """The store is there and reads its file."""


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


def check_format(found: bytes | None, *, is_empty: bool) -> None:
    """Raise SettingsError if the store has a format that this version cannot use, or has keys but no format."""
    if found is None and not is_empty:
        raise SettingsError(
            "the store has keys of Crewel but no format, as after an interrupted restore: restore again with --force"
        )
    if found == RESTORING.encode():
        raise SettingsError(
            "a restore has begun and is not complete: if it was interrupted, restore again with --force"
        )
    if found is None or found == b"%d" % FORMAT:
        return
    if found.isdigit() and int(found) > FORMAT:
        raise SettingsError(
            f"the store has format {int(found)}, and this version of Crewel knows {FORMAT}: use the newer version"
        )
    raise SettingsError(
        f"the store has format {found.decode('utf-8', 'replace')!r}, which no release of Crewel has written"
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
