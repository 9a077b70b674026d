"""One atomic step of the store: a Lua file of storage/scripts with its keys and arguments, and how to read its answer.

A line `-- include shared/NAME.lua` stands for that file: the store knows no modules.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from crewel.errors import Behind, Fenced, StoreError, StoreUnavailable

T = TypeVar("T")

REMEMBERED_MS: Final = 120_000
"""How long the store remembers what a step with a key of its own has done, so that it can be asked again."""
REPEATABLE_S: Final = REMEMBERED_MS / 1000 - 20.0
"""How long a step with a key of its own may be asked again. It is some seconds less than the store remembers it, for a
connection whose end is noticed late, and for the time that the store takes."""

_DIRECTORY: Final = Path(__file__).parent / "scripts"
_INCLUDE: Final = re.compile(rb"^-- include (shared/[a-z]+\.lua)\n", re.MULTILINE)


class TooManySessions(StoreError):
    """The subject has as many sessions as it may have."""

    code = "user.configuration.maxSession"


class NameTaken(StoreError):
    """Another session has the name."""

    code = "resource.unavailable"


# What a script answers instead of a result when it refuses. No result is one of these words.
_REFUSALS: Final[dict[bytes, tuple[type[StoreError], str]]] = {
    b"fenced": (Fenced, "another server owns this by now"),
    b"behind": (Behind, "the store has lost a commit that it had answered"),
    b"early": (StoreUnavailable, "an earlier part of the commit is not written yet"),
    b"ending": (StoreUnavailable, "the session of this name is ending"),
    b"taken": (NameTaken, "another node has just given a session this name"),
    b"too many": (TooManySessions, "the subject has as many sessions as it may have"),
}


class Step(NamedTuple, Generic[T]):
    """A call of one script. It is done as a whole or not at all; `Store.run` does several in the order given."""

    script: str
    """Name of the file in storage/scripts, less `.lua`."""
    keys: tuple[str, ...]
    arguments: tuple[bytes | str | int, ...]
    parse: Callable[[Any], T]
    """Turns the store's answer into the step's result, unless it is a refusal."""

    def result(self, answer: Any) -> T:
        """Return what the store's answer says. Raises the StoreError of a refusal, such as Fenced or Behind."""
        if type(answer) is bytes and answer in _REFUSALS:
            error, text = _REFUSALS[answer]
            raise error(text)
        return self.parse(answer)


def nothing(answer: Any) -> None:
    """The parser of a step that answers only that it was done."""


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua file."""

    text: bytes
    """With what it includes."""
    sha: bytes
    """What EVALSHA calls it by."""


@cache
def scripts() -> dict[str, Script]:
    """Return all scripts by the names of their files, less `.lua`. Reads the files, the first time."""
    return {file.stem: _read(file) for file in sorted(_DIRECTORY.glob("*.lua"))}


def _read(file: Path) -> Script:
    text = _INCLUDE.sub(lambda line: (_DIRECTORY / line[1].decode()).read_bytes(), file.read_bytes())
    # SHA-1 is the name that the store gives a script, not a secret.
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
