"""Reads JSON Web Tokens of clients: whether one is valid, and what its claims grant. Only the policy `jwt` loads this."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import jwt

from crewel.qos.connect import MAX_SECRET
from crewel.qos.names import ANONYMOUS
from crewel.security.bad_token import EXPIRED, UNAVAILABLE, BadToken
from crewel.security.grants import Grants, patterns, scope_of, subjects
from crewel.security.token_keys import Keys, KeysUnavailable, load_keys
from crewel.settings.access import Security

_UNREADABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What Python's JSON and numbers raise for a forged text: nested by the thousand, or infinite."""
_COMPARED: Final = {jwt.InvalidAudienceError: "jwt_audience", jwt.InvalidIssuerError: "jwt_issuer"}
"""The setting with which a claim was compared, by the error."""


_KEY_ERRORS: Final = (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError)


class _WrongKey(BadToken):
    """The token is not signed with the key that was found for it."""


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
        keys, key_id = self._opened(), _key_id(token)
        try:
            key = await keys.find(key_id)
        except KeysUnavailable:
            raise BadToken("the keys that verify tokens are not available at the moment", UNAVAILABLE) from None
        try:
            return self._read(token, key, keys.algorithms)
        except _WrongKey:
            if not keys.may_be_others:
                raise
        # The issuer may sign with another key by now that has the name of the one before, or none.
        return self._read(token, await keys.look_again(key_id), keys.algorithms)

    def read_at_once(self, token: str) -> Grants | None:
        """What the token grants, if no key has to be fetched for it; None if one has. Raises BadToken."""
        keys = self._opened()
        key = keys.at_hand(_key_id(token))
        try:
            return None if key is None else self._read(token, key, keys.algorithms)
        except _WrongKey:
            if keys.may_be_others:
                return None
            raise

    def claimed_subject(self, token: str) -> str | None:
        """The subject that a token names, whether or not it is true: for the log."""
        try:
            subject = jwt.decode(token, options={"verify_signature": False}).get(self._settings.jwt_subject_claim)
        except (jwt.PyJWTError, *_UNREADABLE):
            return None
        return subject if isinstance(subject, str) else None

    def _opened(self) -> Keys:
        if self._keys is None:
            raise BadToken("the server is not ready yet", UNAVAILABLE)
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
            setting = next((f" (security.{name})" for each, name in _COMPARED.items() if isinstance(error, each)), "")
            kind = _WrongKey if isinstance(error, _KEY_ERRORS) else BadToken
            raise kind(f"the token is not valid: {shown}{setting}") from None
        return self._granted(claims)

    def _granted(self, claims: dict[str, Any]) -> Grants:
        settings = self._settings
        subject = claims[settings.jwt_subject_claim]
        if not isinstance(subject, str) or not subject:
            raise BadToken(f"the claim {settings.jwt_subject_claim} must be a non-empty string")
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
            "presence": _listed(claims, settings.jwt_presence_claim, patterns),
        }
        try:
            scope = scope_of(claims.get(settings.jwt_operator_claim))
        except ValueError as error:
            raise BadToken(f"the claim {settings.jwt_operator_claim}: {error}") from None
        expires_at = float(claims["exp"]) + settings.jwt_leeway_ms / 1000
        return Grants(
            subject,
            **lists,
            role=scope.role,
            parts=scope.parts,
            expires_at=expires_at,
            is_feed=False,
            page="",
            by_policy=False,
        )


def _key_id(token: str) -> str | None:
    if len(token) > MAX_SECRET:
        raise BadToken("the token is too long")
    try:
        key_id = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, *_UNREADABLE):
        raise BadToken("the token is neither the admin token nor a JSON Web Token") from None
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
