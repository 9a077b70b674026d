"""Authorisers: rules that channels carry, on top of the policy.

All those on a channel and on the wildcards that match it are asked, the widest first. One denial refuses; without a
denial one grant is needed; where no authoriser stands at all, the policy alone has decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Message
from crewel.errors import DENIED_BY_NOT_GRANTING

if TYPE_CHECKING:
    from crewel.broker.sessions import Session


class Operation(Enum):
    """What is asked for."""

    CREATE = "create"
    SUBSCRIBE = "subscribe"
    PUBLISH = "publish"


class Verdict(Enum):
    """What an authoriser says, if it does not deny."""

    GRANT = "grant"
    IGNORE = "ignore"


GRANT: Final = Verdict.GRANT
IGNORE: Final = Verdict.IGNORE


@dataclass(frozen=True, slots=True)
class Deny:
    """A denial; the reason is told to the client."""

    reason: str


Authorizer = Callable[[Operation, Channel, "Session", Message], "Verdict | Deny"]


def refusal(
    authorizers: Iterable[Authorizer], operation: Operation, channel: Channel, session: Session, message: Message
) -> str | None:
    """The reason of the refusal, or None if the operation is granted. An authoriser that answers anything but a verdict
    has failed, and a failure is no grant: TypeError."""
    asked = granted = False
    for authorizer in authorizers:
        verdict = authorizer(operation, channel, session, message)
        if isinstance(verdict, Deny):
            return verdict.reason
        if not isinstance(verdict, Verdict):
            raise TypeError(f"an authoriser must answer GRANT, IGNORE or Deny, not {verdict!r}")
        asked = True
        granted = granted or verdict is GRANT
    return None if granted or not asked else DENIED_BY_NOT_GRANTING
