"""https: the certificate that the server shows, and how long that is valid."""

from __future__ import annotations

import logging
import ssl
from math import nan
from pathlib import Path
from typing import Any, Final

from crewel.errors import SettingsError
from crewel.settings import Settings
from crewel.settings.server_settings import Http

log = logging.getLogger(__name__)

_CLOSE_LIMIT_S: Final = 1.0
"""How long a peer has to answer the end of its TLS. Many never do."""


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """The certificate that the server shows; None if it serves http. Raises SettingsError."""
    certificate, key = settings.http.tls_cert, settings.http.tls_key
    if certificate is None or key is None:  # both: the settings have checked that
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise SettingsError(
            f"http.tls_cert and http.tls_key cannot be used: not PEM, or the key is another certificate's ({error})"
        ) from error
    except OSError as error:
        raise SettingsError(f"http.tls_cert {certificate} or http.tls_key {key}: {error.strerror}") from error
    return context


def tls_options(tls: ssl.SSLContext | None, http: Http) -> dict[str, Any]:
    """What `create_server` is to be given for it."""
    if tls is None:
        return {}
    return {
        "ssl": tls,
        "ssl_handshake_timeout": http.header_timeout_ms / 1000,
        "ssl_shutdown_timeout": _CLOSE_LIMIT_S,
    }


def expiry_of(file: str) -> float:
    """When the first certificate of this file (PEM) expires: seconds since 1970; NaN if it cannot be read, as some that OpenSSL
    takes cannot."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(Path(file).read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError) as error:
        log.warning("when the certificate of %s expires cannot be told: %s", file, error)
        return nan
