"""Where the store is, and connections to it that come back.

An address holds a password. It is never an option of Spark, for those stand in plans, in logs and on its pages: it goes to the
processes of Spark inside of pickled objects, whose text does not tell it.
"""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crewel.errors import SettingsError, StoreFull, StoreUnavailable
from crewel.storage.keys import Keys
from crewel.storage.primary import client_at
from crewel.storage.store_connection import store_error

LIMIT_S: Final = 20.0
"""Seconds that the store has to answer."""

PATIENCE_S: Final = 60.0
"""Seconds for which a store that is away is waited for."""

_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between attempts; the last one is repeated
_READ_BYTES: Final = 1024 * 1024
_SOCKET: Final = "store.sock"
_NOT_SHOWN: Final = "an address that cannot be shown"
_LONGEST_SOCKET_PATH: Final = 100  # Linux takes 107 bytes, macOS 103
_AWAY: Final = (redis.ConnectionError, redis.TimeoutError, OSError)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where the store is and what its keys begin with."""

    url: str
    prefix: str = "crewel:"

    @classmethod
    def found(cls, environ: Mapping[str, str] | None = None, config: Path = Path("crewel.toml")) -> Address:
        """Return the address by the settings of the server: `storage.url`, or the socket of the store that a server has in
        `storage.data_dir`; and `storage.prefix`. The environment comes before the file. Raises SettingsError."""
        environ = os.environ if environ is None else environ
        written = _written(config)

        def setting(name: str, otherwise: str) -> str:
            return environ.get(f"CREWEL_STORAGE__{name.upper()}") or str(written.get(name) or otherwise)

        return cls(
            setting("url", "") or _socket_of(Path(setting("data_dir", "./data"))), setting("prefix", cls("").prefix)
        )

    @property
    def keys(self) -> Keys:
        """The names of the keys."""
        return Keys(self.prefix)

    def client(self) -> redis.Redis:
        """Return a client, which has not connected yet. Raises SettingsError for an address that is none."""
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": LIMIT_S,
            "socket_connect_timeout": LIMIT_S,
            "socket_read_size": _READ_BYTES,
            "retry": Retry(NoBackoff(), 0),
            "client_name": "crewel-pipeline",
        }
        try:
            return client_at(self.url, self.keys.base, options)
        except (ValueError, TypeError):  # whose words may be a part of the password
            raise SettingsError(f"storage.url {self!r}: it is no address of a store") from None

    def connection(self) -> Any:
        """Return a single connection of the client library, to send commands ahead of answers. Raises what that raises."""
        connection: Any = self.client().connection_pool.make_connection()
        connection.connect()
        return connection

    def __repr__(self) -> str:
        try:
            parts = urlsplit(self.url)
        except ValueError:  # as for a password with a bracket
            return _NOT_SHOWN
        if parts.netloc and "@" in self.url and "@" not in parts.netloc:  # as for a password with a slash
            return _NOT_SHOWN
        place = parts.path if parts.scheme == "unix" else f"//{parts.netloc.rpartition('@')[2]}"
        return f"{parts.scheme}:{place}"


def is_away(error: Exception) -> bool:
    """Whether the store may take the same later: it cannot be reached, has no space, or is not the primary, say."""
    if isinstance(error, redis.ResponseError):
        return isinstance(store_error(error), StoreUnavailable | StoreFull)
    return isinstance(error, _AWAY)


def patiently(step: Callable[[], _T], patience_s: float = PATIENCE_S) -> _T:
    """Return what `step` returns; while the store `is_away`, try again.

    The step has to be one that may be done twice. Raises StoreUnavailable after `patience_s` seconds.
    """
    deadline = time.monotonic() + patience_s
    attempt = 0
    while True:
        try:
            return step()
        except redis.AuthenticationError as error:
            raise StoreUnavailable(f"the store refuses this user and password: {error}") from error
        except (redis.RedisError, OSError) as error:
            if not is_away(error):
                raise
            pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
            attempt += 1
            if time.monotonic() + pause > deadline:
                raise StoreUnavailable(f"the store has been away for {patience_s:.0f} s: {error}") from error
            time.sleep(pause)


def _written(config: Path) -> Mapping[str, Any]:
    """Return what a file says about the store; a file that is not there says nothing."""
    try:
        storage = tomllib.loads(config.read_text("utf-8")).get("storage", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{config}: it cannot be read: {error}") from error
    return storage if isinstance(storage, dict) else {}


def _socket_of(directory: Path) -> str:
    """Return the address of a server's own store."""
    socket = directory.resolve() / _SOCKET
    if len(os.fsencode(socket)) > _LONGEST_SOCKET_PATH:
        raise SettingsError(f"storage.data_dir {directory}: its path is too long for a socket; set storage.url")
    return f"unix://{quote(str(socket))}"
