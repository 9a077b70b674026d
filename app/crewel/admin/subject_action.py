"""Actions of operators on a subject whose sessions are at several nodes.

Each node looks at its own sessions when it acts, and what one node does for a subject, such as blocking it, holds at all. So
the roles of an operator of some channels have to cover the sessions of all nodes before one acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crewel.admin.administration import Administration
from crewel.admin.operation import About
from crewel.admin.role_scopes import covers_sessions, refused
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.errors import Refused
from crewel.security.grants import Role, Scope


@dataclass(frozen=True, slots=True)
class SubjectAction:
    """What an operator is about to do with a subject."""

    subject: str
    who: str
    scope: Scope
    needed: Role
    what: str
    """What the audit calls it."""
    details: Mapping[str, str]
    """What the audit says of it."""

    @property
    def sight(self) -> Scope:
        """The roles of an operator who may see what this one may act on: who sees the whole subject may do this."""
        return Scope(None, ((Role.VIEW, self.scope.patterns(self.needed)),))


async def require_everywhere(admin: Administration, action: SubjectAction, views: Iterable[Awaitable[Any]]) -> None:
    """Raise Refused, and note it in the audit, if the roles do not cover the sessions of the subject here, or if another node
    does not show it. `views` ask the others with `sight`. Raises StoreError if one of them does not answer."""
    if action.scope.allows(action.needed):
        return
    answers = await asyncio.gather(*views, return_exceptions=True)
    own = admin.broker.addressing.names.of_subject(action.subject)
    is_covered = not own or covers_sessions(action.scope, action.needed, own)
    if not is_covered or any(_is_denied(each) for each in answers):
        admin.audit.refused(action.who, action.scope.highest, action.what, NOT_AUTHORIZED, **action.details)
        raise refused(action.needed, About.SUBJECT)
    for each in answers:
        if isinstance(each, BaseException) and not is_missing(each):
            raise each


def is_missing(answer: object) -> bool:
    """Whether a node answers that what was asked about is not there."""
    return isinstance(answer, Refused) and answer.code == "user.illegalArgument"


def _is_denied(answer: object) -> bool:
    return isinstance(answer, Refused) and answer.code == NOT_AUTHORIZED
