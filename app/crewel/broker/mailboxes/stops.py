"""Why a dispatcher delivers nothing, as the store keeps it with the session: a server that takes the session over knows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import time
from typing import Any

import orjson

from crewel.broker.durability.access import StoreAccess
from crewel.broker.session import Session
from crewel.delivery.dispatcher import Dispatcher
from crewel.delivery.durable_session import DurableSession
from crewel.errors import StoreUnavailable
from crewel.storage import sessions as stored_sessions


@dataclass(frozen=True, slots=True)
class Stops:
    """Stores it. The form for each kind of mailbox is what has to be waited for; None: nothing."""

    _access: StoreAccess

    def in_memory(self, session: Session) -> None:
        """The store does not have the session."""

    def in_store(self, session: Session, durable: DurableSession) -> asyncio.Future[None]:
        """Have the store know why the session's dispatcher delivers nothing, or that it does."""
        access, state = self._access, _as_json(session.mailbox.dispatcher)
        text = None if state is None else orjson.dumps(state)
        if access.is_adopting:  # what has been read of the session may say otherwise, and counts in a moment
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(StoreUnavailable(access.trouble))
        else:
            step = stored_sessions.hold(access.keys, access.token, durable.name, text, access.facts_max)
            future = access.writing.ask(step, retries=True)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may not be awaited
        return future


def _as_json(dispatcher: Dispatcher) -> dict[str, Any] | None:
    """Why it delivers nothing; None if it does."""
    if dispatcher.holdback is not None:
        return dispatcher.holdback.as_json()
    if dispatcher.rejection is None:
        return None
    code, reason, given = dispatcher.rejection
    state = {"sink": True, "since": int(time() * 1000), "code": code, "reason": reason}
    return state | {"given": given} if given else state
