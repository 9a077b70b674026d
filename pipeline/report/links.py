"""Links from the names on the page to the pages of the operator (`/admin/`), if the address of the server is given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Final
from urllib.parse import quote

_RECEIVER: Final = re.compile(r"client/[^/]+/.+")
_LETTER: Final = re.compile(r"[0-9]+-[0-9]+")
_MESSAGE: Final = re.compile(r"[^/]+")


@dataclass(frozen=True, slots=True)
class Links:
    """Makes a name to HTML: a link, or without an address the name alone."""

    origin: str | None = None
    """Scheme, host and port of the server."""

    def receiver(self, name: str) -> str:
        """A session. A shared queue has no page."""
        return self._link(f"receivers/{quote(name)}" if _RECEIVER.fullmatch(name) else "", name)

    def channel(self, name: str) -> str:
        """A channel."""
        return self._link(f"topics{quote(name)}" if name.startswith("/") else "", name)

    def pattern(self, name: str) -> str:
        """A pattern of channels, or a channel."""
        return self._link(f"topics?pattern={quote(name, safe='')}", name) if "*" in name else self.channel(name)

    def message(self, name: str) -> str:
        """A message, by its id."""
        return self._link(f"message/{quote(name, safe='')}" if _MESSAGE.fullmatch(name) else "", name)

    def letters(self, words: str, receiver: str, code: str) -> str:
        """Words that lead to the dead letters with a code, of one receiver or, if that is empty, of all; none without an
        address."""
        if self.origin is None:
            return ""
        of = f"receiver={quote(receiver, safe='')}&" if receiver else ""
        return self._link(f"dead-letters?{of}code={quote(code, safe='')}", words, is_code=False)

    def letter(self, words: str, place: str) -> str:
        """Words that lead to a dead letter; none without an address."""
        if self.origin is None or not _LETTER.fullmatch(place):
            return ""
        return self._link(f"dead-letters/{place}", words, is_code=False)

    def _link(self, place: str, name: str, *, is_code: bool = True) -> str:
        if not name:
            return ""
        text = f"<code>{escape(name)}</code>" if is_code else escape(name)
        if self.origin is None or not place:
            return text
        return f'<a href="{escape(f"{self.origin}/admin/#/{place}")}">{text}</a>'
