"""How long the certificate that a server shows is valid."""

from __future__ import annotations

from pathlib import Path


def expiry_of(file: Path) -> float:
    """When the first certificate of this file (PEM) expires: seconds since 1970. Raises OSError, and ValueError for a file
    without one."""
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()
