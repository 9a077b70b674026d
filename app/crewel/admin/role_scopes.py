"""Operators whose roles hold for some channels only: what a request is about, and whether they may ask for it.

A session belongs to the patterns that cover all it is subscribed to, and then its whole queue does. What is of the server as a
whole needs a role on all channels.
"""

from __future__ import annotations

from collections.abc import Iterable

from crewel.admin.command import demand
from crewel.admin.operation import About
from crewel.bayeux.channel import parse
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.broker.session import Session
from crewel.errors import Refused
from crewel.security.grants import Role, Scope


def covers_channel(scope: Scope, needed: Role, name: str) -> bool:
    """Whether the role that is needed holds for this channel or pattern."""
    channel = parse(name)
    return channel is not None and scope.allows(needed, channel)


def covers_session(scope: Scope, needed: Role, session: Session) -> bool:
    """Whether it holds for all that the session is subscribed to, which is something."""
    if scope.allows(needed):
        return True
    subscriptions = session.subscriptions
    return bool(subscriptions) and all(covers_channel(scope, needed, name) for name in subscriptions)


def covers_sessions(scope: Scope, needed: Role, sessions: Iterable[Session]) -> bool:
    """Whether it holds for all of these sessions, of which there are some."""
    if scope.allows(needed):
        return True
    found = list(sessions)
    return bool(found) and all(covers_session(scope, needed, each) for each in found)


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
