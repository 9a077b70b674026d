"""The states of a dispatcher, which delivers to one session, as a table (xmlBlaster's dispatch framework).

Apart from its state a dispatcher is active or on hold: `Holdback` says by whom and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from crewel.errors.codes import Explained


class DispatcherState(Explained):
    """Where a dispatcher stands."""

    ALIVE = "ALIVE", "The client is there, and messages go to it."
    POLLING = "POLLING", "The client is gone, or has failed: messages wait for it."
    DEAD = "DEAD", "It failed permanently: queued and new messages become dead letters."


class DispatcherEvent(Enum):
    """What moves a dispatcher on."""

    FAILED = "the client reported a failure, or sent no status in time"
    RESUMED = "the delay after a failure is over"
    GONE = "no connect came in time"
    CONNECTED = "a connect came"
    DIED = "it failed too often, or permanently"
    REVIVED = "the client shook hands again"

    __hash__ = object.__hash__  # that of Enum is Python code, and the table is asked for each connect


TRANSITIONS: Final[Mapping[DispatcherState, Mapping[DispatcherEvent, DispatcherState]]] = {
    DispatcherState.ALIVE: {
        DispatcherEvent.FAILED: DispatcherState.POLLING,
        DispatcherEvent.RESUMED: DispatcherState.ALIVE,
        DispatcherEvent.GONE: DispatcherState.POLLING,
        DispatcherEvent.CONNECTED: DispatcherState.ALIVE,
        DispatcherEvent.DIED: DispatcherState.DEAD,
        DispatcherEvent.REVIVED: DispatcherState.ALIVE,
    },
    DispatcherState.POLLING: {
        DispatcherEvent.FAILED: DispatcherState.POLLING,
        DispatcherEvent.RESUMED: DispatcherState.ALIVE,
        DispatcherEvent.GONE: DispatcherState.POLLING,
        DispatcherEvent.CONNECTED: DispatcherState.ALIVE,
        DispatcherEvent.DIED: DispatcherState.DEAD,
        DispatcherEvent.REVIVED: DispatcherState.ALIVE,
    },
    DispatcherState.DEAD: {DispatcherEvent.REVIVED: DispatcherState.ALIVE},
}
"""An event that is missing from a state's row changes nothing there. DEAD is final, except that a dispatcher that rejects
everything lives again with a new handshake."""


class Holdback(NamedTuple):
    """Why a dispatcher is inactive. It is kept in the store with the session."""

    who: str
    """The receiver itself, by its name, or the operator."""
    since_ms: int
    """Milliseconds since 1970."""
    code: str = ""
    message_id: str = ""
    """The message that was on hold; empty if an operator did it."""
    reason: str = ""

    @property
    def cause(self) -> str:
        """Its code and reason, or who put it on hold if they gave neither."""
        return ": ".join(filter(None, (self.code, self.reason))) or f"held by {self.who}"

    def as_json(self) -> dict[str, Any]:
        """The object that is stored, and that operators are shown."""
        return {
            "active": False,
            "who": self.who,
            "since": self.since_ms,
            "code": self.code,
            "id": self.message_id,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Holdback:
        """What `as_json` made."""
        return cls(told["who"], told["since"], told["code"], told["id"], told["reason"])
