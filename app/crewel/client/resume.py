"""Where the secret of a session is kept, so that the next process takes the session over at once.

The server gives out another secret at each login (docs/reference/sessions.md). It is kept before the session is used: a process
that is killed at any moment leaves a secret that still holds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from yarl import URL

from crewel.client.arguments import check_function
from crewel.client.callbacks import result_of
from crewel.client.errors import ClientError, said
from crewel.qos.connect import MAX_SECRET
from crewel.qos.names import as_file_name


class ResumeStore(Protocol):
    """Keeps the secret of one session."""

    async def load(self) -> str | None:
        """The secret that was kept last; None if there is none. Raises ClientError."""

    async def save(self, secret: str) -> None:
        """Keep it. Raises ClientError."""


@dataclass(frozen=True, slots=True)
class ResumeFile:
    """Keeps it in a file that only its owner can read."""

    path: Path

    async def load(self) -> str | None:
        """The content of the file; None if there is no such file, or nothing in it."""
        return await asyncio.to_thread(read_secret, self.path)

    async def save(self, secret: str) -> None:
        """Replace the file."""
        await asyncio.to_thread(write_secret, self.path, secret)


@dataclass(frozen=True, slots=True)
class ResumeCallbacks:
    """Keeps it where two functions of the application do, such as a vault or a table; they may be coroutine functions."""

    on_load: Callable[[], Awaitable[str | None] | str | None]
    on_save: Callable[[str], Awaitable[None] | None]

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_function(name, getattr(self, name))

    async def load(self) -> str | None:
        """What `on_load` returns."""
        try:
            secret = await result_of(self.on_load)
        except (Exception, SystemExit) as error:
            raise ClientError(f"the function that loads the resume secret failed: {said(error)}") from error
        if secret is not None and not isinstance(secret, str):
            raise ClientError(
                f"the function that loads the resume secret returned {type(secret).__name__}, not a string"
            )
        return secret or None

    async def save(self, secret: str) -> None:
        """Call `on_save`."""
        try:
            await result_of(self.on_save, secret)
        except (Exception, SystemExit) as error:
            raise ClientError(f"the function that saves the resume secret failed: {said(error)}") from error


def default_file(url: str, name: str) -> Path:
    """Where a worker of this name keeps its secret unless it says where: in `STATE_DIRECTORY`, which systemd sets for a unit
    with `StateDirectory=`, else below `XDG_STATE_HOME` or `~/.local/state`. Raises ClientError for a user without a home."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    try:
        state = Path(given) if given else _user_state() / "crewel" / "resume"
    except RuntimeError:
        raise ClientError(
            f"{name} has no place for the secret of its session, because this user has no home directory: give resume_file or "
            "resume_store, or set STATE_DIRECTORY or XDG_STATE_HOME"
        ) from None
    server = URL(url)
    return state / f"{as_file_name(f'{server.host}-{server.port}-{name}')}.resume"


def _user_state() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    return Path(given) if given else Path.home() / ".local" / "state"


def read_secret(path: Path) -> str | None:
    """What was kept; None if there is no such file, or nothing in it. Raises ClientError for a file that cannot be read."""
    try:
        with path.open(encoding="ascii") as source:
            return source.read(MAX_SECRET).strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"the resume file {path} cannot be read: {error}") from None


def write_secret(path: Path, secret: str) -> None:
    """Keep it, for the owner of the file only. Raises ClientError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A new file, and not the old one: that may be a link, or readable by others.
        with suppress(FileNotFoundError):
            beside.unlink()
        with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as target:
            target.write(f"{secret}\n")
            target.flush()
            os.fsync(target.fileno())
        beside.replace(path)
    except OSError as error:
        raise ClientError(f"the resume file {path} cannot be written: {error}") from None
