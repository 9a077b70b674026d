"""The files of a store of our own, and the marker that says what they hold.

The store starts empty where it finds no files, and overwrites what it takes for left-overs. So it is started only where its
files are whole, or where nothing was before.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson

from crewel.errors import SettingsError

LOG_DIRECTORY: Final = "appendonlydir"
_MANIFEST: Final = "appendonly.aof.manifest"
_MARKER: Final = "contents.json"
_LOG_FILE: Final = re.compile(r"appendonly\.aof\.(?P<number>\d+)\.(?P<kind>base|incr)\.(?:aof|rdb)")
_TEMPORARY: Final = ("temp-*.aof", "temp-*.rdb", f"{LOG_DIRECTORY}/temp*")
_DAMAGE: Final = re.compile(
    r"Bad file format|Unrecoverable error|Unexpected end of file reading|append only file .* doesn't exist"
    r"|Invalid AOF manifest|Wrong signature|Error loading|Short read or OOM|Non-existent .*AOF|AOF file .* is wrong"
    r"|Check RDB returned error",
    re.IGNORECASE,
)


class Damaged(SettingsError):
    """The files of the store are gone or damaged. Nothing was started, and nothing was changed."""

    def __init__(self, directory: Path, what: str) -> None:
        super().__init__(
            f"storage.data_dir {directory}: {what}. The store does not start, so that nothing is overwritten: `crewel "
            "doctor --repair` shows what can be saved, `crewel restore FILE --force` puts back a backup"
        )


@dataclass(slots=True)
class StoreFiles:
    """The files in one data directory. Its methods read and write files: not in the event loop."""

    directory: Path
    last: dict[str, int] = field(default_factory=dict)
    """By `storage.prefix`: the newest log id that was seen in the store."""
    _put_away: bytes | None = field(default=None, init=False)
    """The marker of the files that were set aside."""

    @property
    def log_files(self) -> list[Path]:
        """The files that the manifest lists, in the order in which they are read. Raises OSError if there is no manifest."""
        text = (self.directory / LOG_DIRECTORY / _MANIFEST).read_text("utf-8", "replace")
        names = re.findall(r"^file (\S+) seq \d+ type [bi]\b", text, re.MULTILINE)
        return [self.directory / LOG_DIRECTORY / name for name in names]

    def check(self) -> None:
        """Raise Damaged if a store was here whose files are gone; its marker has been read after this."""
        has_marker = self.read_marker()
        log_directory = self.directory / LOG_DIRECTORY
        try:
            missing = [file.name for file in self.log_files if not _is_there(file)]
        except OSError:
            if has_marker or any(log_directory.glob("*.aof")) or any(log_directory.glob("*.rdb")):
                gone = _MANIFEST if log_directory.is_dir() else LOG_DIRECTORY
                raise Damaged(
                    self.directory, f"{gone} is missing, and a store was here{self._last_message()}"
                ) from None
            return
        if missing:
            raise Damaged(self.directory, f"{LOG_DIRECTORY} lacks {', '.join(missing)}{self._last_message()}")

    def _last_message(self) -> str:
        newest = max(self.last.values(), default=0)
        return f"; its last message was {newest} of {moment(newest)}" if newest else ""

    def remove_temporary(self) -> None:
        """Remove what a store has left that ended while it rewrote its file. Only to be called while none runs."""
        for pattern in _TEMPORARY:
            for file in self.directory.glob(pattern):
                file.unlink(missing_ok=True)

    def set_aside(self) -> Path | None:
        """Move all files of the store away, so that it starts empty; returns where to. None if there are none."""
        marker = self.directory / _MARKER
        self._put_away = marker.read_bytes() if marker.exists() else None
        marker.unlink(missing_ok=True)
        self.last.clear()
        if not (self.directory / LOG_DIRECTORY).exists():
            return None
        aside = self.directory / f"{LOG_DIRECTORY}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        (self.directory / LOG_DIRECTORY).rename(aside)
        return aside

    def put_back(self, aside: Path | None) -> None:
        """Undo `set_aside`, which has returned this, and remove what a store has written meanwhile."""
        shutil.rmtree(self.directory / LOG_DIRECTORY, ignore_errors=True)
        if aside is not None:
            aside.rename(self.directory / LOG_DIRECTORY)
        if self._put_away is not None:
            write_whole(self.directory / _MARKER, self._put_away)

    def write_manifest(self) -> list[str]:
        """Write a manifest of the files that are there: the newest base, and what was appended since. Returns its lines."""
        found: dict[str, dict[int, str]] = {"base": {}, "incr": {}}
        for file in (self.directory / LOG_DIRECTORY).iterdir():
            if match := _LOG_FILE.fullmatch(file.name):
                found[match["kind"]][int(match["number"])] = file.name
        base = max(found["base"], default=0)
        lines = [f"file {found['base'][base]} seq {base} type b"] if base else []
        lines += [f"file {name} seq {seq} type i" for seq, name in sorted(found["incr"].items()) if seq >= base]
        (self.directory / LOG_DIRECTORY / _MANIFEST).write_text("".join(f"{line}\n" for line in lines))
        return lines

    def note(self, prefix: str, newest: int) -> None:
        """Write into the marker that the store holds messages up to this log id."""
        self.last[prefix] = newest
        write_whole(self.directory / _MARKER, orjson.dumps({"last": self.last}) + b"\n")

    def read_marker(self) -> bool:
        """Read what was noted; whether there was a marker."""
        try:
            noted = orjson.loads((self.directory / _MARKER).read_bytes())["last"]
            self.last = {str(prefix): int(newest) for prefix, newest in noted.items()}
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.last = {}  # that something was here is known all the same
        return True


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that only its owner reads. After a crash at any moment, it is as it was before, or has all of this.
    Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Write down which files are there, under which names."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_there(file: Path) -> bool:
    """Whether it is there; an empty base is not: the store would take it for one without data."""
    return file.exists() and (".base." not in file.name or file.stat().st_size > 0)


def is_damage(last_words: str) -> bool:
    """Whether this is what a store says that cannot read its files."""
    return _DAMAGE.search(last_words) is not None


def moment(log_id: int) -> str:
    """Return when a message was stored: its id counts microseconds."""
    return datetime.fromtimestamp(log_id / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
