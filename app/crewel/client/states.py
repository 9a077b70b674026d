"""The life of a client's session, as a table, and where one session stands in it.

Theory of operation: the session loop (`session_loop.py`) feeds events, and the table says which state follows. An event that
the table does not know in a state is a bug and raises. `docs/reference/client.md` shows the table; nothing else decides.

A session is *usable* (publishes may go out) while it is CONNECTING or
CONNECTED. In every other state but the last two a publish waits, up to its
time-out, for the session to become usable again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from crewel.client.arguments import check_wait
from crewel.client.errors import DisconnectedError, NotConnectedError

log = logging.getLogger("crewel.client")


class State(Enum):
    """Where the client's session stands."""

    NEW = "new"
    """Nothing was sent yet."""
    HANDSHAKING = "handshaking"
    """There is no session; handshakes are tried, with back-off."""
    CONNECTING = "connecting"
    """The server gave a session; its first connect is on its way."""
    CONNECTED = "connected"
    """The last connect was answered."""
    RECONNECTING = "reconnecting"
    """The connection broke; the session may still live and is asked for."""
    DISCONNECTING = "disconnecting"
    """The application closes the client."""
    CLOSED = "closed"
    """Final: closed by the application, or ended by the server."""


class Event(Enum):
    """What can happen to a session."""

    OPENED = "opened"
    """The application entered the client."""
    HANDSHAKEN = "handshaken"
    """A handshake was answered successfully."""
    ANSWERED = "answered"
    """A connect was answered successfully."""
    CONNECTION_LOST = "connection lost"
    """A connect failed on its way: no answer, a cut, an HTTP error."""
    SESSION_LOST = "session lost"
    """The server does not know the session, or advised a new handshake."""
    RENEWING = "renewing"
    """There is another token: the client logs in again with it, and keeps its session."""
    ENDED = "ended"
    """The server refused for good, or ended the session (`reconnect:"none"`)."""
    CLOSING = "closing"
    """The application leaves the client."""
    DONE = "done"
    """The disconnect was answered, or its time ran out."""


_WITH_A_SESSION = {
    Event.ANSWERED: State.CONNECTED,
    Event.CONNECTION_LOST: State.RECONNECTING,
    Event.SESSION_LOST: State.HANDSHAKING,
    Event.ENDED: State.CLOSED,
    Event.CLOSING: State.DISCONNECTING,
}

TRANSITIONS: dict[State, dict[Event, State]] = {
    State.NEW: {
        Event.OPENED: State.HANDSHAKING,
        Event.CLOSING: State.CLOSED,
    },
    State.HANDSHAKING: {
        Event.HANDSHAKEN: State.CONNECTING,
        Event.ENDED: State.CLOSED,
        Event.CLOSING: State.CLOSED,
    },
    State.CONNECTING: _WITH_A_SESSION,
    State.CONNECTED: {**_WITH_A_SESSION, Event.RENEWING: State.HANDSHAKING},
    State.RECONNECTING: _WITH_A_SESSION,
    State.DISCONNECTING: {
        Event.DONE: State.CLOSED,
    },
    State.CLOSED: {},
}

USABLE = frozenset({State.CONNECTING, State.CONNECTED})
"""States in which a request may be sent."""

ENDING = frozenset({State.DISCONNECTING, State.CLOSED})
"""States in which a request cannot wait for a session."""

_SETTLED = USABLE | ENDING


class ImpossibleTransitionError(Exception):
    """An event came in a state whose row does not list it: a bug of ours."""


def next_state(state: State, event: Event) -> State:
    """The state that follows.

    Raises:
        ImpossibleTransitionError: the table has no such cell.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise ImpossibleTransitionError(f"{event.value!r} while {state.value!r}") from None


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of the session: what an `on_state` listener gets."""

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
        self._waiting: dict[asyncio.Event, None] = {}  # the calls that wait for a session, in their order
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_ending(self) -> bool:
        """Whether it has ended or is about to."""
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
        if self._is_settled:
            for turn in self._waiting:
                turn.set()
        log.info("%s -> %s: %s%s", old.value, self.state.value, event.value, f" ({reason})" if reason else "")
        step = Transition(old, self.state, event, reason, self._client_id())
        for listener in tuple(self.listeners):
            try:
                listener(step)
            except (Exception, SystemExit):  # that would end the loop which all synchronous clients share
                log.exception("an on_state listener failed")

    def begin(self) -> None:
        """It is being opened, in this event loop. Raises RuntimeError if it was opened before."""
        if self.state is not State.NEW:
            raise RuntimeError("a client can be opened once: make another one")
        self._loop = asyncio.get_running_loop()
        self.move(Event.OPENED)

    def check_loop(self) -> None:
        """Raises RuntimeError in another event loop than that in which it was opened."""
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError(
                "this client was opened in another event loop, which alone can use it: open one in each loop, or use"
                " crewel.client.sync, which works from all threads"
            )

    async def settled(self) -> None:
        """Wait until requests can be sent, or never will be. Calls that wait continue in the order in which they came, before
        those that come later. Raises NotConnectedError if nothing is on its way to that."""
        if self.state is State.NEW:
            raise NotConnectedError("the client is not open: enter it first, `async with client:`")
        self.check_loop()
        if self._is_settled and not self._waiting:
            return
        turn = asyncio.Event()
        self._waiting[turn] = None
        try:
            if self._is_settled:
                await asyncio.sleep(0)  # those before it have had their turns, and continue in this turn of the loop
            while not self._is_settled:
                turn.clear()
                await turn.wait()
        finally:
            del self._waiting[turn]

    @property
    def _is_settled(self) -> bool:
        return self.state in _SETTLED

    async def ready(self, timeout: float) -> None:
        """Wait until requests can be sent.

        Raises:
            NotConnectedError: no session within `timeout` seconds.
            NotConnectedError, at once: the application has not opened the client.
            DisconnectedError: there will be none.
            ValueError: `timeout` is no number of seconds.
        """
        check_wait("timeout", timeout)
        try:
            async with asyncio.timeout(timeout):
                await self.settled()
        except TimeoutError:
            cause = f" ({self.failure})" if self.failure else ""
            raise NotConnectedError(f"no session within {timeout:g} s: {self.state.value}{cause}") from self.failure
        if self.is_ending:
            raise DisconnectedError("the session has ended") from self.failure
