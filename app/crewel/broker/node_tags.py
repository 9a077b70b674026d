"""The tag of a node: what the `clientId`s of its sessions end with, so that a request finds its way to the owner.

It is derived from the node's token and tells nothing of it. Pure.
"""

from __future__ import annotations

from hashlib import blake2s
from typing import Final

_BYTES: Final = 4
_MARK: Final = "-"
_NUMBERS_BITS: Final = 20


def tag_of(token: str) -> str:
    """Return the tag of the node with this token: 8 hexadecimal characters."""
    return blake2s(token.encode(), digest_size=_BYTES).hexdigest()


def first_number(tag: str, beyond: int) -> int:
    """Return the number from which the node with this tag numbers its sessions that are not stored, downwards. `beyond` is
    where such numbers begin without nodes. Each node has a million, and then takes those of a node that hardly exists."""
    return beyond - (int(tag, 16) << _NUMBERS_BITS)


def tagged(secret: str, tag: str) -> str:
    """Return the `clientId` of a session that began on the node with this tag."""
    return f"{secret}{_MARK}{tag}"


def tag_in(client_id: str) -> str:
    """Return the tag that a `clientId` ends with; empty if it has none."""
    _, mark, tag = client_id.rpartition(_MARK)
    return tag if mark else ""
