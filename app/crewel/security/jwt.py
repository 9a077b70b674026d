"""The policy `jwt`: a session may do what the claims of its token grant, and nothing else.

The token comes in `ext.session.token` of the handshake. A client that shows none, or one that does not hold, gets no session;
a claim that is missing grants nothing. The admin token is taken as well: it grants everything that a client can have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import time
from typing import TYPE_CHECKING, Any, Final

import jwt

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Message
from crewel.errors import CrewelError
from crewel.qos.connect import MAX_SECRET
from crewel.qos.names import ANONYMOUS
from crewel.security.grants import OPERATOR, Grants, patterns, scope_of, subjects
from crewel.security.keys import Keys, KeysUnavailable, load_keys
from crewel.security.policy import GRANTED, Answer, Refusal, SecurityPolicy, is_reserved
from crewel.security.tokens import AdminToken
from crewel.settings.access import Security

if TYPE_CHECKING:
    from crewel.broker.session import Session

log = logging.getLogger(__name__)

ACCESS_DENIED: Final = "user.security.authentication.accessDenied"
EXPIRED: Final = "user.security.authentication.expired"
_UNAVAILABLE: Final = "resource.unavailable"
_UNREADABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What Python's JSON and numbers raise for a forged text: nested by the thousand, or infinite."""
_COMPARED: Final = {jwt.InvalidAudienceError: "jwt_audience", jwt.InvalidIssuerError: "jwt_issuer"}
"""The setting with which a claim was compared, by the error."""
_MAX_SHOWN: Final = 64


class BadToken(CrewelError):
    """The token does not hold; the text says why and never holds the token. `code` is for the client."""

    def __init__(self, text: str, code: str = ACCESS_DENIED) -> None:
        super().__init__(text)
        self.code = code


class Tokens:
    """Reads tokens, once it has keys."""

    def __init__(self, settings: Security, keys: Keys | None = None) -> None:
        self._settings = settings
        self._keys = keys

    async def open(self) -> None:
        """Get the keys that the settings name. Raises SettingsError."""
        self._keys = await asyncio.to_thread(load_keys, self._settings)

    async def read(self, token: str) -> Grants:
        """What the token grants. Raises BadToken."""
        keys = self._opened()
        try:
            key = await keys.find(_key_id(token))
        except KeysUnavailable:
            raise BadToken("the keys that verify tokens cannot be had at the moment", _UNAVAILABLE) from None
        return self._read(token, key, keys.algorithms)

    def read_at_once(self, token: str) -> Grants | None:
        """What the token grants, if no key has to be fetched for it; None if one has. Raises BadToken."""
        keys = self._opened()
        key = keys.at_hand(_key_id(token))
        return None if key is None else self._read(token, key, keys.algorithms)

    def claimed_subject(self, token: str) -> str | None:
        """The subject that a token names, whether or not it is true: for the log."""
        try:
            subject = jwt.decode(token, options={"verify_signature": False}).get(self._settings.jwt_subject_claim)
        except (jwt.PyJWTError, *_UNREADABLE):
            return None
        return subject if isinstance(subject, str) else None

    def _opened(self) -> Keys:
        if self._keys is None:
            raise BadToken("the server is not ready yet", _UNAVAILABLE)
        return self._keys

    def _read(self, token: str, key: Any, algorithms: list[str]) -> Grants:
        if key is None:
            raise BadToken("the token is signed with a key that this server does not know")
        settings = self._settings
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=algorithms,
                audience=list(settings.jwt_audience) or None,
                issuer=settings.jwt_issuer,
                leeway=settings.jwt_leeway_ms / 1000,
                options={"require": ["exp", settings.jwt_subject_claim]},
            )
        except jwt.ExpiredSignatureError:
            raise BadToken("the token has expired", EXPIRED) from None
        except (jwt.PyJWTError, *_UNREADABLE) as error:
            shown = str(error).encode("ascii", "backslashreplace").decode()  # it may quote what no answer can carry
            setting = next((f" (security.{name})" for kind, name in _COMPARED.items() if isinstance(error, kind)), "")
            raise BadToken(f"the token is not valid: {shown}{setting}") from None
        return self._granted(claims)

    def _granted(self, claims: dict[str, Any]) -> Grants:
        settings = self._settings
        subject = claims[settings.jwt_subject_claim]
        if not isinstance(subject, str) or not subject:
            raise BadToken(f"the claim {settings.jwt_subject_claim} must be a text that is not empty")
        if subject == ANONYMOUS:
            raise BadToken(
                f"the claim {settings.jwt_subject_claim} is {ANONYMOUS}, which names sessions without a name"
            )
        lists = {
            "subscribe": _listed(claims, settings.jwt_subscribe_claim, patterns),
            "publish": _listed(claims, settings.jwt_publish_claim, patterns),
            "configure": _listed(claims, settings.jwt_configure_claim, patterns),
            "group": _listed(claims, settings.jwt_group_claim, patterns),
            "address": _listed(claims, settings.jwt_address_claim, subjects),
        }
        try:
            scope = scope_of(claims.get(settings.jwt_operator_claim))
        except ValueError as error:
            raise BadToken(f"the claim {settings.jwt_operator_claim}: {error}") from None
        expires_at = float(claims["exp"]) + settings.jwt_leeway_ms / 1000
        return Grants(
            subject, **lists, role=scope.role, parts=scope.parts, expires_at=expires_at, is_feed=False, by_policy=False
        )


def _key_id(token: str) -> str | None:
    if len(token) > MAX_SECRET:
        raise BadToken("the token is too long")
    try:
        key_id = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, *_UNREADABLE):
        raise BadToken("the token is not a JSON Web Token") from None
    return key_id if isinstance(key_id, str) else None


def _listed(claims: dict[str, Any], name: str, read: Callable[[Iterable[object]], frozenset[str]]) -> frozenset[str]:
    """What a claim lists; one text is a list of one."""
    listed = claims.get(name, [])
    if not isinstance(listed, list):
        listed = [listed]
    try:
        return read(listed)
    except ValueError as error:
        raise BadToken(f"the claim {name}: {error}") from None


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
    return Refusal(reconnect="handshake" if code == _UNAVAILABLE else "none", code=code, message=message)


async def grants_of(authorization: str, admin: AdminToken, policy: SecurityPolicy) -> Grants:
    """What the token in this `Authorization` header grants: the admin token all, another one what the policy `jwt` reads in
    it. Raises BadToken if there is none, or one that does not hold."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise BadToken("a bearer token is asked for")
    if admin.matches(token):
        return OPERATOR
    if not isinstance(policy, JwtPolicy):
        raise BadToken("this is not the admin token")
    return await policy.tokens.read(token)
