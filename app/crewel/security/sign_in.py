"""How operators sign in to a page: a code that works once, the value of the cookie that it is exchanged for, and the token with
which the page follows the live feed.

All are JSON Web Tokens of the server for itself, signed with keys that follow from the admin token. So `crewel serve` can
print a code without asking the server, a page stays signed in when the server restarts, and a new admin token ends all of it.
"""

from __future__ import annotations

import secrets
from time import time
from typing import Any, Final

import jwt

from crewel.security.grants import OPERATOR, Grants, role_of, scope_of
from crewel.security.jwt import EXPIRED, BadToken
from crewel.security.tokens import AdminToken, key_of

CODE_S: Final = 900
"""How long a code works."""
PAGE_S: Final = 43_200
"""How long a page stays signed in, unless the token that signed it in expires before."""
FEED_S: Final = 60
"""How long the token of a live feed may be shown in a handshake."""
_ALGORITHM: Final = "HS256"
_CODE: Final = "crewel sign-in code"
_PAGE: Final = "crewel signed-in page"
_FEED: Final = "crewel live feed"
_FEED_PREFIX: Final = "feed:"
"""What such tokens begin with, so that no other token has to be read for it."""
_MOST_LEFT: Final = 10_000


def code(admin_token: str) -> str:
    """A code that signs one page in with all rights, once, at the server with this admin token."""
    return _sealed(key_of(admin_token, _CODE), {}, CODE_S)


def _sealed(key: bytes, claims: dict[str, Any], seconds: float) -> str:
    now = time()
    own = {"at": now, "exp": now + seconds, "jti": secrets.token_urlsafe(12)}
    return jwt.encode(claims | own, key, _ALGORITHM)


def _opened(key: bytes, text: str, what: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(text, key, [_ALGORITHM], options={"require": ["exp", "jti"]})
    except jwt.ExpiredSignatureError:
        raise BadToken(f"the {what} has expired", EXPIRED) from None
    except (jwt.PyJWTError, ValueError):  # ValueError: a text that is not ASCII
        raise BadToken(f"the {what} is not this server's") from None
    return claims


def own_grants(admin: AdminToken, token: str) -> Grants | None:
    """What a token of the server itself grants to a session: the admin token everything, that of a live feed the role of the
    operator who has asked for it, until their sign-in ends. None if it is neither."""
    if admin.matches(token):
        return OPERATOR
    if not token.startswith(_FEED_PREFIX):
        return None
    try:
        claims = _opened(admin.key(_FEED), token.removeprefix(_FEED_PREFIX), "token of the feed")
    except BadToken:
        return None
    return Grants(claims["who"], role=role_of(claims["role"]), expires_at=claims["until"], is_feed=True)


class SignIns:
    """Signs operators in to the pages of one server."""

    def __init__(self, admin: AdminToken) -> None:
        self._admin = admin
        self._started = time()
        self._spent: dict[str, float] = {}
        """Codes that have been used and cookies that were signed out, by their ids, and when they expire."""

    def enter(self, text: str) -> Grants:
        """What this code grants, which grants nothing from now on. Raises BadToken."""
        claims = _opened(self._admin.key(_CODE), text, "code")
        # What was used before a restart is not known any more, so an older code counts as used.
        if claims["at"] < self._started:
            raise BadToken(
                "the code is from before the server's last start: `crewel console` prints a new one", EXPIRED
            )
        if claims["jti"] in self._spent:
            raise BadToken("the code has been used: `crewel console` prints a new one", EXPIRED)
        self._spend(claims)
        return Grants("", role=role_of(True))

    def seal(self, grants: Grants) -> tuple[str, float]:
        """The value of the cookie for an operator with these grants, and when it expires, in seconds since 1970."""
        seconds = float(PAGE_S) if grants.expires_at is None else min(PAGE_S, grants.expires_at - time())
        claims = {"who": grants.subject, "role": grants.scope.as_claim()}
        return _sealed(self._admin.key(_PAGE), claims, seconds), time() + seconds

    def feed(self, grants: Grants) -> tuple[str, float]:
        """A token with which a page of this operator shakes hands, and until when it may, in seconds since 1970. The session
        is the operator's as long as the sign-in."""
        assert grants.role is not None
        until = time() + PAGE_S if grants.expires_at is None else grants.expires_at
        claims = {"who": grants.subject, "role": grants.role.word, "until": until}
        return _FEED_PREFIX + _sealed(self._admin.key(_FEED), claims, FEED_S), time() + FEED_S

    def read(self, value: str) -> Grants:
        """The operator whose cookie has this value. Raises BadToken."""
        claims = self._claims(value)
        scope = scope_of(claims["role"])
        return Grants(claims["who"], role=scope.role, parts=scope.parts, expires_at=claims["exp"])

    def leave(self, value: str) -> None:
        """Accept this value no more. Raises BadToken if it was not accepted before."""
        self._spend(self._claims(value))

    def _claims(self, value: str) -> dict[str, Any]:
        claims = _opened(self._admin.key(_PAGE), value, "sign-in")
        if claims["jti"] in self._spent:
            raise BadToken("the page was signed out", EXPIRED)
        return claims

    def _spend(self, claims: dict[str, Any]) -> None:
        now, spent = time(), self._spent
        for name in [name for name, until in spent.items() if until <= now]:
            del spent[name]
        if len(spent) >= _MOST_LEFT:
            del spent[next(iter(spent))]
        spent[claims["jti"]] = claims["exp"]
