"""Asks the policy and the authorisers, and fails closed: whatever is not a clear yes is a no. No policy is asked about the
server's own channels, `/__sys__*`. Operators receive from them, and other sessions from those of presence if they may see who
is present. Nor is it asked about reply channels, `/ret/**`: each has an owner, and all sessions may answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any, Final

from crewel.bayeux.channel import Channel, Kind, may_have_presence, presence_of
from crewel.bayeux.message import Message
from crewel.broker.handler_steps import Steps, wait
from crewel.broker.refusals import shown_token
from crewel.broker.session import Session
from crewel.errors import DENIED_BY_POLICY
from crewel.security.grants import OPERATOR, Grants, Role
from crewel.security.jwt import JwtPolicy
from crewel.security.policy import (
    GRANTED,
    Answer,
    Authorizer,
    Identity,
    OpenPolicy,
    Operation,
    Refusal,
    SecurityPolicy,
    is_reserved,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

NOT_AUTHORIZED: Final = "user.security.authorization.notAuthorized"
"""Why a session of no operator is refused what is for operators."""
_EXPIRED: Final = "token_expired"

_Question = Callable[[Session, Channel, Message], Answer]


class Guard:
    """One policy for the server, and authorisers by channel or pattern."""

    def __init__(self, own: Callable[[str], Grants | None]) -> None:
        self.policy: SecurityPolicy = OpenPolicy()
        self._own = own
        """What a token of the server itself grants, such as the admin token; None if it is no such token."""
        self._authorizers: dict[str, list[Authorizer]] = {}
        self._for_operators: set[str] = set()
        self._for_sessions: set[str] = set()

    def authorize(self, pattern: str, authorizer: Authorizer) -> None:
        """Ask this authoriser about every channel that the pattern matches."""
        self._authorizers.setdefault(pattern, []).append(authorizer)

    def reserve(self, name: str) -> None:
        """Let only operators publish to this channel, whatever the policy grants."""
        self._for_operators.add(name)
        self._authorizers.setdefault(name, [])  # so that the channel is not an open one

    def admit(self, name: str) -> None:
        """Let all sessions publish to this service of the server, whatever the policy grants and authorisers say. It is about
        the session alone, as a connect is, or asks for the rights to the channel that it is asked about."""
        self._for_sessions.add(name)

    def is_own_service(self, name: str) -> bool:
        """Whether this is a service of the server itself. Neither a policy nor an authoriser is asked about a publish to it."""
        return name in self._for_sessions or name in self._for_operators

    @property
    def admits_everybody(self) -> bool:
        """Whether the policy need not be asked about a handshake."""
        return type(self.policy) is OpenPolicy

    @property
    def names_are_free(self) -> bool:
        """Whether a client that has proved nothing may use any name. A policy that looks at handshakes knows whose client each
        is: it has to state it before the client is called by a name."""
        return getattr(self.policy.can_handshake, "__func__", None) is OpenPolicy.can_handshake

    @property
    def asks_for_tokens(self) -> bool:
        """Whether a session without a token may do nothing."""
        return isinstance(self.policy, JwtPolicy)

    def is_open(self, channel: Channel) -> bool:
        """Whether all sessions may create the channel, subscribe to it and publish to it, so that no policy is asked. What is
        open takes no steps."""
        if type(self.policy) is not OpenPolicy or channel.is_reply or channel.is_meta or channel.is_system:
            return False
        return not self._authorizers or self._authorizers.keys().isdisjoint(channel.patterns)

    def handshake(self, session: Session, message: Message) -> Steps[Refusal | None]:
        """The refusal of a handshake, or None if it is granted. An application's policy knows no token of the server itself,
        and is not asked about one."""
        token = shown_token(message)
        own = None if token is None else self._own(token)
        if own is not None:
            session.authenticate(own)
            return None
        try:
            answer = self.policy.can_handshake(session, message)
            decided = answer if answer is GRANTED or isinstance(answer, Identity) else (yield from wait(answer))
            if isinstance(decided, Identity):
                session.authenticate(Grants(decided.subject, by_policy=True))
                return None
            return _refusal(decided)
        except Exception:
            log.exception("the security policy failed on a handshake: refused")
            return Refusal()

    def create(self, session: Session, channel: Channel, message: Message) -> Steps[str | None]:
        """The reason why the channel may not be created, or None."""
        return self._decide(Operation.CREATE, self.policy.can_create, session, channel, message)

    def subscribe(self, session: Session, channel: Channel, message: Message) -> Steps[str | None]:
        """The reason why the session may not subscribe, or None."""
        return self._decide(Operation.SUBSCRIBE, self.policy.can_subscribe, session, channel, message)

    def publish(self, session: Session, channel: Channel, message: Message) -> Steps[str | None]:
        """The reason why the session may not publish, or None."""
        return self._decide(Operation.PUBLISH, self.policy.can_publish, session, channel, message)

    def presence(self, session: Session, channel: Channel, message: Message) -> Steps[str | None]:
        """The reason why the session may neither be present on the channel nor see its members, or None. It needs the right to
        subscribe, and one of its own, which only a policy that knows the question can grant."""
        if not may_have_presence(channel):
            return DENIED_BY_POLICY
        reason = yield from self.subscribe(session, channel, message)
        if reason is not None or session.grants is OPERATOR:
            return reason
        question = getattr(self.policy, "can_be_present", None)
        if question is None:
            return DENIED_BY_POLICY
        try:
            answer = question(session, channel, message)
            refused = None if answer is GRANTED else _refusal((yield from wait(answer)))
        except Exception:
            log.exception("the security policy failed on the presence of %s: refused", channel.name)
            return DENIED_BY_POLICY
        return None if refused is None else refused.reason

    def _watch(self, operation: Operation, session: Session, channel: Channel, message: Message) -> Steps[str | None]:
        """The reason why the session may not do this with the channel on which the members of this one change, or None."""
        if operation is Operation.PUBLISH:
            return DENIED_BY_POLICY
        return None if operation is Operation.CREATE else (yield from self.presence(session, channel, message))

    def configure(self, session: Session, channel: Channel, message: Message) -> Steps[bool]:
        """Whether the session may configure and erase the topic of this channel, to which it may publish."""
        return self._grants("can_configure", session, channel, message)

    def erase(self, session: Session, channel: Channel, message: Message) -> Steps[bool]:
        """Whether the session may erase the topic of this channel. Either its operator may destroy, or the policy has a
        question of its own for the right to configure, and grants both this and the right to publish."""
        if _is_operator(session) and role_of_session(session) is Role.DESTROY:
            return True
        if getattr(self.policy, "can_configure", None) is None or (yield from self.publish(session, channel, message)):
            return False
        return (yield from self.configure(session, channel, message))

    def group(self, session: Session, channel: Channel, message: Message) -> Steps[bool]:
        """Whether the session may join a consumer group on this channel or pattern, to which it may subscribe."""
        return self._grants("can_group", session, channel, message)

    def address(self, session: Session, subject: str, message: Message) -> Steps[bool]:
        """Whether the session may address a message to this subject, on a channel to which it may publish."""
        return self._grants("can_address", session, subject, message)

    def _grants(self, question: str, session: Session, subject: Channel | str, message: Message) -> Steps[bool]:
        ask = getattr(self.policy, question, None)
        if ask is None or session.grants is OPERATOR:
            return True  # the policy does not tell it apart from the publish or subscribe that it has granted
        try:
            answer = ask(session, subject, message)
            return answer is GRANTED or _refusal((yield from wait(answer))) is None
        except Exception:
            log.exception("the security policy failed on %s: refused", question)
            return False

    def _decide(
        self, operation: Operation, question: _Question, session: Session, channel: Channel, message: Message
    ) -> Steps[str | None]:
        if channel.is_system and (watched := presence_of(channel)) is not None:
            return (yield from self._watch(operation, session, watched, message))
        if channel.is_system:
            return None if _is_for(session, channel, operation) else DENIED_BY_POLICY
        if channel.is_reply:
            return None if _is_reply_for(session, channel, operation) else DENIED_BY_POLICY
        if channel.name in self._for_operators:
            return None if _is_operator(session) else NOT_AUTHORIZED
        if channel.name in self._for_sessions and operation is Operation.PUBLISH:
            return _EXPIRED if _has_expired(session) else None
        try:
            answer = _asked(question, session, channel, message)
            if answer is not GRANTED:
                refused = _refusal((yield from wait(answer)))
                if refused is not None:
                    return refused.reason
            if not self._authorizers or channel.kind is Kind.META:
                return None
            return refusal(self._standing_on(channel), operation, channel, session, message)
        except Exception:
            log.exception(
                "the security policy or an authoriser failed on %s %s: refused", operation.value, channel.name
            )
            return DENIED_BY_POLICY

    def _standing_on(self, channel: Channel) -> Iterator[Authorizer]:
        for pattern in channel.patterns:
            yield from self._authorizers.get(pattern, ())


def _asked(question: _Question, session: Session, channel: Channel, message: Message) -> Answer:
    """What the policy says. The admin token has every right that a client can be granted: an application's policy, which
    was made for clients, is not asked about it."""
    if session.grants is OPERATOR and not is_reserved(channel):
        return GRANTED
    return question(session, channel, message)


def _is_for(session: Session, channel: Channel, operation: Operation) -> bool:
    """Whether the session may do this with one of the server's own channels: an operator may subscribe to it by
    its name, and no client publishes there. No policy can grant more."""
    return operation is not Operation.PUBLISH and "*" not in channel.name and _is_operator(session)


def _is_reply_for(session: Session, channel: Channel, operation: Operation) -> bool:
    """Whether the session may do this with a reply channel: all may answer a request, and only the session with the ID
    receives the answers. No policy can grant more, nor less."""
    is_own = channel.reply_id == session.reply_id
    return bool(channel.reply_id) and (is_own or operation is not Operation.SUBSCRIBE)


def _is_operator(session: Session) -> bool:
    """Whether the session has shown that it is an operator's, and its token still holds."""
    return session.is_operator and not _has_expired(session)


def role_of_session(session: Session) -> Role:
    """The role of an operator's session."""
    role = None if session.grants is None else session.grants.role
    return Role.DESTROY if role is None else role


def _has_expired(session: Session) -> bool:
    return session.grants is not None and session.grants.has_expired(time())


def _refusal(answer: Any) -> Refusal | None:
    if answer is GRANTED:
        return None
    return answer if isinstance(answer, Refusal) else Refusal()
