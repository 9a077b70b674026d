"""The store as every part of a broker reaches it: the queue of writes, the engine's node, and whether it may be asked.

A server without a store has this object too. It answers each step that it has no store, so that no caller has to look first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.asyncio import Redis

from crewel.broker.durability.write_queue import PendingPublish, WriteQueue
from crewel.delivery.node import Node
from crewel.delivery.records import LogId
from crewel.errors import Behind, Fenced, StoreError, StoreFull, StoreUnavailable
from crewel.settings import Settings
from crewel.storage.connection import Done
from crewel.storage.keys import Keys
from crewel.storage.scripts import Step
from crewel.storage.store import Store

DEAD_SESSION: Final = "communication.noConnection.dead"
"""The code of letters that a session leaves behind when it ends."""

_NO_STORE: Final = "this server has no store"
_READING: Final = "the store has lost something, and is read again"
_SUPERSEDED: Final = "another server has taken over the store"


class NoStore(Store):
    """The store of a server that has none: each step is refused, and nothing can be read."""

    def __init__(self, settings: Settings) -> None:
        self.keys = Keys(settings.storage.prefix)
        self.is_up = self.is_full = False
        self.why_full = None
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

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.store: Store = NoStore(settings)
        self.has_store = False
        self.keys = self.store.keys
        self.token = ""
        """Fences the steps of this server: the store refuses those of a server that another has replaced."""
        self.node = Node(LogId(0))
        self.low = LogId(0)
        """Nothing at or below this is needed by this node, by its last commit."""
        self.writing: WriteQueue[PendingPublish] = WriteQueue(self.store, loop)
        self.facts_max = settings.storage.facts_max_entries
        self.is_superseded = False
        """Whether another server has taken the store over: this one serves nothing any more."""
        self.is_reloading = False
        """Whether the sessions are read again: what is asked for them now would get lost."""
        self.leaving: set[str] = set()
        """Names of sessions whose end the store has not confirmed: asked again, it would hit another one of that name."""
        self.on_lost: Callable[[StoreError], None]
        """Called when the store does not know this node as it was."""

    def open(self, store: Store) -> None:
        """There is a store from now on."""
        self.store, self.keys, self.has_store = store, store.keys, True
        self.writing.open(store)

    @property
    def trouble(self) -> str | None:
        """Why persistent messages are refused at the moment; None while all is well."""
        if self.is_superseded:
            return _SUPERSEDED
        return self.store.trouble or (_READING if self.is_reloading else None)

    @property
    def is_writable(self) -> bool:
        """Whether the store takes what is published, as far as this server knows."""
        return self.has_store and not (self.is_superseded or self.store.is_full)

    def require_writable(self) -> None:
        """Raises StoreError if the store would not take what is published."""
        if not self.has_store:
            raise StoreUnavailable(_NO_STORE)
        if self.is_superseded:
            raise StoreUnavailable(_SUPERSEDED)
        if self.store.is_full:
            raise StoreFull("the store is full")

    def suspect(self, error: StoreError) -> None:
        """The store has answered something that means that this server, or the store, is not what it was."""
        if isinstance(error, Fenced | Behind):
            self.on_lost(error)
