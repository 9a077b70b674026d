"""What only a look at every session tells: states, transports, and the receivers that are in trouble.

It is taken when a page asks, in turns of the event loop, and kept for some seconds: many pages cost what one costs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Final

from crewel.admin.cached_result import CachedResult
from crewel.admin.client_connection import transport_of
from crewel.admin.paging import First
from crewel.admin.receiver_facts import oldest_of
from crewel.delivery.states import DispatcherState
from crewel.event_loop import in_turns

if TYPE_CHECKING:
    from crewel.admin.administration import Administration

_KEPT_S: Final = 4.0
_NAMED: Final = 5
_ANONYMOUS: Final = "client/anonymous/"
_BEHIND_MS: Final = 60_000
"""How long a message waits for a client that is there, until it falls behind."""
_FULL: Final = 0.8
"""The part of its bound from which on a queue is nearly full."""


@dataclass
class SessionCounts:
    """All sessions at one time."""

    states: Counter[str] = field(default_factory=Counter)
    transports: Counter[str] = field(default_factory=Counter)
    """By the connection type in use; `none` for those that are not connected at the moment."""
    unnamed: int = 0
    """Sessions to which their client gave no name."""
    pages: int = 0
    """Operators' pages, which have a session for their live feed."""
    waiting: int = 0
    """Messages that wait, are sent or are open, once for each session."""
    waiting_bytes: int = 0
    on_hold: list[tuple[int, str, str]] = field(default_factory=list)
    """Sessions on hold, those that have been for longest first: since when (ms), name, and cause."""
    on_hold_count: int = 0
    full: list[tuple[float, str]] = field(default_factory=list)
    """Sessions whose queue is nearly full: how full it is, at most 1, and the name."""
    full_count: int = 0
    behind: list[tuple[int, int, str]] = field(default_factory=list)
    """Sessions whose client is there while a message waits for long, the oldest first: since when (ms), how many wait, and the
    name."""
    behind_count: int = 0
    away: list[tuple[int, str]] = field(default_factory=list)
    """Sessions that are away, or have failed, while messages wait: how many, and the name."""
    away_count: int = 0
    away_waiting: int = 0


class SessionCounter:
    """Counts the sessions of one server."""

    def __init__(self, admin: Administration) -> None:
        self._admin = admin
        self._kept = CachedResult(self._count, _KEPT_S)

    async def take(self) -> SessionCounts:
        """The last one, if it is new enough; else a new one."""
        return await self._kept.get()

    async def _count(self) -> SessionCounts:
        counted, dispatchers = SessionCounts(), self._admin.dispatchers
        held = First[tuple[int, str, str]](_NAMED)
        full = First[tuple[float, str]](_NAMED, largest=True)
        away = First[tuple[int, str]](_NAMED, largest=True)
        behind = First[tuple[int, int, str]](_NAMED)
        long_ago = time() * 1000 - _BEHIND_MS
        async for session in in_turns(self._admin.broker.sessions.values()):
            if not session.is_live:
                continue
            waiting, state = dispatchers.waiting(session), dispatchers.state(session)
            counted.states[state.value] += 1
            counted.transports[transport_of(session) or "none"] += 1
            counted.pages += (is_page := session.grants is not None and session.grants.is_feed)
            counted.unnamed += not is_page and (not session.name or session.name.startswith(_ANONYMOUS))
            counted.waiting += waiting
            holdback = dispatchers.holdback(session)
            if holdback is not None:
                held.add((holdback.since_ms, session.name, holdback.cause))
            elif waiting and state is not DispatcherState.ALIVE:
                away.add((waiting, session.name))
                counted.away_waiting += waiting
            elif waiting and session.name and (since := oldest_of(session)) is not None and since < long_ago:
                behind.add((since, waiting, session.name))
            if waiting and (share := waiting / max(self._admin.bounds(session)[0], 1)) >= _FULL:
                full.add((min(share, 1.0), session.name))
        counted.on_hold, counted.on_hold_count = held.items(), held.added
        counted.full, counted.full_count = full.items(), full.added
        counted.behind, counted.behind_count = behind.items(), behind.added
        counted.away, counted.away_count = away.items(), away.added
        return counted
