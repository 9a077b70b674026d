"""Operators whose roles hold for some channels only: what a request is about, and whether they may ask for it.

A session belongs to the patterns that cover all it is subscribed to, the channels of its queue, and those of failures that its
client has not got over. What is of the server as a
whole needs a role on all channels. What an operator does not see is answered as what does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from crewel.admin.command import demand
from crewel.admin.operation import About
from crewel.bayeux.channel import parse
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.broker.session import Session
from crewel.errors import Refused
from crewel.security.grants import Role, Scope

if TYPE_CHECKING:
    from crewel.admin.administration import Administration
    from crewel.delivery.entry import Entry


class NotCovered(Refused):
    """The operator does not see what this is about: nodes tell each other, and operators that it is not there."""

    def __init__(self, needed: Role, about: About) -> None:
        super().__init__(f"404::{NOT_AUTHORIZED}", NOT_AUTHORIZED, refused(needed, about).message)


def covers_channel(scope: Scope, needed: Role, name: str) -> bool:
    """Whether the role that is needed holds for this channel or pattern."""
    channel = parse(name)
    return scope.allows(needed) or (channel is not None and scope.allows(needed, channel))


def covered(scope: Scope) -> Callable[[str], bool] | None:
    """What says whether an operator with these roles sees a channel; None if they see all."""
    return None if scope.allows(Role.VIEW) else lambda name: covers_channel(scope, Role.VIEW, name)


def covers_session(scope: Scope, needed: Role, session: Session) -> bool:
    """Whether the role holds for all that the session is subscribed to, which is something. It must also hold for the channels
    of its queue and of the failures that have made it as it is. Its queue may have messages of a subscription that it has given
    up."""
    if scope.allows(needed):
        return True
    known: dict[str, bool] = {}

    def covers(name: str) -> bool:
        found = known.get(name)
        if found is None:
            found = known[name] = covers_channel(scope, needed, name)
        return found

    # The queue, which may be long, comes last.
    return (
        bool(session.subscriptions)
        and all(map(covers, session.subscriptions))
        and all(map(covers, _troubled_channels(session)))
        and all(map(covers, session.mailbox.view().channels()))
    )


def _troubled_channels(session: Session) -> tuple[str, ...]:
    """The channels of the failures because of which it waits, is on hold or rejects everything; "" is one that is not known.
    Those of a holdback whose message waits are in the queue."""
    view = session.mailbox.view()
    held = view.holdback
    is_held = held is not None and bool(held.message_id) and not view.has_held
    if is_held or view.failures or view.waits_until or view.rejection is not None:
        return view.failed_channels or ("",)
    return ()


def shows_failure(scope: Scope, session: Session) -> bool:
    """Whether an operator with these roles sees the last failure that the client reported: it may be about a message of a
    subscription that the session has given up."""
    channels = session.mailbox.view().failed_channels
    return scope.allows(Role.VIEW) or (bool(channels) and covers_channel(scope, Role.VIEW, channels[-1]))


def covers_sessions(scope: Scope, needed: Role, sessions: Iterable[Session]) -> bool:
    """Whether it holds for all of these sessions, of which there are some."""
    if scope.allows(needed):
        return True
    found = list(sessions)
    return bool(found) and all(covers_session(scope, needed, each) for each in found)


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
