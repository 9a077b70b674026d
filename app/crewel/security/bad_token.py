"""What is wrong with a token, for all that read tokens."""

from __future__ import annotations

from typing import Final

from crewel.errors import CrewelError

ACCESS_DENIED: Final = "user.security.authentication.accessDenied"
EXPIRED: Final = "user.security.authentication.expired"
UNAVAILABLE: Final = "resource.unavailable"


class BadToken(CrewelError):
    """The token does not hold; the text says why and never holds the token. `code` is for the client."""

    def __init__(self, text: str, code: str = ACCESS_DENIED) -> None:
        super().__init__(text)
        self.code = code
