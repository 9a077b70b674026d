"""The life of a topic, which is a channel with all that was published to it and waits to be heard (xmlBlaster,
engine.message.lifecycle).

The state of a topic is not stored. It follows from four facts, by the table `STATES`, which is the seed's table of internal
conditions; `TRANSITIONS` says which state may follow which when something happens. A change that the second table does not
have is a mistake of the first or of the facts, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class State(Enum):
    """Where a topic is in its life."""

    UNCONFIGURED = "UNCONFIGURED"
    """A session is subscribed to it by name, and nothing was published to it yet."""
    ALIVE = "ALIVE"
    """Configured, and referred to by messages or by subscriptions to its name."""
    UNREFERENCED = "UNREFERENCED"
    """Configured, and nothing refers to it: it dies when its `destroyDelay` is over."""
    SOFTERASED = "SOFTERASED"
    """Erased gently: it is gone, but queues still hold messages of it, which are delivered."""
    DEAD = "DEAD"
    """Gone, or never there."""


class Facts(NamedTuple):
    """What the state of a topic follows from."""

    is_visible: bool = False
    """Whether it was configured and not erased since."""
    has_history: bool = False
    """Whether its history holds a message."""
    is_queued: bool = False
    """Whether the queue of a session, a subject or a group holds a message of it."""
    is_subscribed: bool = False
    """Whether a session is subscribed to its very name. Wildcards do not keep a topic alive."""


STATES: Final[Mapping[tuple[bool, bool, bool, bool], State | None]] = {
    # visible, history, queued, subscribed
    (True, True, True, True): State.ALIVE,
    (True, True, True, False): State.ALIVE,
    (True, True, False, True): State.ALIVE,
    (True, True, False, False): State.ALIVE,
    (True, False, True, True): State.ALIVE,
    (True, False, True, False): State.ALIVE,
    (True, False, False, True): State.ALIVE,
    (True, False, False, False): State.UNREFERENCED,
    (False, True, True, True): None,
    (False, True, True, False): None,
    (False, True, False, True): None,
    (False, True, False, False): None,
    (False, False, True, True): None,
    (False, False, True, False): State.SOFTERASED,
    (False, False, False, True): State.UNCONFIGURED,
    (False, False, False, False): State.DEAD,
}
"""The seed's sixteen rows in its order; None: such a topic cannot be."""


class Event(Enum):
    """What can happen to a topic."""

    SUBSCRIBED = "subscribe"
    """A session subscribed to its name."""
    UNSUBSCRIBED = "unsubscribe"
    """A subscription to its name ended."""
    PUBLISHED = "publish"
    CONFIGURED = "administrative publish"
    RECOVERED = "recovery"
    """The store brought it back, or a queue was found to hold a message of it."""
    RELEASED = "release"
    """A message of it left its history or a queue: it was delivered, it expired, or it was removed."""
    ERASED = "erase"
    FORCED = "forced erase"
    DELAY_EXPIRED = "delay expired"
    """Nothing referred to it for as long as its `destroyDelay`."""


_S, _E = State, Event

TRANSITIONS: Final[Mapping[State, Mapping[Event, tuple[State, ...]]]] = {
    _S.DEAD: {
        _E.SUBSCRIBED: (_S.UNCONFIGURED,),
        _E.PUBLISHED: (_S.ALIVE, _S.UNREFERENCED),
        _E.CONFIGURED: (_S.UNREFERENCED,),
        _E.RECOVERED: (_S.ALIVE, _S.UNREFERENCED),
    },
    _S.UNCONFIGURED: {
        _E.SUBSCRIBED: (_S.UNCONFIGURED,),
        _E.UNSUBSCRIBED: (_S.UNCONFIGURED, _S.DEAD),
        _E.PUBLISHED: (_S.ALIVE,),
        _E.CONFIGURED: (_S.ALIVE, _S.UNREFERENCED),
        _E.RECOVERED: (_S.ALIVE,),
        _E.ERASED: (_S.DEAD, _S.SOFTERASED),
        _E.FORCED: (_S.DEAD,),
    },
    _S.ALIVE: {
        _E.SUBSCRIBED: (_S.ALIVE,),
        _E.UNSUBSCRIBED: (_S.ALIVE, _S.UNREFERENCED),
        _E.PUBLISHED: (_S.ALIVE, _S.UNREFERENCED),
        _E.CONFIGURED: (_S.ALIVE, _S.UNREFERENCED),
        _E.RECOVERED: (_S.ALIVE,),
        _E.RELEASED: (_S.ALIVE, _S.UNREFERENCED),
        _E.ERASED: (_S.SOFTERASED, _S.DEAD),
        _E.FORCED: (_S.DEAD,),
    },
    _S.UNREFERENCED: {
        _E.SUBSCRIBED: (_S.ALIVE,),
        _E.PUBLISHED: (_S.ALIVE, _S.UNREFERENCED),
        _E.CONFIGURED: (_S.ALIVE, _S.UNREFERENCED),
        _E.RECOVERED: (_S.ALIVE,),
        _E.ERASED: (_S.DEAD,),
        _E.FORCED: (_S.DEAD,),
        _E.DELAY_EXPIRED: (_S.DEAD,),
    },
    _S.SOFTERASED: {
        _E.SUBSCRIBED: (_S.ALIVE,),
        _E.PUBLISHED: (_S.ALIVE,),
        _E.CONFIGURED: (_S.ALIVE,),
        _E.RELEASED: (_S.SOFTERASED, _S.DEAD),
        _E.ERASED: (_S.SOFTERASED,),
        _E.FORCED: (_S.DEAD,),
    },
}
"""State -> what happens -> the states that may follow. A pair that is not there changes nothing and is no event."""


def state_of(facts: Facts) -> State:
    """The state that follows from these facts. Raises ValueError for facts that no topic can have."""
    state = STATES[facts]
    if state is None:
        raise ValueError(f"no topic can be like this: {facts}")
    return state


def after(state: State, event: Event, facts: Facts) -> State:
    """The state after something happened that left these facts. Raises ValueError if the table has no such change."""
    found = state_of(facts)
    if found not in TRANSITIONS[state].get(event, ()):
        raise ValueError(f"{state.value} does not become {found.value} by {event.value}")
    return found
