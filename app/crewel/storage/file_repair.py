"""Finds the end of a file of the store that cannot be read, and cuts it off: `crewel doctor --repair`.

An append-only file is commands, each as the protocol of the store writes an array; lines that begin with `#` are notes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from crewel.storage.store_files import moment

_LOG_ENTRY: Final = re.compile(rb"XADD\r\n\$\d+\r\n[^\r\n]*\{crewel\}:log\r\n\$\d+\r\n(\d+)-0\r\n", re.IGNORECASE)
_LONGEST_LINE: Final = 64
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a file that cannot be read."""

    file: Path
    begins: int
    """The place of its first byte."""
    size: int
    """Bytes; 0: the whole file can be read."""
    messages: tuple[int, ...]
    """The log ids of messages that can still be identified in it."""

    def __str__(self) -> str:
        what = f"{self.file.name}: {self.size:,} bytes from place {self.begins:,} on cannot be read"
        if not self.messages:
            return f"{what}; no message can be identified in them"
        first, last = min(self.messages), max(self.messages)
        return f"{what}; with {len(self.messages):,} messages, {first} of {moment(first)} to {last} of {moment(last)}"


def examine(file: Path) -> Tail:
    """Read a file to its end. Raises OSError."""
    with file.open("rb") as opened:
        good = max(_ends(opened), default=0)
        size = opened.seek(0, os.SEEK_END) - good
        opened.seek(good)
        return Tail(file, good, size, tuple(_messages(opened)))


def cut_off(tail: Tail) -> Path:
    """Cut the tail off its file, and keep it in a file next to it, which is returned. Raises OSError."""
    kept = tail.file.parent.parent / f"{tail.file.name}.cut.{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    with tail.file.open("r+b") as file, kept.open("xb") as copy:
        os.fchmod(copy.fileno(), 0o600)
        file.seek(tail.begins)
        while chunk := file.read(_CHUNK):
            copy.write(chunk)
        copy.flush()
        os.fsync(copy.fileno())
        file.truncate(tail.begins)
        os.fsync(file.fileno())
    return kept


def _ends(file: BinaryIO) -> Iterator[int]:
    """Yield the place behind each whole command, or each whole transaction."""
    depth = 0
    while line := file.readline(_CHUNK):
        if line.startswith(b"#") and line.endswith(b"\n"):
            yield file.tell()
            continue
        count = _number(line, b"*")
        words = [] if count is None else [*_words(file, count)]
        if count is None or len(words) != count or not words:
            return
        name = words[0].upper()
        depth += (name == b"MULTI") - (name == b"EXEC")
        if depth == 0:
            yield file.tell()


def _words(file: BinaryIO, count: int) -> Iterator[bytes]:
    for _ in range(count):
        length = _number(file.readline(_LONGEST_LINE), b"$")
        if length is None:
            return
        word = file.read(length)
        if len(word) != length or file.read(2) != b"\r\n":
            return
        yield word


def _number(line: bytes, kind: bytes) -> int | None:
    if not line.startswith(kind) or not line.endswith(b"\r\n") or not line[1:-2].isdigit():
        return None
    return int(line[1:-2])


def _messages(file: BinaryIO) -> Iterator[int]:
    rest = b""
    while chunk := file.read(_CHUNK):
        text = rest + chunk
        end = 0
        for found in _LOG_ENTRY.finditer(text):
            yield int(found[1])
            end = found.end()
        rest = text[max(end, len(text) - 512) :]
