"""What plugs into the client's message pipe, and the pipe itself.

The interface is the official client's: an extension sees every message that
goes out and every message that comes in, may change it, and may drop it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from crewel.bayeux.message import Fields

log = logging.getLogger("crewel.client")


class Extension:
    """Base of client extensions; both hooks let messages pass unchanged.

    A hook returns the message, changed in place or not, or None to drop it.
    A dropped request raises `MessageDroppedError` where it was made; a dropped
    reply never arrives. A hook that raises is logged and skipped.
    """

    def incoming(self, message: Fields) -> Fields | None:
        """Sees one received message before anything else of the client does."""
        return message

    def outgoing(self, message: Fields) -> Fields | None:
        """Sees one message before it is sent; a changed `id` is put back."""
        return message


class Pipe:
    """The extensions in order: incoming first to last, outgoing last to first."""

    def __init__(self, extensions: tuple[Extension, ...] = ()) -> None:
        self._extensions = list(extensions)

    def add(self, extension: Extension) -> None:
        """Put an extension at the end."""
        self._extensions.append(extension)

    def remove(self, extension: Extension) -> None:
        """Take an extension out.

        Raises:
            ValueError: it is not in the pipe.
        """
        self._extensions.remove(extension)

    def incoming(self, message: Fields) -> Fields | None:
        """What is left of a received message, or None if one dropped it."""
        return _through([e.incoming for e in self._extensions], message)

    def outgoing(self, message: Fields) -> Fields | None:
        """What is left of a message to send, or None if one dropped it."""
        identity = message.get("id")
        passed = _through([e.outgoing for e in reversed(self._extensions)], message)
        if passed is not None and passed.get("id") != identity:
            # Replies are matched by id, so it is not an extension's to change.
            passed["id"] = identity
        return passed


def _through(hooks: list[Callable[[Fields], Fields | None]], message: Fields) -> Fields | None:
    for hook in hooks:
        try:
            passed = hook(message)
        except Exception:
            log.exception("an extension failed; the message goes on without it")
            continue
        if passed is None:
            return None
        message = passed
    return message
