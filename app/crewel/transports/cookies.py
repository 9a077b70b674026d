"""The browser cookie: read from requests, and written with its attributes in the order that is usual (reference 3.7)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from crewel.settings import Settings

__all__ = ["BrowserCookie"]

# The value is a client's to choose, and the server keeps it with the session: short, and nothing that needs quoting.
_VALUE: Final = re.compile(r"[A-Za-z0-9_.~-]{1,64}", re.ASCII)


class BrowserCookie:
    """The cookie by its settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.bayeux
        self._always_secure = settings.http.tls_cert is not None

    @property
    def name(self) -> str:
        """Its name."""
        return self._settings.cookie_name

    def read(self, cookies: Mapping[str, str]) -> str | None:
        """Its value; None if there is none, or one that this server would never have set and does not adopt."""
        value = cookies.get(self._settings.cookie_name)
        return value if value is not None and _VALUE.fullmatch(value) else None

    def header(self, value: str, *, is_secure: bool) -> str:
        """The `Set-Cookie` header for this value; `is_secure` says that the request came by TLS."""
        settings = self._settings
        parts = [f"{settings.cookie_name}={value}"]
        if settings.cookie_domain:
            parts.append(f"Domain={settings.cookie_domain}")
        parts.append(f"Path={settings.cookie_path}")
        if settings.cookie_max_age >= 0:
            parts.append(f"Max-Age={settings.cookie_max_age}")
        if settings.cookie_http_only:
            parts.append("HttpOnly")
        if self._always_secure or (settings.cookie_secure and is_secure):
            parts.append("Secure")
        if settings.cookie_same_site:
            parts.append(f"SameSite={settings.cookie_same_site.capitalize()}")
        if settings.cookie_partitioned:
            parts.append("Partitioned")
        return "; ".join(parts)
