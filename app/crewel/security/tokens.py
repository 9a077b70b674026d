"""The admin token: the secret that makes an operator. From the settings, or a random one that is kept beside the store.

Beside a kept token stands the address of its server and its process, `admin.url`. Commands on the same machine show the token
there and nowhere else, and only while that process lives. A list of the user's servers, by port, lets commands find it from any
directory.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from crewel.addresses import HTTP_SCHEMES, is_loopback_host, parse
from crewel.errors import SettingsError
from crewel.processes import ProcessId, this_process

log = logging.getLogger(__name__)

_FILE: Final = "admin.token"
_ADDRESS: Final = "admin.url"


class AdminToken:
    """The token of one server; nothing matches before it is known."""

    def __init__(self) -> None:
        self._digest = b""
        self._unknown = secrets.token_bytes(32)

    def know(self, text: str) -> None:
        """This is the token from here on."""
        self._digest = _digest(text)

    def matches(self, text: str) -> bool:
        """Whether this is the token. Takes the same time wherever the two differ."""
        return bool(self._digest) and hmac.compare_digest(self._digest, _digest(text))

    def key(self, purpose: str) -> bytes:
        """A secret for this purpose that follows from the token; as long as none is known, one that no one else has."""
        return derived_key(self._digest or self._unknown, purpose)


def key_of(token: str, purpose: str) -> bytes:
    """The secret for this purpose that `AdminToken.key` of a server with this token returns."""
    return derived_key(_digest(token), purpose)


def derived_key(digest: bytes, purpose: str) -> bytes:
    """A key for one purpose, from which neither the digest nor another key follows."""
    return hmac.digest(digest, purpose.encode("ascii"), "sha256")


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


def find_token(url: str, data_dir: str) -> str | None:
    """The kept token of the server with this address, which keeps it in `data_dir` or in the data directory of another server
    that this user has started. None if there is none. A token that was made for another address is left alone, and so is that
    of a server that has ended: another one may have its port."""
    asked = urlsplit(url)
    for directory in (data_dir, _listed(asked)):
        if directory is not None and _is_made_for(directory, asked) and (token := read_token(directory)) is not None:
            return token
    return None


def address_kept(data_dir: str) -> str | None:
    """The Bayeux address of the server that keeps its token there; None if none does, or it has ended."""
    noted = _noted(data_dir)
    return noted.geturl() if noted is not None else None


def note_address(data_dir: str, url: str) -> None:
    """The server that keeps its token there serves at this address from now on. What cannot be written is done without."""
    notes = {Path(data_dir) / _ADDRESS: "\n".join([url, *map(str, this_process())])}
    servers = _list()
    if servers is None:
        log.info("commands in other directories may not find the admin token: this user has no home directory")
    else:
        notes[servers / str(urlsplit(url).port)] = str(Path(data_dir).absolute())
    for file, text in notes.items():
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(file, text)
        except OSError as error:
            log.info("commands may not find the admin token: %s", error)


def _listed(asked: SplitResult) -> str | None:
    servers = _list()
    if servers is None:
        return None
    try:
        return (
            (servers / str(asked.port or (443 if HTTP_SCHEMES.get(asked.scheme) == "https" else 80)))
            .read_text("utf-8")
            .strip()
        )
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def _list() -> Path | None:
    """Where the user's servers are listed; None for a user without a home, such as a bare number in a container."""
    state = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(state) if state else Path.home() / ".local" / "state") / "crewel" / "servers"
    except RuntimeError:
        return None


def _noted(data_dir: str) -> SplitResult | None:
    """The address of the server that keeps its token there; None if there is none that lives."""
    try:
        url, pid, machine, started = (Path(data_dir) / _ADDRESS).read_text("utf-8").splitlines()
        return None if ProcessId(int(pid), machine, started).is_dead else urlsplit(url)
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def _is_made_for(data_dir: str, asked: SplitResult) -> bool:
    noted = _noted(data_dir)
    try:
        if noted is None or noted.port != asked.port or HTTP_SCHEMES[noted.scheme] != HTTP_SCHEMES[asked.scheme]:
            return False
    except (ValueError, KeyError):
        return False
    return asked.hostname == noted.hostname or (_is_here(asked.hostname) and _is_here(noted.hostname))


def _is_here(host: str | None) -> bool:
    """Whether a server with this host is one of this machine that also answers on loopback."""
    address = parse(host or "")
    return is_loopback_host(host or "") or (address is not None and address.is_unspecified)


def keep_token(data_dir: str) -> str:
    """The token that is kept there; a new one if there is none. Only the user can read the file, and it is there whole or
    not at all, also when two servers start at the same time. Raises OSError, and SettingsError for one that is too short."""
    from crewel.settings.access import MIN_TOKEN  # slow to import, and commands only read tokens

    file = token_file(data_dir)
    kept = read_token(data_dir)
    if kept is None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _place(file, secrets.token_urlsafe(32))
        kept = file.read_text("ascii").strip()
    if len(kept) < MIN_TOKEN:
        raise SettingsError(
            f"{file} holds a token of {len(kept)} characters, but the minimum is {MIN_TOKEN}: remove the file to get a new one"
        )
    if file.stat().st_mode & 0o077:
        log.warning("%s can be read by others: chmod 600 it, or put a new token in its place", file)
    return kept


def _place(file: Path, token: str) -> None:
    # A link fails if the file exists, where a rename would replace the token of the other server.
    new = _new(file, token)
    try:
        with suppress(FileExistsError):  # another server was quicker, and its token counts
            os.link(new, file)
    finally:
        new.unlink()


def _write(file: Path, text: str) -> None:
    _new(file, text).replace(file)


def _new(file: Path, text: str) -> Path:
    """A file beside this one that holds the text, and that only the user can read."""
    new = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as writer:
        writer.write(text + "\n")
        writer.flush()
        os.fsync(writer.fileno())
    return new
