"""Ends sessions whose time has ended, and lets all parts forget what is unused, every `bayeux.sweep_ms`.

A sweep that fails is logged, and the next one comes all the same. After a stall of the loop it waits a little: sessions that
seem silent may have sent what has not been read yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crewel.broker.channels import Channels
from crewel.broker.durability.durability import Durability
from crewel.broker.limiter import Limiter
from crewel.broker.logins import Logins
from crewel.broker.point_to_point.shared_queues import SharedQueues
from crewel.broker.refusal_summary import RefusalSummary
from crewel.broker.runtime import Runtime
from crewel.broker.session import Event, Session
from crewel.broker.session_queue.dispatcher_runner import DispatcherRunner
from crewel.broker.session_queue.expiry import Expiry
from crewel.broker.session_queue.timers import SessionTimes
from crewel.broker.session_table import SessionTable
from crewel.broker.sign_outs import SignOuts
from crewel.broker.topics.topic_table import TopicTable
from crewel.event_loop import GRACE_S, TURN_S, has_stalled

log = logging.getLogger(__name__)

_LOOKED_AT: Final = 64
"""Sessions that a sweep looks at before it asks for the time."""
_WORKS_S: Final = 120.0
"""Seconds for which a request that is being worked on shows that its client is there."""


@dataclass(eq=False)
class Sweeper:
    """Sweeps one server."""

    _runtime: Runtime
    _channels: Channels
    _dispatchers: DispatcherRunner
    _expiry: Expiry
    _limits: Limiter
    _logins: Logins
    _sign_outs: SignOuts
    _topics: TopicTable
    _shared_queues: SharedQueues
    _times: SessionTimes
    _durability: Durability
    _table: SessionTable
    _sessions: dict[str, Session]
    _refusals: RefusalSummary

    async def run_forever(self) -> None:
        """Sweep until cancelled."""
        while True:
            due = self._runtime.loop.time() + self._runtime.settings.bayeux.sweep_ms / 1000
            await asyncio.sleep(due - self._runtime.loop.time())
            if has_stalled(due, self._runtime.loop.time()):
                await asyncio.sleep(GRACE_S)
            try:
                self.sweep()
            except Exception:
                log.exception("a sweep failed; the next one follows as scheduled")

    def sweep(self) -> None:
        """End the sessions whose time has ended, and forget unused channels."""
        self._sweep_sessions(iter(list(self._sessions.values())))
        self._expiry.sweep()
        self._shared_queues.sweep()
        self._channels.sweep()
        self._topics.endings.sweep()
        self._limits.sweep()
        self._refusals.sweep(self._runtime.loop.time())

    def _sweep_sessions(self, sessions: Iterator[Session]) -> None:
        """Look at these; what does not fit into one turn of the loop is looked at in the next ones."""
        now, until = self._runtime.loop.time(), time.perf_counter() + TURN_S
        silence = self._runtime.settings.bayeux.max_processing_ms / 1000
        are_excused = self._times.are_excused(now)
        for number, session in enumerate(sessions, 1):
            if not session.is_live:
                continue
            if session.requests and now < session.last_seen + _WORKS_S:
                pass  # a request of its client is being worked on: it is there
            elif are_excused:
                pass  # it may be unable to come
            elif session.expires_at <= now or (0 < silence < now - session.last_seen and session.held is not None):
                self._runtime.metrics.sessions_expired += 1
                self._table.remove(session, Event.SILENCE)
            elif (
                session.mailbox.durable is not None
                and not session.mailbox.is_absent
                and self._times.is_gone(session, now)
            ):
                self._durability.on_disconnect(session)
                self._dispatchers.await_client(session, now)
            if session.grants is not None:
                self._logins.check_token(session)
                if session.grants.page:
                    self._sign_outs.watch(session)
            if number % _LOOKED_AT == 0 and time.perf_counter() >= until:
                self._runtime.loop.call_soon(self._sweep_sessions, sessions)
                return
