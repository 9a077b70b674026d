"""What a session's record says of a message that waits for it, as text.

`<attempts>:<bytes>:<channel>:<priority>:<expires>:<source>`, less the defaults at its end. Channels have no colons. The scripts
read and write such texts too (shared/waiting.lua).
"""

from __future__ import annotations

from crewel.delivery.records import NORMAL, Waiting


def text(waiting: Waiting) -> str:
    """Return the text of what is known of a message."""
    attempts, size, channel, priority, expires, source = waiting
    if source:
        return f"{attempts}:{size}:{channel}:{priority}:{expires}:{source}"
    if expires:
        return f"{attempts}:{size}:{channel}:{priority}:{expires}"
    if priority != NORMAL:
        return f"{attempts}:{size}:{channel}:{priority}"
    return f"{attempts}:{size}:{channel}" if channel else f"{attempts}:{size}"


def read(text: bytes) -> Waiting:
    """Return what a text says; one of an older version has only attempts and bytes."""
    words = text.decode().split(":", 5)
    if len(words) == 3:  # as nearly all of them
        return Waiting(int(words[0]), int(words[1]), words[2])
    attempts, size, channel, priority, expires, source = [*words, "", "", "", ""][:6]
    return Waiting(int(attempts), int(size), channel, int(priority or NORMAL), int(expires or 0), source)
