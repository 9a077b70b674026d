"""The policy `jwt`: a session may do what the claims of its token grant, and nothing else.

The token comes in `ext.session.token` of the handshake. A client that shows none, or one that does not hold, gets no session;
a claim that is missing grants nothing. The admin token is taken as well: it grants everything that a client can have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Final

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Message
from crewel.security.bad_token import ACCESS_DENIED, UNAVAILABLE, BadToken
from crewel.security.grants import OPERATOR, Grants
from crewel.security.policy import GRANTED, Answer, Refusal, SecurityPolicy, is_reserved
from crewel.security.tokens import AdminToken

if TYPE_CHECKING:
    from crewel.broker.session import Session
    from crewel.security.jwt_tokens import Tokens

log = logging.getLogger(__name__)

_MAX_SHOWN: Final = 64


class JwtPolicy:
    """Asks the token."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def can_handshake(self, session: Session, message: Message) -> Answer:
        """With a token that holds; what it grants is the session's from here on."""
        asked = message.ext.get("session")
        token = asked.get("token") if isinstance(asked, dict) else None
        if not isinstance(token, str) or not token:
            return _refused(session, "this server asks for a token, in ext.session.token")
        try:
            grants = self.tokens.read_at_once(token)
        except BadToken as error:
            return self._refuse(session, error, token)
        if grants is None:
            return self._read_later(session, token)
        session.authenticate(grants)
        return GRANTED

    async def _read_later(self, session: Session, token: str) -> bool | Refusal:
        try:
            session.authenticate(await self.tokens.read(token))
        except BadToken as error:
            return self._refuse(session, error, token)
        return GRANTED

    def _refuse(self, session: Session, error: BadToken, token: str) -> Refusal:
        return _refused(session, str(error), error.code, self.tokens.claimed_subject(token))

    def can_create(self, session: Session, channel: Channel, message: Message) -> Answer:
        """Every channel that the session may subscribe or publish to."""
        return self._holds(
            session, channel, lambda grants: grants.may_subscribe(channel) or grants.may_publish(channel)
        )

    def can_subscribe(self, session: Session, channel: Channel, message: Message) -> Answer:
        """What the claims say."""
        return self._holds(session, channel, lambda grants: grants.may_subscribe(channel))

    def can_publish(self, session: Session, channel: Channel, message: Message) -> Answer:
        """What the claims say."""
        return self._holds(session, channel, lambda grants: grants.may_publish(channel))

    def can_configure(self, session: Session, channel: Channel, message: Message) -> Answer:
        """What the claims say."""
        return self._holds(session, channel, lambda grants: grants.may_configure(channel))

    def can_group(self, session: Session, channel: Channel, message: Message) -> Answer:
        """What the claims say."""
        return self._holds(session, channel, lambda grants: grants.may_group(channel))

    def can_be_present(self, session: Session, channel: Channel, message: Message) -> Answer:
        """What the claims say."""
        return self._holds(session, channel, lambda grants: grants.may_be_present(channel))

    def can_address(self, session: Session, subject: str, message: Message) -> Answer:
        """What the claims say."""
        return self._holds(session, message.channel, lambda grants: grants.may_address(subject))

    def _holds(self, session: Session, channel: Channel, is_granted: Callable[[Grants], bool]) -> Answer:
        grants = session.grants
        if grants is None or is_reserved(channel):
            return False
        # The session stays: its client can show a new token, and misses nothing.
        if grants.has_expired(time()):
            return Refusal("token_expired")
        return is_granted(grants)


def _refused(session: Session, message: str, code: str = ACCESS_DENIED, subject: str | None = None) -> Refusal:
    address = None if session.peer is None else session.peer.remote
    shown = "" if subject is None else f"; the token, which is not verified, names the subject {subject[:_MAX_SHOWN]!r}"
    log.info("a handshake from %s was refused: %s%s", address or "an unknown address", message, shown)
    # A client whose token has expired has to get another one; one that meets a server without keys can come again.
    return Refusal(reconnect="handshake" if code == UNAVAILABLE else "none", code=code, message=message)


async def grants_of(authorization: str, admin: AdminToken, policy: SecurityPolicy) -> Grants:
    """What the token in this `Authorization` header grants: the admin token all, another one what the policy `jwt` reads in
    it. Raises BadToken if there is none, or one that does not hold."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise BadToken("a bearer token is required")
    if admin.matches(token):
        return OPERATOR
    if not isinstance(policy, JwtPolicy):
        raise BadToken("the server cannot verify this token: its policy is not jwt, and it knows its admin token only")
    return await policy.tokens.read(token)
