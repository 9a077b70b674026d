"""Dotted codes, xmlBlaster's: `user.update.holdback`. The first word is the category, and a code stands for all below it:
what holds of `user.update` holds of `user.update.error`, but not of `user.updates`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Category(StrEnum):
    """Whose doing it is: the first word of a code."""

    USER = "user"
    COMMUNICATION = "communication"
    RESOURCE = "resource"
    INTERNAL = "internal"
    LEGACY = "legacy"

    @property
    def meaning(self) -> str:
        """Whose doing it is, in one line."""
        return _MEANINGS[self]

    @property
    def is_reportable(self) -> bool:
        """Whether a receiver may report such a code; every other one is converted."""
        return self in (Category.USER, Category.COMMUNICATION)


_MEANINGS = {
    Category.USER: "Who asked, or who received, did something wrong.",
    Category.COMMUNICATION: "Transport trouble: nothing is wrong with the message.",
    Category.RESOURCE: "Something is short or away; an operator can mend it.",
    Category.INTERNAL: "A fault of the server itself.",
    Category.LEGACY: "From before there were codes.",
}


class ErrorCode(NamedTuple):
    """One code of the list."""

    code: str
    meaning: str
    is_final: bool
    """Whether the same again has no hope: something must be changed first."""
    used: str = ""
    """When this server itself uses it; empty if it only takes it from receivers."""

    @property
    def category(self) -> Category:
        """Whose doing it is."""
        return Category(self.code.partition(".")[0])


def is_below(code: str, prefix: str) -> bool:
    """Whether this is the code `prefix`, or one below it."""
    return code == prefix or code.startswith(f"{prefix}.")


_STATUS_OF: Final = (
    ("user.ptp", 404),
    ("user.security", 403),
    ("user.publish.readonly", 409),
    ("user", 400),
    ("resource.overflow", 413),
    ("resource", 503),
)


def status_of(code: str) -> int:
    """The three digits that stand for a dotted code, which are an HTTP status as well; 500 for what is nobody's fault but
    the server's."""
    for prefix, status in _STATUS_OF:
        if is_below(code, prefix):
            return status
    return 500


def coded(code: str, argument: str = "", status: int | None = None) -> str:
    """`NNN:<argument>:<dotted code>`, the `error` text of a dotted code; an argument cannot smuggle in a colon."""
    return f"{status_of(code) if status is None else status}:{argument.replace(':', ' ')[:128]}:{code}"


CLASSES: Final = (
    "user.update",
    "user.security",
    "user.ptp",
    "user",
    "communication.noConnection",
    "communication",
    "resource.overflow",
    "resource",
    "internal",
    "legacy",
)
"""The classes that figures count codes by: few, for receivers make codes of their own below `user` and `communication`."""


def class_of(code: str) -> str:
    """The narrowest class that a code belongs to; `internal` for what is none."""
    for each in CLASSES:
        if is_below(code, each):
            return each
    return Category.INTERNAL.value
