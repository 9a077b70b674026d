"""The security policy, and the authorisers that channels carry on top of it.

The policy is asked before a handshake, a create, a subscribe and a publish. What it does not grant is refused, and so is what
it fails to answer. All authorisers on a channel and on the wildcards that match it are asked, the widest first. One denial
refuses; without a denial one grant is needed. Where there is no authoriser, the policy alone has decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Message
from crewel.errors import DENIED_BY_NOT_GRANTING, DENIED_BY_POLICY
from crewel.qos.names import ANONYMOUS

if TYPE_CHECKING:
    from crewel.broker.session import Session


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal with its reason. For a handshake, `reconnect="handshake"` lets the client try again, `ext` is added to the
    reply, and a dotted `code` is added to the error, with `message` in `ext.session`."""

    reason: str = DENIED_BY_POLICY
    reconnect: Literal["none", "handshake"] = "none"
    ext: dict[str, Any] | None = None
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Grants a handshake and says whose client it is. Its session may use names of this subject, `client/<subject>/1`, and
    of no other; `session.subject` gives it back, also after a restart. Raises ValueError if the subject is not a text, is
    empty, or is `anonymous`, which stands for sessions without a name."""

    subject: str

    def __post_init__(self) -> None:
        if not isinstance(self.subject, str) or self.subject in ("", ANONYMOUS):
            raise ValueError(f"the subject of an Identity must name one user, and {self.subject!r} does not")


GRANTED: Final = True
Answer = bool | Refusal | Awaitable[bool | Refusal]
HandshakeAnswer = bool | Refusal | Identity | Awaitable[bool | Refusal | Identity]


class SecurityPolicy(Protocol):
    """Each method returns True, False or a `Refusal`, or an awaitable of one of these.

    A policy may have further questions. Three are asked when `can_publish` or `can_subscribe` has been granted; without them,
    that grant is the answer. `can_configure` is about the settings and the end of the topic, `can_group` about membership of a
    consumer group. `can_address` gets a subject in place of the channel: may the session address messages to it?
    Without `can_be_present`, no session may be present on a channel, or see who is. `JwtPolicy` has all four."""

    def can_handshake(self, session: Session, message: Message) -> HandshakeAnswer:
        """May this session be opened? `message.ext` has the credentials and `message.ext["session"]` the name that is asked
        for, `session.peer` the request; the session has no name yet. An `Identity` grants it too. With a plain True the
        server does not know whose client it is, and refuses it a name."""

    def can_create(self, session: Session, channel: Channel, message: Message) -> Answer:
        """May this subscribe or publish create the channel?"""

    def can_subscribe(self, session: Session, channel: Channel, message: Message) -> Answer:
        """May this session subscribe to the channel (or pattern)?"""

    def can_publish(self, session: Session, channel: Channel, message: Message) -> Answer:
        """May this session publish to the channel?"""


class OpenPolicy:
    """The policy `open`: everything but what belongs to the server itself, `/meta/**` and `/__sys__*`."""

    def can_handshake(self, session: Session, message: Message) -> HandshakeAnswer:
        """Everyone may."""
        return GRANTED

    def can_create(self, session: Session, channel: Channel, message: Message) -> Answer:
        """Every channel that is not the server's."""
        return not is_reserved(channel)

    def can_subscribe(self, session: Session, channel: Channel, message: Message) -> Answer:
        """To every channel that is not the server's."""
        return not is_reserved(channel)

    def can_be_present(self, session: Session, channel: Channel, message: Message) -> Answer:
        """On every channel."""
        return GRANTED

    def can_publish(self, session: Session, channel: Channel, message: Message) -> Answer:
        """To every channel that is not the server's."""
        return not is_reserved(channel)


def is_reserved(channel: Channel) -> bool:
    """Whether the channel is the server's own: no client publishes to it or subscribes to it."""
    return channel.is_meta or channel.is_system


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
    """A denial; the client receives the reason."""

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
