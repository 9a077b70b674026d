"""The admin token: the secret that makes an operator. From the settings, or a random one that is kept beside the store."""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["AdminToken", "keep_token", "read_token", "token_file"]

log = logging.getLogger(__name__)

_FILE: Final = "admin.token"


class AdminToken:
    """The token of one server; nothing matches before it is known."""

    def __init__(self) -> None:
        self._digest = b""

    def know(self, text: str) -> None:
        """This is the token from here on."""
        self._digest = _digest(text)

    def matches(self, text: str) -> bool:
        """Whether this is the token. Takes the same time wherever the two differ."""
        return bool(self._digest) and hmac.compare_digest(self._digest, _digest(text))


def _digest(text: str) -> bytes:
    # Of one length, so that the comparison does not tell the token's.
    return hmac.digest(b"crewel", text.encode("utf-8", "surrogatepass"), "sha256")


def token_file(data_dir: str) -> Path:
    """Where a server with this `storage.data_dir` keeps its token."""
    return Path(data_dir) / _FILE


def read_token(data_dir: str) -> str | None:
    """The token that is kept there, for clients on the same machine; None if there is none that can be read."""
    try:
        return token_file(data_dir).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def keep_token(data_dir: str) -> str:
    """The token that is kept there; a new one if there is none. Only the user can read the file, and it is there whole or
    not at all, also when two servers start at the same time. Raises OSError."""
    file = token_file(data_dir)
    kept = read_token(data_dir)
    if kept is None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _place(file, secrets.token_urlsafe(32))
        kept = file.read_text("ascii").strip()
    if file.stat().st_mode & 0o077:
        log.warning("%s can be read by others: chmod 600 it, or put a new token in its place", file)
    return kept


def _place(file: Path, token: str) -> None:
    new = file.with_name(f"{_FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as writer:
            writer.write(token + "\n")
            writer.flush()
            os.fsync(writer.fileno())
        with suppress(FileExistsError):  # another server was quicker, and its token counts
            os.link(new, file)
    finally:
        new.unlink()
