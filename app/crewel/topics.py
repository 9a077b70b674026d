"""Topics, PURE: the life of a topic, and what it is configured to be: by its first publish, by rules, and by operators. A topic
is a channel with all that was published to it and waits in queues (xmlBlaster, engine.message.lifecycle).

The state of a topic is not stored. It follows from four facts, by the table `STATES`, which is the seed's table of internal
conditions. `TRANSITIONS` says which state may follow which when something happens: the tests hold the server against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from crewel.qos.publish import DEFAULT, PublishQos


class State(Enum):
    """Where a topic is in its life."""

    UNCONFIGURED = "UNCONFIGURED"
    """A session is subscribed to it by name, and nothing was published to it yet."""
    ALIVE = "ALIVE"
    """Configured, and referred to by messages or by subscriptions to its name."""
    UNREFERENCED = "UNREFERENCED"
    """Configured, and nothing refers to it: it dies when its `destroyDelay` has ended."""
    SOFTERASED = "SOFTERASED"
    """Erased gently: it is gone, but queues still hold messages of it, which are delivered."""
    DEAD = "DEAD"
    """Gone, or never there."""


WORDS: Final[Mapping[State, str]] = {
    State.ALIVE: "in use",
    State.UNREFERENCED: "no subscribers",
    State.UNCONFIGURED: "nothing published yet",
    State.SOFTERASED: "erased",
}
"""How a topic that is there stands, as the operator's page and the lists of the command line say it."""


def word_of(state: State, *, is_heard: bool) -> str:
    """How a topic that is there stands, in a word. One that a pattern or a group receives is in use, although that does not
    keep it."""
    return WORDS[State.ALIVE if state is State.UNREFERENCED and is_heard else state]


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


def joined(states: Iterable[State]) -> State:
    """The state of a topic that is in these at several nodes, each of which knows its own references. What one node knows of
    its configuration and another one of a reference to it makes it ALIVE."""
    found = set(states) - {State.DEAD}
    if len(found) < 2:
        return found.pop() if found else State.DEAD
    return State.ALIVE


HISTORY_MAX: Final = "historyMax"
"""The one of the settings that the store obeys: a history that is longer is cut."""

_NAMES: Final = {"history_max": HISTORY_MAX, "is_readonly": "readonly", "destroy_delay_ms": "destroyDelay"}
"""Attribute -> name in the store."""
REPLAY: Final = "replay"
"""The one field of a rule that no publish has: whether its messages are numbered and can be asked for by number."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The part of a PublishQos that is about its topic."""

    history_max: int = DEFAULT.history_max
    """How many messages the history keeps; 0: there is none."""
    is_readonly: bool = DEFAULT.readonly
    """Whether it takes no second message."""
    destroy_delay_ms: int = DEFAULT.destroy_delay_ms
    """How long it lives when nothing refers to it; -1: without limit."""

    @classmethod
    def of(cls, qos: PublishQos) -> TopicSettings:
        """What a publish asks for. What cannot be overwritten must be there to be seen: a topic that takes one message
        only keeps at least that one."""
        history_max = max(qos.history_max, 1) if qos.readonly else qos.history_max
        return cls(history_max, qos.readonly, qos.destroy_delay_ms)

    def differing(self, usual: TopicSettings) -> dict[str, Any]:
        """What is not as usual, as it is stored: JSON. What is as the rules say is not stored with the topic, so that it
        follows the rules when they change."""
        return {
            stored: getattr(self, name)
            for name, stored in _NAMES.items()
            if getattr(self, name) != getattr(usual, name)
        }

    def with_stored(self, stored: Mapping[str, Any]) -> TopicSettings:
        """These, with what the store has; unknown names are ignored."""
        return TopicSettings(*(stored.get(short, getattr(self, name)) for name, short in _NAMES.items()))


USUAL: Final = TopicSettings()
"""Those of a topic that was not configured."""


class Rules:
    """Pattern -> the fields of PublishQos that it sets, by their names there, and `REPLAY`."""

    def __init__(self, rules: Mapping[str, Mapping[str, Any]]) -> None:
        self._rules = {pattern: dict(fields) for pattern, fields in rules.items() if fields}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def apply_to(self, patterns: Iterable[str]) -> bool:
        """Whether one of them is about a channel that these patterns match."""
        return any(pattern in self._rules for pattern in patterns)

    def usual(self, patterns: Iterable[str]) -> PublishQos:
        """What holds for a publish on a channel that these patterns match, the widest first: a narrower one has the last word
        about each field that it sets."""
        fields = self._fields(patterns)
        fields.pop(REPLAY, None)
        return replace(DEFAULT, **fields) if fields else DEFAULT

    def is_replayed(self, patterns: Iterable[str]) -> bool:
        """Whether the messages of such a channel are numbered."""
        return bool(self._fields(patterns).get(REPLAY, False))

    def _fields(self, patterns: Iterable[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for pattern in patterns:
            fields |= self._rules.get(pattern, {})
        return fields
