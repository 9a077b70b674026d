"""The store as every part of a broker reaches it: the queue of writes, the engine's node, and whether it may be asked.

A server without a store has this object too. It answers each step that it has no store, so that no caller has to look first.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from redis.asyncio import Redis

from crewel.broker.handler_steps import resolve
from crewel.broker.writing.pending_publish import PendingPublish
from crewel.broker.writing.store_phase import StorePhase
from crewel.broker.writing.write_queue import Log, WriteQueue
from crewel.delivery.beside_log import BesideLog
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import LogId, PendingDeadLetter, SessionName
from crewel.errors import Behind, Fenced, StoreError, StoreFull, StoreUnavailable
from crewel.settings import Settings
from crewel.storage.keys import Keys
from crewel.storage.losses import AnsweredIds
from crewel.storage.script_step import Step
from crewel.storage.store import Store
from crewel.storage.store_connection import Done

log = logging.getLogger(__name__)

_NO_STORE: Final = "this server has no store"
_READING: Final = "all sessions are read again from the store"
_SUPERSEDED: Final = "another server has taken over the store"


class NoStore(Store):
    """The store of a server that has none: each step is refused, and nothing can be read."""

    def __init__(self, settings: Settings) -> None:
        self.keys = Keys(settings.storage.prefix)
        self.is_up = self.is_full = self.is_scarce = False
        self.room, self.until_look = 0, math.inf
        self.why_full = self.owner_says = self.owner_trouble = self._home = self._embedded = self.away_since = None
        self.trouble = _NO_STORE

    @property
    def reader(self) -> Redis:  # type: ignore[override]
        """Raises StoreUnavailable."""
        raise StoreUnavailable(_NO_STORE)

    def submit(self, steps: Sequence[Step[Any]], done: Done) -> None:
        """Refuse them all."""
        done([StoreUnavailable(_NO_STORE)] * len(steps))


class StoreAccess:
    """What the parts of one broker share of the store. `Durability` opens it, renews it and gives it up; all others ask."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop, appender: Log[PendingPublish]) -> None:
        """`appender` makes the steps that append to the log, and takes their answers."""
        self.store: Store = NoStore(settings)
        self.has_store = False
        self.keys = self.store.keys
        self.token = ""
        """Fences the steps of this server: the store refuses those of a server that another has replaced."""
        self.node = LogConsumer(LogId(0))
        self.low = LogId(0)
        """Nothing at or below this is needed by this node, by its last commit."""
        self.writing: WriteQueue[PendingPublish] = WriteQueue(self.store, loop, appender)
        self.answered = AnsweredIds()
        """What this server was answered as stored, to be missed if the store loses it."""
        self._settings = settings.storage
        self.phase = StorePhase.SERVING
        """Where this server stands with its store; `enter` changes it."""
        self.is_suspected = False
        """Whether the store may not know this node as it was: then all sessions are read again, or another server has them."""
        self.leaving: dict[SessionName, list[PendingDeadLetter]] = {}
        """Names of sessions whose end the store has not confirmed: asked again, it would hit another one of that name. With the
        dead letters that the store gets with the end."""
        self._changes: dict[str, asyncio.Future[None]] = {}
        """Logins wait for these: by the names of sessions that end, or come from another node."""
        self._loop = loop
        self._on_lost: Callable[[StoreError], None] | None = None
        self.beside: BesideLog[Callable[[], object]] = BesideLog()
        """What lies beside the log and waits for its place there, as functions that take it."""

    @property
    def facts_max(self) -> int:
        """How many facts the store keeps; it may change while the server runs."""
        return self._settings.facts_max_entries

    def until_changed(self, name: str) -> asyncio.Future[None]:
        """Done when the session of this name has left the store, or has come from another node."""
        return self._changes.setdefault(name, self._loop.create_future())

    def changed(self, names: Iterable[str]) -> None:
        """These sessions have left the store, or have come from another node."""
        for name in names:
            if self._changes and (waited := self._changes.pop(name, None)) is not None:
                resolve(waited, None)

    def open(self, store: Store, on_lost: Callable[[StoreError], None], on_forgotten: Callable[[float], None]) -> None:
        """There is a store from now on. `on_lost` is called when it does not know this node as it was, and `on_forgotten` as
        `WriteQueue.open` says."""
        self.store, self.keys, self.has_store, self._on_lost = store, store.keys, True, on_lost
        self.writing.open(store, on_forgotten)

    def enter(self, phase: StorePhase) -> None:
        """The next phase begins. Raises ValueError if it cannot follow."""
        self.phase = self.phase.followed_by(phase)

    @property
    def serves_sessions(self) -> bool:
        """Whether the store may be asked for something that changes what is in memory of sessions."""
        return not (self.phase.is_superseded or self.phase.is_adopting or self.writing.is_closed)

    @property
    def trouble(self) -> str | None:
        """Why persistent messages are refused at the moment; None while all is well."""
        if self.phase.is_superseded:
            return _SUPERSEDED
        return self.store.why_away or (_READING if self.phase.is_reloading or self.is_suspected else None)

    @property
    def is_writable(self) -> bool:
        """Whether the store takes what is published, as far as this server knows."""
        return self.has_store and not (self.phase.is_superseded or self.store.is_full)

    def require_writable(self) -> bool:
        """Raises StoreError if the store would not take what is published. Returns whether its publisher has to be charged
        for it (`StoredShares`)."""
        if not self.has_store:
            raise StoreUnavailable(_NO_STORE)
        if self.phase.is_superseded:
            raise StoreUnavailable(_SUPERSEDED)
        if self.store.is_full:
            raise StoreFull("the store is full")
        return self.store.is_scarce

    def require_sessions(self) -> bool:
        """Raises StoreError if the store would refuse a message for a session, or the session would not know of it. Returns the
        same as `require_writable`."""
        is_scarce = self.require_writable()
        if self.phase.is_adopting:
            raise StoreUnavailable(_READING)
        return is_scarce

    def in_place(self, log_id: LogId, take: Callable[[], object]) -> None:
        """Call `take` when all that has lower ids was taken from the log; at once, if that is so. The store has just answered
        that it put a message with this id past the log: into an inbox, say."""
        if log_id <= self.node.cursor:
            take()
            return
        if not self.beside:
            self.writing.probe()  # else one is under way that the store is asked for behind this
        self.beside.add(log_id, take)

    def take_beside(self, last: LogId) -> None:
        """Take the messages with places up to there: what the log has before that was taken."""
        for log_id, take in self.beside.take(last):
            self.node.skip(log_id)
            try:
                take()
            except Exception:
                log.exception("a message could not be handed to its receivers")

    def suspect(self, error: StoreError) -> None:
        """The store has answered something that means that this server, or the store, is not what it was."""
        if isinstance(error, Fenced | Behind):
            self.lost(error)

    def lost(self, error: StoreError) -> None:
        """The store does not know this node as it was."""
        if self._on_lost is not None:
            self._on_lost(error)
