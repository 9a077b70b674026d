"""The cookie by which the sessions of one browser are counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from crewel.settings import Settings

# The value is a client's to choose, and the server keeps it with the session: short, and nothing that needs quoting.
_VALUE: Final = re.compile(r"[A-Za-z0-9_.~-]{1,64}", re.ASCII)


class BrowserCookie:
    """The cookie by its settings, which do not change while the server runs."""

    def __init__(self, settings: Settings) -> None:
        self.name = settings.bayeux.cookie_name
        self._begins, self._value_at = f"{self.name}=", len(self.name) + 1
        bayeux, always_secure = settings.bayeux, settings.http.tls_cert is not None
        self._is_for_all_sites = bayeux.cookie_same_site == "none"
        # Browsers reject a cookie for other sites that is not Secure.
        needs_tls = bayeux.cookie_secure or bayeux.cookie_partitioned or self._is_for_all_sites
        self._attributes = _attributes(settings, is_secure=always_secure)
        self._attributes_over_tls = _attributes(settings, is_secure=always_secure or needs_tls)

    def read(self, headers: Mapping[str, str]) -> str | None:
        """Its value in these headers; None if there is none, or one that this server would never have set and does not
        adopt."""
        header = headers.get("cookie")
        return None if header is None else self.value(header)

    def value(self, header: str) -> str | None:
        """Its value in a `Cookie` header, as `read` has it. Of the other cookies of the host, which come along, nothing is
        expected; of several with this name the last counts."""
        if ";" not in header and header.startswith(self._begins):  # as most are
            found = header[self._value_at :].strip().strip('"')
            return found if _VALUE.fullmatch(found) else None
        found = ""
        # By hand: the parser of the standard library rejects the whole header for one cookie of another application.
        for cookie in header.split(";"):
            name, _, value = cookie.partition("=")
            if name.strip() == self.name:
                found = value.strip().strip('"')
        return found if _VALUE.fullmatch(found) else None

    def crosses_sites(self, *, is_secure: bool) -> bool:
        """Whether a browser sends it with requests of pages of other sites; `is_secure` says that it came by TLS."""
        return self._is_for_all_sites and is_secure

    def header(self, value: str, *, is_secure: bool) -> str:
        """The `Set-Cookie` header for this value; `is_secure` says that the request came by TLS."""
        return f"{self.name}={value}{self._attributes_over_tls if is_secure else self._attributes}"


def _attributes(settings: Settings, *, is_secure: bool) -> str:
    bayeux = settings.bayeux
    parts = [""]
    if bayeux.cookie_domain:
        parts.append(f"Domain={bayeux.cookie_domain}")
    parts.append(f"Path={bayeux.cookie_path}")
    if bayeux.cookie_max_age >= 0:
        parts.append(f"Max-Age={bayeux.cookie_max_age}")
    if bayeux.cookie_http_only:
        parts.append("HttpOnly")
    if is_secure:
        parts.append("Secure")
    if bayeux.cookie_same_site and (is_secure or bayeux.cookie_same_site != "none"):
        parts.append(f"SameSite={bayeux.cookie_same_site.capitalize()}")
    if bayeux.cookie_partitioned and is_secure:
        parts.append("Partitioned")
    return "; ".join(parts)
