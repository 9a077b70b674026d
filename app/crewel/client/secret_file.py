"""The file in which a client keeps the `resume` of its session, so that its next process takes the session over at once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from crewel.client.errors import ClientError

_LONGEST = 8192


def read_secret(path: Path) -> str | None:
    """What was kept; None if there is no such file, or nothing in it. Raises ClientError for a file that cannot be read."""
    try:
        with path.open(encoding="ascii") as source:
            return source.read(_LONGEST).strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"the resume file {path} cannot be read: {error}") from None


def write_secret(path: Path, secret: str) -> None:
    """Keep it, for the owner of the file only. Raises ClientError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # A new file, and not the old one: that may be a link, or readable by others.
        with suppress(FileNotFoundError):
            beside.unlink()
        with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as target:
            target.write(f"{secret}\n")
        beside.replace(path)
    except OSError as error:
        raise ClientError(f"the resume file {path} cannot be written: {error}") from None
