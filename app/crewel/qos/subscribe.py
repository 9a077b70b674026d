"""What a subscribe asks for in `ext.subscribe` (xmlBlaster's SubscribeQos): the fields, their defaults and their bounds.

Everything is checked here, so that nobody behind it looks at JSON. `Choice` is the part that lasts as long as the
subscription; all else says how it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from crewel.bayeux.channel import parse
from crewel.errors import IllegalArgument
from crewel.qos.fields import Check, flag, read_fields, text, whole
from crewel.qos.filters import MAX_LENGTH, Filter

ALL: Final = -1
"""The `numEntries` that asks for a whole history."""
MAX_POSITIONS: Final = 1000
"""Channels that one `since` names at most."""
MAX_CHOICES: Final = 10
"""How often a session may be subscribed to one pattern with different wishes."""

_GROUP: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}", re.ASCII)
_LOG_ID: Final = re.compile(r"[0-9]{1,16}", re.ASCII)


class Position(NamedTuple):
    """How far a receiver is in a history."""

    epoch: str
    """Names the life of the history that the id belongs to; empty if it had not begun."""
    id: int
    """The last message that the receiver has; 0: none yet."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages of its channels a subscription wants, and how. The defaults are those of a plain one."""

    local: bool = True
    """Whether it hears what its own session publishes."""
    notify: bool = True
    """Whether it is told that a topic was erased."""
    update_oneway: bool = False
    """Whether messages go out once, and nobody waits for their acknowledgement."""
    newest_only: bool = False
    """Whether a newer message of a channel takes the place of one that still waits."""
    group: str = ""
    """The group of which one member gets each message."""
    filter: Filter | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields that are not as usual, by their names on the wire."""
        return {
            wire: value.text if isinstance(value, Filter) else value
            for wire, name in _CALLED.items()
            if name in Choice.__slots__ and (value := getattr(self, name)) != getattr(USUAL, name)
        }


USUAL: Final = Choice()


@dataclass(frozen=True, slots=True)
class SubscribeQos:
    """One subscribe."""

    choice: Choice = USUAL
    history_entries: int = 1
    """How many messages of the history come first."""
    newest_first: bool = True
    """Whether they come in the order from the newest to the oldest."""
    initial_update: bool = True
    """Whether they come at all."""
    multi_subscribe: bool = True
    """Whether it stands beside an earlier subscription to the same channel; else it takes its place."""
    persistent: bool = False
    """Whether it must survive a restart of the server."""
    since: Mapping[str, Position] | None = None
    """How far the receiver is in the histories of these channels."""


def _group(value: object) -> str:
    if not isinstance(value, str) or _GROUP.fullmatch(value) is None:
        raise ValueError("a name: 1 to 64 of A-Z a-z 0-9 _ . @ -")
    return value


def _filter(value: object) -> Filter:
    return Filter(text(MAX_LENGTH)(value))


def _log_id(value: object) -> int:
    if not isinstance(value, str) or _LOG_ID.fullmatch(value) is None:
        raise ValueError("the id of a message that was stored, in digits")
    return int(value)


_POSITION: Final[Mapping[str, Check]] = {"epoch": text(64, 0), "id": _log_id}
_HISTORY: Final[Mapping[str, Check]] = {"numEntries": whole(0, or_else=ALL), "newestFirst": flag}


def _position(channel: str, value: object) -> Position:
    if not isinstance(value, dict) or value.keys() < _POSITION.keys():
        raise IllegalArgument(channel, "must have epoch and id, as a subscribe has answered them")
    try:
        fields = read_fields(value, _POSITION, "position")
    except IllegalArgument as inner:
        raise IllegalArgument(f"{channel}.{inner.field}", inner.expected) from None
    return Position(**fields)


def _or_none(check: Check) -> Check:
    """The check of a field that may be said not to be there."""
    return lambda value: None if value is None else check(value)


def _since(value: object) -> dict[str, Position]:
    if not isinstance(value, dict) or len(value) > MAX_POSITIONS:
        raise ValueError(f"an object of at most {MAX_POSITIONS} channels")
    positions = {}
    for name, place in value.items():
        channel = parse(name)
        if channel is None or channel.is_wildcard:
            raise IllegalArgument(name[:128], "is not the name of a channel")
        positions[channel.name] = _position(name, place)
    return positions


def _history(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object")  # noqa: TRY004 - one error for all that does not fit
    return read_fields(value, _HISTORY, "")


_CHECKS: Final[Mapping[str, Check]] = {
    "history": _history,
    "initialUpdate": flag,
    "local": flag,
    "notify": flag,
    "multiSubscribe": flag,
    "updateOneway": flag,
    "persistent": flag,
    "newestOnly": flag,
    "group": _or_none(_group),
    "filter": _or_none(_filter),
    "since": _or_none(_since),
}

_CALLED: Final = {
    "initialUpdate": "initial_update",
    "multiSubscribe": "multi_subscribe",
    "persistent": "persistent",
    "since": "since",
    "local": "local",
    "notify": "notify",
    "updateOneway": "update_oneway",
    "newestOnly": "newest_only",
    "group": "group",
    "filter": "filter",
}

_NOT_IN_A_GROUP: Final = ("since", "filter", "newestOnly", "updateOneway")


def read_subscribe_qos(given: object) -> SubscribeQos:
    """The subscribe that `ext.subscribe` asks for. Raises IllegalArgument, which names the field."""
    fields = {name: value for name, value in read_fields(given, _CHECKS, "subscribe").items() if value is not None}
    for name in _NOT_IN_A_GROUP:
        if "group" in fields and fields.get(name):
            raise IllegalArgument(name, "must be left out where a group is named: its members share what comes")
    history = fields.pop("history", {})
    named = {_CALLED[name]: value for name, value in fields.items()}
    choice = Choice(**{name: named.pop(name) for name in Choice.__slots__ if name in named})
    return SubscribeQos(choice, history.get("numEntries", 1), history.get("newestFirst", True), **named)


def read_choice(stored: Mapping[str, Any]) -> Choice:
    """What `Choice.as_json` told. Raises IllegalArgument for what another version of the server has told."""
    return read_subscribe_qos(stored).choice


def joined(choices: Iterable[Choice], another: Choice) -> tuple[Choice, ...]:
    """What a session wants that is subscribed with all of these: a plain subscription wants everything, and so the others add
    nothing to it. Empty: everything. Raises IllegalArgument if there are too many."""
    together = tuple(dict.fromkeys((*choices, another)))
    if USUAL in together:
        return ()
    if len(together) > MAX_CHOICES:
        raise IllegalArgument("multiSubscribe", f"must be false: there are {MAX_CHOICES} subscriptions already")
    return together
