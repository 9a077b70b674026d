"""What the functions of commands and operations are called with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crewel.admin.administration import Administration
from crewel.broker.session import Session
from crewel.security.grants import Scope


@dataclass(frozen=True, slots=True)
class Call:
    """One command that is carried out: what it is about, the operator, and the value that it brings."""

    admin: Administration
    who: str
    scope: Scope
    """The operator's roles, and where they hold."""
    name: str = ""
    """The channel of a topic, or the subject's `client/joe`."""
    sessions: list[Session] = field(default_factory=list)
    """The session, or those of the subject."""
    value: Any = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The fields of an operation that were given."""

    @property
    def subject(self) -> str:
        """`joe` of `client/joe`."""
        return self.name.split("/")[1]

    @property
    def session(self) -> Session:
        """The one that it is about."""
        return self.sessions[0]
