"""https: the certificate that the server shows, and the renewed one that it takes from the disk.

Connections that are open keep the certificate of their handshake.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from math import isnan, nan
from pathlib import Path
from typing import Any, Final

from crewel.errors import SettingsError
from crewel.settings.server_settings import Http

log = logging.getLogger(__name__)

_EVERY_S: Final = 60.0
"""How often the files are looked at."""
_CLOSE_LIMIT_S: Final = 1.0
"""How long a peer has to answer the end of its TLS. Many never do."""


class Certificate:
    """The files of `http.tls_cert` and `http.tls_key`, as handshakes get them."""

    def __init__(self, chain: str, key: str) -> None:
        """Reads the files: not in the event loop. Raises SettingsError for those that cannot be used."""
        self._chain, self._key = chain, key
        self._seen = self._stamps()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._load(self.context)
        self.expires_at = self._expiry()
        """When it expires: seconds since 1970; NaN if that cannot be read, as of some that OpenSSL takes."""

    async def watch(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Use the files if they have changed since the last look. A pair that cannot be used is logged, and the former one
        stays."""
        seen = await asyncio.to_thread(self._stamps)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            # A pair that does not fit would leave the context in use without a key.
            await asyncio.to_thread(self._load, ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), password="")
            self._load(self.context, password="")  # here, because no handshake may begin meanwhile
        except SettingsError as error:
            log.error("%s; the former certificate stays", error)
            return
        self.expires_at = await asyncio.to_thread(self._expiry)
        log.info("the certificate of %s was renewed%s", self._chain, _until(self.expires_at))

    def _stamps(self) -> list[tuple[int, ...]]:
        """What differs when a file is written, or replaced by another one. A file that is missing has none."""
        found: list[tuple[int, ...]] = []
        for file in (self._chain, self._key):
            with suppress(OSError):
                stat = Path(file).stat()
                found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
        return found

    def _load(self, context: ssl.SSLContext, password: str | None = None) -> None:
        """Without a password, OpenSSL asks for that of a key at the terminal."""
        try:
            context.load_cert_chain(self._chain, self._key, password)
        except ssl.SSLError as error:
            raise SettingsError(
                f"http.tls_cert and http.tls_key cannot be used: not PEM, or the key is another certificate's ({error})"
            ) from error
        except OSError as error:
            raise SettingsError(f"http.tls_cert {self._chain} or http.tls_key {self._key}: {error.strerror}") from error

    def _expiry(self) -> float:
        from cryptography.x509 import load_pem_x509_certificate

        try:
            return load_pem_x509_certificate(Path(self._chain).read_bytes()).not_valid_after_utc.timestamp()
        except (OSError, ValueError) as error:
            log.warning("when the certificate of %s expires cannot be read: %s", self._chain, error)
            return nan


def _until(expires_at: float) -> str:
    return "" if isnan(expires_at) else f", and expires at {datetime.fromtimestamp(expires_at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def certificate_of(http: Http) -> Certificate | None:
    """The certificate of the server; None if it serves http. Reads files: not in the event loop. Raises SettingsError."""
    if http.tls_cert is None or http.tls_key is None:  # both: the settings have checked that
        return None
    return Certificate(http.tls_cert, http.tls_key)


def tls_options(certificate: Certificate | None, http: Http) -> dict[str, Any]:
    """What `create_server` has to get for it."""
    if certificate is None:
        return {}
    return {
        "ssl": certificate.context,
        "ssl_handshake_timeout": http.header_timeout_ms / 1000,
        "ssl_shutdown_timeout": _CLOSE_LIMIT_S,
    }
