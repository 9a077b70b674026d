"""How long the certificate that a server shows is valid."""

from __future__ import annotations

import logging
from math import nan
from pathlib import Path

log = logging.getLogger(__name__)


def expiry_of(file: Path) -> float:
    """When the first certificate of this file (PEM) expires: seconds since 1970; NaN if it cannot be read, as some that OpenSSL
    takes cannot."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError) as error:
        log.warning("when the certificate of %s expires cannot be told: %s", file, error)
        return nan
