"""The secrets that the server makes for clients: the `clientId` of a session, and the cookie of a browser.

Each is unguessable, because it lets a client speak for the session or the browser. With several nodes, a `clientId` also ends
with the tag of its node (`node_tags`).
"""

from __future__ import annotations

import secrets
from typing import Final

_secrets: list[str] = []
_ALPHABET: Final = b"abcdefghijklmnopqrstuvwxyz234567" * 8


def new_secret() -> str:
    """Return an unguessable `clientId` or cookie: 130 random bits in 26 characters of `[a-z2-7]`; Bayeux 1.0 asks for 128."""
    if not _secrets:
        # One system call for 64. `base64` takes many times as long as the table, which has each character eight times.
        text = secrets.token_bytes(26 * 64).translate(_ALPHABET).decode()
        _secrets.extend([text[start : start + 26] for start in range(0, len(text), 26)])
    return _secrets.pop()
