"""Notices what the store has lost that this server was answered as stored.

Both sides of the comparison are of one moment: what the server was answered is set apart before the store is asked what it
has. An answer that comes later belongs to the next comparison, however often this one has to be tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from crewel.broker.writing.store_access import StoreAccess
from crewel.delivery.records import SessionName
from crewel.metrics import Metrics
from crewel.storage import losses, session_store
from crewel.storage.losses import Loss

log = logging.getLogger(__name__)

_ANOTHER: Final = "the store is another one, or has restarted"
_TAKEN_FOR_DEAD: Final = "another node has declared this one dead"
_BEHIND: Final = "the store lacks a commit, or was unavailable for a long time"


@dataclass(eq=False)
class LossDetector:
    """Compares the store with what this server was answered, each time that it may have changed."""

    _access: StoreAccess
    _node: str
    """The `node.name` of the server."""
    _metrics: Metrics
    has_changed: bool = field(default=False, init=False)
    """Whether the store is another one, or has lost something, since the sessions were read last."""
    _apart: str = field(default="", init=False)
    """The generation of the store before which the newest answers were set apart."""
    _compared: str | None = field(default=None, init=False)
    """The generation that was compared since `begin`."""

    def store_changed(self) -> None:
        """The store is back as another generation, and has not been asked for anything yet."""
        generation = self._access.store.generation
        if generation != self._apart:  # else what was answered meanwhile is of this very one
            self._apart = generation
            self._access.answered.turn(self._access.node.cursor)

    def begin(self, generation: str) -> None:
        """All sessions will be read again; they were read from this generation before."""
        self._compared = None
        if self._access.store.generation == generation:  # something was deleted, or this node was taken for dead
            self._access.answered.turn(self._access.node.cursor)

    async def compare(self, generation: str, *, is_fenced: bool) -> None:
        """Say what the store does not have any more, and record it there; once for each time that it has changed. `generation`
        is that from which the sessions were read before. Raises StoreError, and then is to be called again."""
        access, store, answered = self._access, self._access.store, self._access.answered
        met, found = store.met, store.generation
        if found == self._compared:
            return
        self.has_changed = found != generation
        met_as = found if self.has_changed else f"{found}:{access.token}"
        if not self.has_changed:
            met = await access.writing.ask(losses.meet(store.keys, met_as))
        if answered.seen > met.last:
            loss = Loss(self._node, met, answered.seen, answered.missing(met.last))
            await access.writing.ask(losses.note(store.keys, access.token, met_as, loss, access.facts_max))
            self.has_changed = True
            self._metrics.store_losses += 1
            self._metrics.lost_messages += loss.count
            log.error("the store has lost data that it had confirmed: %s; all sessions are read again", loss)
        else:
            why = _ANOTHER if self.has_changed else _TAKEN_FOR_DEAD if is_fenced else _BEHIND
            log.warning("%s: all sessions are read again", why)
        answered.forget()
        self._compared = found

    async def count_sessions(self, gone: Collection[SessionName]) -> None:
        """Count which of the sessions that this node had and has no more are nowhere in a store that has changed; other nodes
        have taken over the others. Raises StoreError."""
        if not (gone and self.has_changed):
            return
        lost = len(await session_store.nowhere(self._access.store, gone))
        if lost:
            log.error("the store has lost %d sessions: their clients have to handshake again", lost)
            self._metrics.lost_sessions += lost
        if lost < len(gone):
            log.info("other nodes have taken over %d sessions of this one", len(gone) - lost)
