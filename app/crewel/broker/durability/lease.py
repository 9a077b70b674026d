"""The lease of this server on the store: taken before anything else, renewed until the end.

A store is taken only from a server that does not live any more. That is known at once where the dead server ran on this
machine or held the lock on the data directory; else its lease has to end first.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from crewel.broker.cluster import Cluster
from crewel.broker.ids import elapsed
from crewel.delivery.records import LogId
from crewel.errors import Fenced, StoreError, StoreTaken
from crewel.event_loop import woken
from crewel.storage import node_leases
from crewel.storage.node_leases import Claimed, Owner, lock_directory

if TYPE_CHECKING:
    from crewel.broker.writing.store_access import StoreAccess
    from crewel.settings import Settings
    from crewel.storage.script_step import Step
    from crewel.supervision import Supervisor

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.1
_RENEWALS: Final = 3  # in the time that a lease lasts
_END_LIMIT_S: Final = 1.0
_ADVICE: Final = ": end it first, or take the store from it with `crewel serve --take-over`"


@dataclass(eq=False)
class StoreLease:
    """The claim of one server. `claim` may be called again, under another token, by a server that has lost its place."""

    _access: StoreAccess
    _settings: Settings
    _supervisor: Supervisor
    _cluster: Cluster = field(default_factory=Cluster)
    _lock: int | None = field(default=None, init=False)
    _is_first: bool = field(default=True, init=False)
    own: list[str] = field(default_factory=list, init=False)
    """The tokens that this server has had: what it left under them is its own."""
    _ends: float = field(default=0.0, init=False)
    _since: float = field(default=0.0, init=False)  # when it began, or was renewed after it had ended
    _owner: Owner | None = field(default=None, init=False)  # this process, as the lease has it
    _renewing: asyncio.Task[None] | None = field(default=None, init=False)
    _soon: asyncio.Event = field(default_factory=asyncio.Event, init=False)  # set when the next renewal should not wait

    async def claim(self) -> LogId:
        """Register under the server's token. Returns the newest log id; raises StoreTaken if another server lives."""
        access, name = self._access, self._settings.node.name
        if self._owner is None:
            await self._lock_directory()
            self._owner = await asyncio.to_thread(node_leases.this_process, name, has_directory=self._lock is not None)
        dead = set(self.own)
        self.own.append(access.token)  # now: a claim whose answer is lost may have been made
        waiting: dict[str, float] = {}  # token: what was left of its lease
        while True:
            asked = elapsed()
            step = node_leases.claim(
                access.keys,
                access.token,
                name,
                self._owner,
                self._lasts_ms,
                dead,
                self._cluster.registration(access.token),
            )
            answer = await access.writing.ask(step)
            if not isinstance(answer, Claimed):
                self._lasts_from(asked)
                self._is_first = False
                if self._renewing is None:
                    self._renewing = self._supervisor.start("lease on the store", self._renew_forever)
                return LogId(answer)
            if await asyncio.to_thread(self._may_take, answer):
                dead.add(answer.token)
                continue
            if answer.token not in waiting:
                log.info(
                    "the store is leased to %s: waiting up to %.1f s for it to end",
                    answer.owner,
                    answer.lasts,
                )
            elif answer.lasts > waiting[answer.token]:
                raise StoreTaken(str(answer.owner), _ADVICE)
            waiting[answer.token] = answer.lasts
            await asyncio.sleep(_LOOK_S)

    @property
    def lasts(self) -> bool:
        """Whether the lease lasts, by a clock of this machine that cannot be set and that counts while it sleeps. It began
        when the store was asked, not when it answered."""
        return elapsed() < self._ends

    @property
    def is_steady(self) -> bool:
        """Whether it lasts, and has not ended for as long as a lease lasts: the store was not away for all servers."""
        return self.lasts and elapsed() - self._since > self._lasts_ms / 1000

    @property
    def left_s(self) -> float:
        """Seconds until it ends, unless it is renewed; 0 if it has ended."""
        return max(self._ends - elapsed(), 0.0)

    def _may_take(self, claimed: Claimed) -> bool:
        if claimed.owner.is_dead or (claimed.owner.has_directory and self._lock is not None):
            return True
        if self._is_first and self._settings.storage.take_over:
            log.warning("taking the store from %s, which may still be alive", claimed.owner)
            return True
        return False

    def renew_soon(self) -> None:
        """The store is back. It may have been away for most of the lease, and other nodes take over the sessions of this one as
        soon as that ends."""
        self._soon.set()

    async def _renew_forever(self) -> None:
        """Renew it in time, however long the store takes to answer: a step that waits for replicas may take a second."""
        loop, pause = asyncio.get_running_loop(), self._lasts_ms / 1000 / _RENEWALS
        asked = loop.time()
        while True:
            await woken(self._soon, max(asked + pause - loop.time(), 0.0))
            asked = loop.time()
            if not self._access.phase.is_superseded and self._access.store.is_up and self._access.token == self.own[-1]:
                await self._renew(self._access.token, pause)

    async def _renew(self, token: str, pause: float) -> None:
        """Renew it, past the queue of writes: that waits until all answers are processed, which may need the store again. Do
        so until an answer comes within the pause between two renewals.

        A slow store has always something under way, which a renewal waits for before it is sent. The next one is asked for
        while the answer is processed, and goes with the very next write. Else the lease, which counts from when the store was
        asked, would end here before the answer comes, and never in the store: no node would have the sessions. Nor does it go
        alone, or every other write would wait for one more exchange.
        """
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[None] = loop.create_future()
        asked = elapsed()

        def answered(answers: list[Any]) -> None:
            nonlocal asked
            if settled.done():
                return
            took, before = elapsed() - asked, asked
            if self._renewed(token, before, answers[0]) and took > pause:
                asked = elapsed()
                self._access.store.submit_along([self._renewal(token)], answered)
            else:
                settled.set_result(None)

        self._access.store.submit([self._renewal(token)], answered)
        await settled

    def _renewal(self, token: str) -> Step[None]:
        assert self._owner is not None
        return node_leases.renew(self._access.keys, token, self._owner, self._lasts_ms)

    def _renewed(self, token: str, asked: float, answer: StoreError | None) -> bool:
        """Take the answer to a renewal; returns whether it was renewed."""
        if self._access.token != token:
            return False  # this server has begun again meanwhile
        if isinstance(answer, Fenced):
            self._access.suspect(answer)
        elif isinstance(answer, StoreError):
            log.warning("the lease on the store could not be renewed: %s", answer)
        else:
            self._lasts_from(asked)
            return True
        return False

    def _lasts_from(self, asked: float) -> None:
        if not self.lasts:
            self._since = elapsed()
        self._ends = asked + self._lasts_ms / 1000

    async def end(self) -> None:
        """Give the store to the next server at once."""
        if self._renewing is not None:
            self._renewing.cancel()
        self._ends = 0.0
        access = self._access
        if self._owner is not None and not access.phase.is_superseded and access.store.is_up:
            step = node_leases.renew(access.keys, access.token, self._owner, 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_LIMIT_S):
                    await access.store.run([step])
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    @property
    def _lasts_ms(self) -> int:
        return self._settings.cluster.lease_ms

    async def _lock_directory(self) -> None:
        directory = self._access.store.directory
        if directory is None:
            return
        try:
            self._lock = await asyncio.to_thread(lock_directory, Path(directory))
        except StoreTaken as error:
            if not self._settings.storage.take_over:
                raise StoreTaken(error.owner, _ADVICE) from None
            log.warning("taking the store from %s", error.owner)
