"""How bad something is that operators are shown."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    BAD = "bad"
    """Messages are stuck, or are lost."""
    WARN = "warn"
    """They will be, if it continues."""
    INFO = "info"
    """Nothing is wrong yet; it explains what an operator sees."""
