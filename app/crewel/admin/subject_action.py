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
from crewel.admin.role_scopes import NotCovered, refused, role_on_queue, role_on_subject
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.errors import Refused
from crewel.security.grants import Role, Scope, role_of


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


async def require_everywhere(admin: Administration, action: SubjectAction, views: Iterable[Awaitable[Any]]) -> None:
    """Raise Refused, and note it in the audit, if the roles do not cover the sessions of the subject here and its queue, or
    those of another node. Raise NotCovered if they do not even show them. `views` are how the others show the subject to this
    operator. Raises StoreError if one of them does not answer."""
    if action.scope.allows(action.needed):
        return
    answers = await asyncio.gather(*views, return_exceptions=True)
    here = await _role_here(admin, action)
    is_seen = here is not None and not any(map(_is_denied, answers))
    may = [role_of(each.get("may")) or Role.VIEW for each in answers if isinstance(each, dict)]
    if here is None or not is_seen or min([here, *may]) < action.needed:
        admin.audit.refused(action.who, action.scope.highest, action.what, NOT_AUTHORIZED, **action.details)
        error = refused if is_seen else NotCovered
        raise error(action.needed, About.SUBJECT)
    for each in answers:
        if isinstance(each, BaseException) and not is_missing(each):
            raise each


async def _role_here(admin: Administration, action: SubjectAction) -> Role | None:
    """The highest role that holds for the sessions of the subject here, if there are any, and for its queue; None if none
    does."""
    if admin.sessions_of(action.subject):
        return await role_on_subject(admin, action.scope, action.subject)
    return await role_on_queue(admin, action.scope, action.subject, max(Role))


def is_missing(answer: object) -> bool:
    """Whether a node answers that what was asked about is not there."""
    return isinstance(answer, Refused) and answer.code == "user.illegalArgument"


def _is_denied(answer: object) -> bool:
    return isinstance(answer, Refused) and answer.code == NOT_AUTHORIZED
