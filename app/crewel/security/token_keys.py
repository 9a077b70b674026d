"""The keys that tokens are verified with: a public key or a secret from a file, or a JWK set from a file or an address.

A set that has an address is fetched without blocking, and used for as long as the settings say. It is fetched once more when a
token names a key that is not in it, or is signed with another key than the one of its name. While the address does not answer,
the keys that are there stay in use.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, Final

import aiohttp
import jwt
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate

from crewel.errors import CrewelError, SettingsError
from crewel.settings.access import Security
from crewel.settings.table import without_credentials

log = logging.getLogger(__name__)

_ASYMMETRIC: Final = ("RS256", "ES256", "EdDSA")
_MAX_SET_BYTES: Final = 1024 * 1024
_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 10.0
"""Seconds between two fetches for keys that are missing: anybody can send a token that names one."""


class KeysUnavailable(CrewelError):
    """The keys have never been fetched so far: no token can be judged."""


class Keys:
    """Keys that stay as they are: `choose` answers the one that a token names, or None."""

    def __init__(self, choose: Callable[[str | None], Any], algorithms: list[str]) -> None:
        self._choose = choose
        self.algorithms = algorithms
        """The signatures that are accepted."""

    def at_hand(self, key_id: str | None) -> Any:
        """The key that a token names, or the only one; None if there is no such key, or if it takes waiting to know."""
        return self._choose(key_id)

    async def find(self, key_id: str | None) -> Any:
        """The key that a token names, or the only one, fetched if need be; None if there is none. Raises KeysUnavailable."""
        return self._choose(key_id)

    @property
    def may_be_others(self) -> bool:
        """Whether `look_again` may find other keys."""
        return False

    async def look_again(self, key_id: str | None) -> Any:
        """The key that a token names, after the one that was found did not fit. Only if `may_be_others`."""
        return self._choose(key_id)


class _FetchedKeys(Keys):
    """A JWK set that has an address."""

    def __init__(self, address: str, settings: Security, algorithms: list[str]) -> None:
        super().__init__(lambda key_id: _chosen(self._keys or [], key_id), algorithms)
        self._address = address
        self._settings = settings
        self._keys: list[jwt.PyJWK] | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def at_hand(self, key_id: str | None) -> Any:
        return None if self._is_old else self._choose(key_id)

    async def find(self, key_id: str | None) -> Any:
        if self._is_old or self._choose(key_id) is None:
            await self._refresh()
        if self._keys is None:
            raise KeysUnavailable(without_credentials(self._address))
        return self._choose(key_id)

    @property
    def may_be_others(self) -> bool:
        return self._fetching is not None or monotonic() - self._tried_at >= _PAUSE_S

    async def look_again(self, key_id: str | None) -> Any:
        await self._refresh()
        return self._choose(key_id)

    @property
    def _is_old(self) -> bool:
        return monotonic() - self._fetched_at > self._settings.jwt_refresh_ms / 1000

    async def _refresh(self) -> None:
        """Fetch once for all callers that wait, and not again at once."""
        if self._fetching is None:
            # Else a flood of tokens with invented key ids would become a flood of fetches.
            if monotonic() - self._tried_at < _PAUSE_S:
                return
            self._tried_at = monotonic()
            self._fetching = asyncio.create_task(self._fetch())
        # Shielded: who asked first may go away, and the others wait for the same answer.
        await asyncio.shield(self._fetching)

    async def _fetch(self) -> None:
        try:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self._address) as response:
                response.raise_for_status()
                text = await response.content.read(_MAX_SET_BYTES + 1)
                while len(text) <= _MAX_SET_BYTES and (more := await response.content.read(_MAX_SET_BYTES)):
                    text += more
            if len(text) > _MAX_SET_BYTES:
                raise ValueError("it is larger than 1 MiB")
            self._keys = _read_set(text)
            self._fetched_at = monotonic()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            effect = "the previous keys stay in use" if self._keys else "no token can be verified"
            shown = without_credentials(self._address)
            log.warning("the keys of %s cannot be fetched: %s; %s", shown, _why(error), effect)
        finally:
            self._fetching = None


def _why(error: Exception) -> str:
    """The text of an error without the address that some repeat: it may hold credentials."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{error.status} {error.message}"
    if isinstance(error, aiohttp.InvalidURL):
        return "it is not an address"
    return str(error) or type(error).__name__


def _chosen(keys: list[jwt.PyJWK], key_id: str | None) -> jwt.PyJWK | None:
    if len(keys) == 1 and None in (key_id, keys[0].key_id):
        return keys[0]
    if key_id is None:
        return None
    return next((key for key in keys if key.key_id == key_id), None)


def _read_set(text: bytes) -> list[jwt.PyJWK]:
    """The keys of a JWK set that can verify. Raises ValueError."""
    try:
        return [key for key in jwt.PyJWKSet.from_json(text.decode()).keys if key.public_key_use in (None, "sig")]
    except (jwt.PyJWTError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it is not a JWK set: {error}") from None


def load_keys(settings: Security) -> Keys:
    """The keys that the settings name. Raises SettingsError, whose text says what to fix."""
    named = settings.jwt_keys
    assert named is not None
    chosen = list(settings.jwt_algorithms)
    if named.startswith(("http://", "https://")):
        return _FetchedKeys(named, settings, chosen or list(_ASYMMETRIC))
    try:
        text = Path(named).read_bytes()
    except OSError as error:
        raise SettingsError(f"security.jwt_keys: {named} cannot be read: {error.strerror}") from None
    try:
        if text.lstrip().startswith(b"{"):
            json.loads(text)
            keys = _read_set(text)
            return Keys(lambda key_id: _chosen(keys, key_id), chosen or list(_ASYMMETRIC))
        return _one_key(text.strip(), chosen)
    except ValueError as error:
        raise SettingsError(f"security.jwt_keys: {named}: {error}") from None


def _one_key(text: bytes, chosen: list[str]) -> Keys:
    if not text.startswith(b"-----BEGIN"):
        algorithms = chosen or ["HS256"]
        if not all(name.startswith("HS") for name in algorithms):
            raise ValueError("it holds a secret, but jwt_algorithms are for public keys")
        shortest = max(int(name[2:]) // 8 for name in algorithms)
        if len(text) < shortest:  # as long as the digest, by RFC 7518, 3.2
            raise ValueError(f"a secret has at least {shortest} bytes")
        return Keys(lambda _: text, algorithms)
    algorithms = chosen or list(_ASYMMETRIC)
    if any(name.startswith("HS") for name in algorithms):
        # Everyone knows a public key: as a secret it would let anyone sign.
        raise ValueError("it holds a public key, but jwt_algorithms has one for secrets")
    key = _public_key(text)
    return Keys(lambda _: key, algorithms)


def _public_key(text: bytes) -> Any:
    try:
        if text.startswith(b"-----BEGIN CERTIFICATE"):
            return load_pem_x509_certificate(text).public_key()
        return load_pem_public_key(text)
    except ValueError:
        raise ValueError("it holds no public key and no certificate (PEM)") from None
