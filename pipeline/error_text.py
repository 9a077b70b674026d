"""What went wrong, in one line: of all that Spark says, the error that a worker of ours raised, or the first line."""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"^(?:crewel|redis)\.[\w.]+: (.+)$", re.MULTILINE)
_CLASS: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE:.*")
_BRIDGE: Final = re.compile(r"\AAn error occurred while calling [^\n]*\n: (?:[\w.$]+: )?")
"""What the bridge to Java puts before the words of an exception."""

_MOST: Final = 500


def in_one_line(error: BaseException) -> str:
    """Return the words of an error for people."""
    text = _BRIDGE.sub("", str(error))
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])[:_MOST]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (_CLASS.sub("", lines[0]) if lines else type(error).__name__)[:_MOST]
