"""Why a dispatcher delivers nothing, as the store keeps it with the session: a server that takes the session over knows it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import time
from typing import Any

import orjson

from crewel.broker.handler_steps import resolve
from crewel.broker.mailboxes.mailbox_view import MailboxView
from crewel.broker.session import Session
from crewel.broker.writing.store_access import StoreAccess
from crewel.delivery.dispatcher import Rejection
from crewel.delivery.dispatcher_states import Holdback
from crewel.delivery.records import SessionName
from crewel.errors import StoreError, StoreUnavailable
from crewel.storage import session_store as stored_sessions
from crewel.storage.script_step import Step


@dataclass(frozen=True, slots=True)
class Stops:
    """Stores it."""

    _access: StoreAccess
    _loop: asyncio.AbstractEventLoop
    _waiting: dict[SessionName, deque[Callable[[], None]]] = field(default_factory=dict)
    """By the sessions of which the store is asked to note something: what follows. Each step is asked again after a pause of
    its own, so a second one could overtake the first."""

    def store(self, session: Session) -> asyncio.Future[None] | None:
        """Have the store know why the session's dispatcher delivers nothing, or that it does. None: it does not have the
        session."""
        durable = session.durable
        if durable is None:
            return None
        access, state = self._access, _as_json(session.mailbox.view())
        text = None if state is None else orjson.dumps(state)
        future: asyncio.Future[None] = self._loop.create_future()
        if access.phase.is_adopting:  # what has been read of the session may say otherwise, and counts in a moment
            future.set_exception(StoreUnavailable(access.trouble))
        else:
            step = stored_sessions.hold(access.keys, access.token, durable.name, text, access.facts_max)
            self._ask_in_turn(durable.name, step, future)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may not be awaited
        return future

    def _ask_in_turn(self, name: SessionName, step: Step[None], future: asyncio.Future[None]) -> None:
        """Ask the store when it has answered what it was asked before of this session."""

        def ask() -> None:
            self._access.writing.submit(step, answered, retries=True)

        def answered(answer: StoreError | None) -> None:
            resolve(future, answer)
            if self._waiting[name]:
                self._waiting[name].popleft()()
            else:
                del self._waiting[name]

        if name in self._waiting:
            self._waiting[name].append(ask)
        else:
            self._waiting[name] = deque()
            ask()


def from_json(stored: dict[str, Any]) -> Holdback | Rejection:
    """Why a dispatcher delivers nothing, as the store has it."""
    if "sink" in stored:
        return Rejection(stored["code"], stored["reason"], stored.get("given", ""))
    return Holdback.from_json(stored)


def _as_json(view: MailboxView) -> dict[str, Any] | None:
    """Why it delivers nothing; None if it does."""
    if view.holdback is not None:
        return view.holdback.as_json()
    if view.rejection is None:
        return None
    code, reason, given = view.rejection
    state = {"sink": True, "since": int(time() * 1000), "code": code, "reason": reason}
    return state | {"given": given} if given else state
