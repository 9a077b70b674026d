"""What a subscribe asks for in `ext.subscribe` (xmlBlaster's SubscribeQos): the fields, their defaults and their bounds.

Everything is checked here, so that no code behind it looks at JSON. `Choice` is the part that lasts as long as the
subscription; all else says how it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crewel.bayeux.channel import parse
from crewel.errors import IllegalArgument
from crewel.qos.fields import Check, Option, Options, flag, read_fields, text, whole

if TYPE_CHECKING:
    from crewel.qos.filters import Filter

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
    """Which messages of its channels a subscription wants, and how; `SUBSCRIBE` says what each field means. The defaults are
    those of a plain one."""

    local: bool = True
    notify: bool = True
    update_oneway: bool = False
    newest_only: bool = False
    group: str = ""
    filter: Filter | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields that are not as usual, by their names on the wire."""
        return {
            row.wire: value.text if row.name == "filter" else value
            for row in SUBSCRIBE.rows
            if row.name in Choice.__slots__ and (value := getattr(self, row.name)) != getattr(USUAL, row.name)
        }


USUAL: Final = Choice()


@dataclass(frozen=True, slots=True)
class SubscribeQos:
    """One subscribe."""

    choice: Choice = USUAL
    history: int = 1
    newest_first: bool = True
    initial_update: bool = True
    multi_subscribe: bool = True
    persistent: bool = False
    since: Mapping[str, Position] | None = None


def _group(value: object) -> str:
    if not isinstance(value, str) or _GROUP.fullmatch(value) is None:
        raise ValueError("a name: 1 to 64 of A-Z a-z 0-9 _ . @ -")
    return value


def _filter(value: object) -> Filter:
    from crewel.qos.filters import (  # late: client and command line, which read the table too, filter nothing
        MAX_LENGTH,
        Filter,
    )

    return Filter(text(MAX_LENGTH)(value))


def _log_id(value: object) -> int:
    if not isinstance(value, str) or _LOG_ID.fullmatch(value) is None:
        raise ValueError("the id of a message that was stored, in digits")
    return int(value)


_POSITION: Final[Mapping[str, Check]] = {"epoch": text(64, 0), "id": _log_id}


def _position(channel: str, value: object) -> Position:
    if not isinstance(value, dict) or value.keys() < _POSITION.keys():
        raise IllegalArgument(channel, "must have epoch and id, as in the reply to a subscribe")
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


HISTORY: Final = Options(
    Option(
        "numEntries",
        "history",
        whole(0, or_else=ALL),
        "How many of the newest messages of the history to deliver first; -1: all, 0: none. A subscribe without any option gets"
        " none",
        "how-to/topics.md",
    ),
    Option(
        "newestFirst",
        "newest_first",
        flag,
        "Deliver them newest first within each priority; higher priorities always come first",
    ),
)
"""The options of a subscribe's `history`."""

SUBSCRIBE: Final = Options(
    Option("history", "history", HISTORY.part(dict), "What to deliver from the history"),
    Option("initialUpdate", "initial_update", flag, "Deliver messages of the history"),
    Option("local", "local", flag, "Deliver the session's own publishes"),
    Option(
        "notify",
        "notify",
        flag,
        "Send a notice when the topic is erased, to a session with `update`",
        "how-to/topics.md",
    ),
    Option(
        "multiSubscribe",
        "multi_subscribe",
        flag,
        "Keep earlier subscriptions to the same channel; `false` replaces them",
        "#subscribing-again",
    ),
    Option(
        "updateOneway",
        "update_oneway",
        flag,
        "Send each message once, without acknowledgement: for a session with `ext.ack` that prefers speed on one channel. Those"
        " that wait when the session ends leave no dead letters",
    ),
    Option(
        "persistent",
        "persistent",
        flag,
        "Require a subscription that survives a restart of the server. With `ext.ack` every subscription does; without,"
        " `true` is refused",
    ),
    Option(
        "newestOnly",
        "newest_only",
        flag,
        "Replace a waiting message by a newer one of the same channel",
    ),
    Option(
        "group",
        "group",
        _or_none(_group),
        "Consumer group: one member receives each message; needs `ext.ack`",
        "how-to/point-to-point.md",
    ),
    Option(
        "filter",
        "filter",
        _or_none(_filter),
        "JMESPath expression over data, channel, clientProperties and sender; only messages for which it is true are delivered",
        "#filters",
    ),
    Option(
        "since",
        "since",
        _or_none(_since),
        "The client's position: deliver everything after it, or nothing old",
        "#recovery",
    ),
)
"""The options of a subscribe, `ext.subscribe`."""

_NOT_IN_A_GROUP: Final = ("since", "filter", "newest_only", "update_oneway")


def read_subscribe_qos(given: object) -> SubscribeQos:
    """The subscribe that `ext.subscribe` asks for. Raises IllegalArgument, which names the field."""
    options = {name: value for name, value in SUBSCRIBE.read(given, "subscribe").items() if value is not None}
    for name in _NOT_IN_A_GROUP:
        if "group" in options and options.get(name):
            raise IllegalArgument(
                SUBSCRIBE.wire_names[name], "is not possible in a group: its members share the messages"
            )
    choice = Choice(**{name: options.pop(name) for name in Choice.__slots__ if name in options})
    return SubscribeQos(choice, **options.pop("history", {}), **options)


def read_choice(stored: Mapping[str, Any]) -> Choice:
    """What `Choice.as_json` wrote. Raises IllegalArgument for what another version of the server wrote."""
    return read_subscribe_qos(stored).choice


def joined(choices: Iterable[Choice], another: Choice) -> tuple[Choice, ...]:
    """What a session wants that is subscribed with all of these: a plain subscription wants everything, and so the others add
    nothing to it. Empty: everything. Raises IllegalArgument if there are too many."""
    together = tuple(dict.fromkeys((*choices, another)))
    # A union with everything is everything: filters and options of the others no longer matter.
    if USUAL in together:
        return ()
    if len(together) > MAX_CHOICES:
        raise IllegalArgument("multiSubscribe", f"must be false: there are {MAX_CHOICES} subscriptions already")
    return together
