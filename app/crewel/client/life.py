"""The state of one client's session: moves by the table, tells listeners, lets others wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from crewel.client.errors import DisconnectedError, NotConnectedError
from crewel.client.states import ENDING, USABLE, Event, State, next_state

log = logging.getLogger("crewel.client")


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of the session: what an `on_state` listener is told."""

    old: State
    new: State
    event: Event
    reason: Exception | None
    client_id: str | None


OnState = Callable[[Transition], None]


class Life:
    """Where the session stands, and what went wrong last."""

    def __init__(self, client_id: Callable[[], str | None]) -> None:
        self.state = State.NEW
        self.listeners: list[OnState] = []
        self.failure: Exception | None = None
        """Why there is no session at the moment, as far as is known."""
        self._client_id = client_id
        self._moved = asyncio.Event()

    @property
    def is_ending(self) -> bool:
        """Whether it is over or about to be."""
        return self.state in ENDING

    @property
    def moved(self) -> asyncio.Event:
        """Set by the next change of state."""
        return self._moved

    def move(self, event: Event, reason: Exception | None = None) -> None:
        """Follow the table, and tell the listeners if the state has changed."""
        old, self.state = self.state, next_state(self.state, event)
        if old is self.state:
            return
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        log.info("%s -> %s: %s%s", old.value, self.state.value, event.value, f" ({reason})" if reason else "")
        step = Transition(old, self.state, event, reason, self._client_id())
        for listener in tuple(self.listeners):
            try:
                listener(step)
            except Exception:
                log.exception("an on_state listener failed")

    async def settled(self) -> None:
        """Wait until requests can be sent, or never will be."""
        while self.state not in USABLE | ENDING:
            await self._moved.wait()

    async def ready(self, timeout: float) -> None:
        """Wait until requests can be sent.

        Raises:
            NotConnectedError: no session within `timeout` seconds.
            DisconnectedError: there will be none.
        """
        try:
            async with asyncio.timeout(timeout):
                await self.settled()
        except TimeoutError:
            cause = f" ({self.failure})" if self.failure else ""
            raise NotConnectedError(f"no session within {timeout:g} s: {self.state.value}{cause}") from self.failure
        if self.is_ending:
            raise DisconnectedError("the session is over") from self.failure
