"""The requests that wait until it can be said where they are processed, by the session that each is for.

Thousands may wait for the sessions of a dead node, which come a few at a time: only those for a session that has come are
looked at again. When something is known of the nodes, all are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from crewel.bayeux.codec import is_handshake
from crewel.qos.names import parse_name


class WaitingRequests:
    """Those of one node."""

    def __init__(self) -> None:
        self._events: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def waiting(self, elements: list[Any]) -> Iterator[asyncio.Event]:
        """An event that is set whenever there may be news for this request."""
        session, event = _session(elements), asyncio.Event()
        events = self._events.setdefault(session, set())
        events.add(event)
        try:
            yield event
        finally:
            events.remove(event)
            if not events:
                del self._events[session]

    def wake(self, sessions: Iterable[str]) -> None:
        """There may be news for the requests for these sessions, which are known by `clientId` or by name."""
        for session in sessions:
            for event in self._events.get(session, ()):
                event.set()

    def wake_all(self) -> None:
        """There may be news for any."""
        self.wake(self._events)


def _session(elements: list[Any]) -> str:
    """The session that a request is for: by its `clientId`, or by the name that a login asks for. Empty if it does not say."""
    first = elements[0] if elements else None
    if type(first) is not dict:
        return ""
    if is_handshake(first):
        return session_name(asked_session(first))
    client_id = first.get("clientId")
    return client_id if type(client_id) is str else ""


def asked_session(handshake: dict[str, Any]) -> dict[str, Any]:
    """The `ext.session` of a login; empty if it has none."""
    ext = handshake.get("ext")
    asked = ext.get("session") if type(ext) is dict else None
    return asked if type(asked) is dict else {}


def session_name(asked: dict[str, Any]) -> str:
    """The name of the one session that a login asks for; empty if it asks for none."""
    name = asked.get("name")
    parsed = parse_name(name) if type(name) is str else None
    return parsed.relative if parsed is not None and parsed.number else ""
