"""What a row of the table of commands is made of, and what its functions are called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from crewel.admin.administration import Administration
from crewel.admin.grammar import Level
from crewel.broker.sessions import Session


class Access(StrEnum):
    """What may be done with a property."""

    READ = "r"
    WRITE = "rw"
    OPERATE = "x"


@dataclass(frozen=True, slots=True)
class Call:
    """One command that is carried out: what it is about, who gave it, and the value that it brings."""

    admin: Administration
    who: str
    name: str = ""
    """The channel of a topic, or the subject's `client/joe`."""
    sessions: list[Session] = field(default_factory=list)
    """The session, or those of the subject."""
    value: Any = None

    @property
    def subject(self) -> str:
        """`joe` of `client/joe`."""
        return self.name.split("/")[1]

    @property
    def session(self) -> Session:
        """The one that it is about."""
        return self.sessions[0]


class Argument(NamedTuple):
    """The value that a property takes: what it is, how it is read (ValueError), and what counts if it is left out."""

    expected: str
    read: Callable[[str], Any]
    default: Any = None


class Command(NamedTuple):
    """One property."""

    level: Level
    name: str
    access: Access
    meaning: str
    answer: Callable[[Call], Any]
    takes: Argument | None = None
    write: Callable[[Call], Any] | None = None
