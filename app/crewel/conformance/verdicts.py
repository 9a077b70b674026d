"""What a check finds if the server does not obey, and the transports that it may look at. Pure."""

from __future__ import annotations

from typing import Final

LONG_POLLING: Final = "long-polling"
CALLBACK_POLLING: Final = "callback-polling"
WEBSOCKET: Final = "websocket"
TRANSPORTS: Final = (LONG_POLLING, CALLBACK_POLLING, WEBSOCKET)
"""The transports that a server is tried on, by their names on the wire."""
HTTP: Final = (LONG_POLLING, CALLBACK_POLLING)


class Failed(Exception):
    """The server does something else; the text says what was expected and what came."""


class NotOffered(Exception):
    """The server does not offer the transport that the statement is about; the text says what it offers."""


class Untested(Exception):
    """The statement cannot be looked at on this server; the text says why."""


class Gone(Exception):
    """The server takes no connections any more."""


def expect(condition: object, expected: str, got: object = None) -> None:
    """Raise Failed unless the condition holds."""
    if not condition:
        raise Failed(f"expected {expected}" + (f", got {_shown(got)}" if got is not None else ""))


def _shown(got: object) -> str:
    text = str(got)
    return text if len(text) <= 300 else f"{text[:300]}…"
