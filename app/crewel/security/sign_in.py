"""How operators sign in to a page: a code that works once, the value of the cookie that it is exchanged for, and the page's
token for the live feed.

All are JSON Web Tokens of the server for itself, signed with keys that follow from the admin token. So `crewel serve` can
print a code without asking the server, a page stays signed in when the server restarts, and a new admin token ends all of it.
What was used or signed out is remembered by its id.
"""

from __future__ import annotations

from time import time
from typing import Any, Final, Protocol

import jwt

from crewel.errors import StoreError, StoreUnavailable
from crewel.security.bad_token import EXPIRED, BadToken
from crewel.security.grants import OPERATOR, Grants, role_of, scope_of
from crewel.security.tokens import AdminToken, key_of
from crewel.storage.spent_ids import new_id

CODE_S: Final = 900
"""How long a code works."""
PAGE_S: Final = 43_200
"""How long a page stays signed in, unless the token that signed it in expires before."""
FEED_S: Final = 60
"""How long the token of a live feed may be shown in a handshake."""
SIGNED_OUT: Final = "the page was signed out"
_UNCHECKED_CODE: Final = "the store is away, so that a link that works once cannot be checked: sign in with a token"
_UNCHECKED_PAGE: Final = "the store is away, so that this earlier sign-in cannot be checked: sign in again with a token"
_ALGORITHM: Final = "HS256"
_CODE: Final = "crewel sign-in code"
_PAGE: Final = "crewel signed-in page"
_FEED: Final = "crewel live feed"
_FEED_PREFIX: Final = "feed:"
"""What such tokens begin with, so that no other token has to be read for it."""


def code(admin_token: str) -> str:
    """A code that signs one page in with all rights, once, at the server with this admin token."""
    return _sealed(key_of(admin_token, _CODE), {}, CODE_S)


def _sealed(key: bytes, claims: dict[str, Any], seconds: float) -> str:
    return jwt.encode({"jti": new_id(), "exp": time() + seconds, **claims}, key, _ALGORITHM)


def _opened(key: bytes, text: str, what: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(text, key, [_ALGORITHM], options={"require": ["exp", "jti"]})
    except jwt.ExpiredSignatureError:
        raise BadToken(f"the {what} has expired", EXPIRED) from None
    except (jwt.PyJWTError, ValueError):  # ValueError: a text that is not ASCII
        raise BadToken(f"the {what} is not this server's") from None
    return claims


def own_grants(admin: AdminToken, token: str) -> Grants | None:
    """What a token of the server itself grants to a session: the admin token everything. That of a live feed grants the role of
    the operator that has asked for it, until their sign-in ends. None if it is neither."""
    if admin.matches(token):
        return OPERATOR
    if not token.startswith(_FEED_PREFIX):
        return None
    try:
        claims = _opened(admin.key(_FEED), token.removeprefix(_FEED_PREFIX), "token of the feed")
    except BadToken:
        return None
    role, page = role_of(claims["role"]), claims.get("page", "")
    return Grants(claims["who"], role=role, expires_at=claims["until"], is_feed=True, page=page)


class SpentIds(Protocol):
    """Remembers the ids of codes that were used and of sign-ins that have ended."""

    def begin(self, id_: str) -> None:
        """A sign-in with this id begins, which no server can have ended yet."""

    async def is_spent(self, id_: str) -> bool:
        """Whether what has this id holds no more. Raises StoreError if that cannot be known."""

    async def use(self, id_: str, until: float) -> bool:
        """Spend what works once and expires then (seconds since 1970). Returns whether it was unspent. Raises StoreError."""

    async def end(self, id_: str, until: float) -> None:
        """Spend a sign-in that would expire then, and end what holds by it. Raises StoreError."""


class SignIns:
    """Signs operators in to the pages of one server."""

    def __init__(self, admin: AdminToken, spent: SpentIds) -> None:
        self._admin = admin
        self._spent = spent

    async def enter(self, text: str) -> Grants:
        """What this code grants, which grants nothing from now on. Raises BadToken, and StoreError."""
        claims = _opened(self._admin.key(_CODE), text, "code")
        try:
            is_unused = await self._spent.use(claims["jti"], claims["exp"])
        except StoreError as error:
            raise StoreUnavailable(_UNCHECKED_CODE) from error
        if not is_unused:
            text = "the code has been used, or is from before a restore, or the start of a server without a store"
            raise BadToken(f"{text}: `crewel console` prints a new one", EXPIRED)
        return Grants("", role=role_of(True))

    def seal(self, grants: Grants) -> tuple[str, float]:
        """The value of the cookie for an operator with these grants, and when it expires, in seconds since 1970."""
        seconds = float(PAGE_S) if grants.expires_at is None else min(PAGE_S, grants.expires_at - time())
        id_ = new_id()
        claims = {"who": grants.subject, "role": grants.scope.as_claim(), "jti": id_}
        self._spent.begin(id_)
        return _sealed(self._admin.key(_PAGE), claims, seconds), time() + seconds

    def feed(self, grants: Grants) -> tuple[str, float]:
        """A token with which an operator's page opens its session, and until when it may, in seconds since 1970. The session
        is the operator's as long as the sign-in, `grants.page`."""
        assert grants.role is not None
        until = time() + PAGE_S if grants.expires_at is None else grants.expires_at
        claims = {"who": grants.subject, "role": grants.role.word, "until": until, "page": grants.page}
        return _FEED_PREFIX + _sealed(self._admin.key(_FEED), claims, FEED_S), time() + FEED_S

    async def read(self, value: str) -> Grants:
        """The operator whose cookie has this value. Raises BadToken, and StoreUnavailable."""
        claims = await self._claims(value)
        scope = scope_of(claims["role"])
        return Grants(claims["who"], role=scope.role, parts=scope.parts, expires_at=claims["exp"], page=claims["jti"])

    async def leave(self, value: str) -> None:
        """Accept this value no more, nor a feed of its page. Raises BadToken if it was not accepted before, and StoreError."""
        claims = await self._claims(value)
        await self._spent.end(claims["jti"], claims["exp"])

    async def _claims(self, value: str) -> dict[str, Any]:
        claims = _opened(self._admin.key(_PAGE), value, "sign-in")
        try:
            is_spent = await self._spent.is_spent(claims["jti"])
        except StoreError as error:
            raise StoreUnavailable(_UNCHECKED_PAGE) from error
        if is_spent:
            raise BadToken(SIGNED_OUT, EXPIRED)
        return claims
