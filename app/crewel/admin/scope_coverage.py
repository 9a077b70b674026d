"""What the roles of an operator cover: channels, and sessions by the channels that they are about.

A session belongs to the patterns that cover all it is subscribed to, the channels of its queue, and those of failures that its
client has not got over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crewel.bayeux.channel import parse
from crewel.broker.session import Session
from crewel.security.grants import Role, Scope


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
