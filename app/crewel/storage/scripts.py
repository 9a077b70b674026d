"""The Lua files of storage/scripts: one atomic step a file, known to the store by the SHA-1 of its text.

A line `-- include shared/NAME.lua` stands for that file: the store knows no modules.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DIRECTORY = Path(__file__).parent / "scripts"
_INCLUDE = re.compile(rb"^-- include (shared/[a-z]+\.lua)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua file."""

    name: str
    """The file's name, less `.lua`."""
    text: bytes
    """With what it includes."""
    sha: bytes
    """What EVALSHA calls it by."""


@cache
def scripts() -> dict[str, Script]:
    """Return all scripts by name. Reads the files, the first time."""
    return {file.stem: _read(file) for file in sorted(_DIRECTORY.glob("*.lua"))}


def _read(file: Path) -> Script:
    text = _INCLUDE.sub(lambda line: (_DIRECTORY / line[1].decode()).read_bytes(), file.read_bytes())
    # SHA-1 is the name that the store gives a script, not a secret.
    return Script(file.stem, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
