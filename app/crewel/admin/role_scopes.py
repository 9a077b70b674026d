"""Operators whose roles hold for some channels only: what a request is about, and whether they may ask for it.

What is of the server as a whole needs a role on all channels. What an operator does not see is answered as what does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewel.admin.command import demand
from crewel.admin.operation import About
from crewel.admin.scope_coverage import covers_channel, covers_sessions
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.errors import Refused
from crewel.security.grants import Role, Scope

if TYPE_CHECKING:
    from crewel.admin.administration import Administration
    from crewel.delivery.entry import Entry


class NotCovered(Refused):
    """The operator does not see what this is about: nodes tell each other, and operators that it is not there."""

    def __init__(self, needed: Role, about: About) -> None:
        super().__init__(f"404::{NOT_AUTHORIZED}", NOT_AUTHORIZED, refused(needed, about).message)


async def role_on_subject(admin: Administration, scope: Scope, subject: str) -> Role | None:
    """The highest role that holds for all sessions of the subject here, of which there are some, and for all messages in its
    queue; None if none does. Raises StoreError."""
    sessions = admin.sessions_of(subject)
    held = [role for role in Role if covers_sessions(scope, role, sessions)]
    return await role_on_queue(admin, scope, subject, max(held)) if held else None


async def role_on_queue(admin: Administration, scope: Scope, subject: str, most: Role) -> Role | None:
    """The highest role, up to `most`, that holds for all messages in the queue of the subject; None if none does. Raises
    StoreError."""
    if scope.allows(most):
        return most
    held = [role for role in Role if role <= most]
    async for channel in admin.destinations.channels(subject):
        held = [role for role in held if covers_channel(scope, role, channel)]
        if not held:
            return None
    return max(held)


def seen(scope: Scope, about: About, entries: list[Entry]) -> list[Entry]:
    """Return these messages of a queue. Raises NotCovered if the operator does not see all their channels: one may have come in
    since the operator's roles were compared with the queue."""
    if not all(covers_channel(scope, Role.VIEW, channel) for channel in {each.channel for each in entries}):
        raise NotCovered(Role.VIEW, about)
    return entries


def require(scope: Scope, needed: Role, about: About, *, is_covered: bool) -> None:
    """Raise Refused unless the operator has the role at all, and it covers what this is about."""
    demand(scope.highest, needed)
    if not (is_covered or scope.allows(needed)):
        raise refused(needed, about)


def refused(needed: Role, about: About) -> Refused:
    """The refusal of what an operator's roles do not cover."""
    if about is About.SERVER:
        text = f"this is about the whole server: it needs the role {needed.word} on all channels"
    else:
        text = f"this needs the role {needed.word}, and the operator does not have it on these channels"
    return Refused(f"403::{NOT_AUTHORIZED}", NOT_AUTHORIZED, text)
