"""Channel names: their grammar, their kinds, and which patterns match which name (Bayeux 1.0, section 2).

`parse` is the only way in. It answers a `Channel`, or None for a name that breaks the grammar; everything that publish
and subscribe ask of a name is worked out there once and remembered.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

MAX_NAME: Final = 1024
"""Longest channel name in characters. A name consults one pattern for each of its segments, so an unbounded name would
cost memory in the square of its length."""
SYSTEM: Final = "/__sys__"
"""What the names of channels begin with on which the server reports its own state."""
PRESENCE: Final = "/__sys__presence"
"""What stands before the name of a channel in the name of that on which its members change."""
DOT_SEGMENTS: Final = frozenset((".", ".."))
"""Segments that clients of HTTP resolve before they send a path, also if they are percent-encoded: a request about `/a/../b`
would act on `/b`. No client can publish or subscribe to such a channel; what older versions stored under one can be read."""
REPLIES: Final = "/ret/"
"""What the names of reply channels begin with, `/ret/<ID>/<LDDDDDD>`: on each one client awaits the answer to one request."""

_REMEMBERED_NAME: Final = 256  # longer names are parsed each time
_REMEMBERED_SIZE: Final = 2**24
"""Most that all remembered names and their patterns take, in bytes, about; then all are forgotten. A deep name has patterns
in the square of its length, so counting names would bound nothing."""
_FIXED_SIZE: Final = 300  # of a channel and its place in the cache
_TEXT_SIZE: Final = 60  # of a text, beside its characters
_CHARSET: Final = re.compile(r"/[A-Za-z0-9 !#$()*+\-./@_{~}]+", re.ASCII)
# A language, and a serial number.
_REPLY: Final = re.compile(r"/ret/([A-Za-z0-9_\-]{1,64})/(?:[1-9][0-9]{6}|\*)", re.ASCII)


class Kind(Enum):
    """What a channel is for, by its first segment."""

    META = "meta"
    SERVICE = "service"
    BROADCAST = "broadcast"


class Channel:
    """A valid name.

    `name` has no trailing slash. `patterns` are the names of what stands on it (subscriptions, listeners, authorisers), the
    widest first (`/**`, `/a/**`, `/a/*`, then the name itself). `is_wildcard` says that the name is itself a pattern. `is_meta`
    and `is_broadcast` say of which kind it is: each publish asks several times. `has_dot_segments` says that one of its
    segments is of `DOT_SEGMENTS`, `is_publishable` that a publish may name it. `is_system` says that the server reports its own
    state on it: no pattern but the name itself stands on it. `is_reply` says that it is kept for answers to requests,
    `reply_id` whose. That is empty for a name that is neither a complete reply channel nor all those of one client,
    `/ret/<ID>/*`: no other pattern stands on them.
    """

    __slots__ = (
        "has_dot_segments",
        "is_broadcast",
        "is_meta",
        "is_publishable",
        "is_reply",
        "is_system",
        "is_wildcard",
        "kind",
        "name",
        "patterns",
        "reply_id",
    )

    def __init__(self, name: str, segments: list[str]) -> None:
        self.name = name
        self.kind = kind = _kind(name)
        self.is_meta = kind is Kind.META
        self.is_broadcast = kind is Kind.BROADCAST
        self.is_wildcard = segments[-1] in ("*", "**")
        self.has_dot_segments = not DOT_SEGMENTS.isdisjoint(segments)
        self.is_publishable = not (self.is_wildcard or self.has_dot_segments)
        self.is_system = name.startswith(SYSTEM)
        self.is_reply = name.startswith(REPLIES)
        self.reply_id = _reply_id(name) if self.is_reply else ""
        if self.is_system:
            self.patterns: tuple[str, ...] = (name,)
        elif self.is_reply:
            self.patterns = tuple(dict.fromkeys((f"{REPLIES}{self.reply_id}/*", name))) if self.reply_id else (name,)
        else:
            self.patterns = _patterns(name, segments)

    def __repr__(self) -> str:
        return f"Channel({self.name!r})"

    def __str__(self) -> str:
        return self.name


def parse(name: str) -> Channel | None:
    """The channel of this name, or None if the name is invalid: bad characters, an empty segment, a wildcard that is
    not the last segment, or more than `MAX_NAME` characters. `/a***` and `/foo*` are literal names."""
    channel = _remembered.get(name)
    return channel if channel is not None else _parse_and_remember(name)


def why_invalid(name: str) -> str:
    """The rule of channel names that this name breaks, as the rest of a sentence; empty if clients may use it."""
    channel = parse(name)
    if channel is not None:
        return "no segment is . or .., which a URL cannot carry" if channel.has_dot_segments else ""
    if not name.startswith("/") or name == "/":
        return "a channel name begins with a slash, such as /chat/demo"
    if len(name) > MAX_NAME:
        return f"a channel name has at most {MAX_NAME} characters"
    wrong = next((each for each in name if _CHARSET.fullmatch(f"/{each}") is None), "")
    if wrong:
        return f"{wrong!r} is not allowed in it: letters from a to z, digits, spaces and !#$()*+-./@_{{~}} are"
    if "//" in name:
        return "it has an empty segment"
    return "* and ** are wildcards, which are allowed as the last segment only"


def presence_of(channel: Channel) -> Channel | None:
    """The channel whose members change on this one; None if this one is for something else."""
    watched = parse(channel.name[len(PRESENCE) :]) if channel.name.startswith(f"{PRESENCE}/") else None
    return watched if watched is not None and may_have_presence(watched) else None


def may_have_presence(channel: Channel) -> bool:
    """Whether sessions can be present on this channel: it is one for applications, by its name."""
    return channel.is_broadcast and channel.is_publishable and not (channel.is_system or channel.is_reply)


def _parse(name: str) -> Channel | None:
    if len(name) > MAX_NAME or _CHARSET.fullmatch(name) is None:
        return None
    stripped = name[:-1] if name.endswith("/") else name
    segments = stripped[1:].split("/")
    if "" in segments or any(segment in ("*", "**") for segment in segments[:-1]):
        return None
    return Channel(stripped, segments)


class _Remembered(dict[str, Channel]):
    """Channels by the names that were parsed; `size` is what they take, in bytes."""

    size = 0


_remembered: Final = _Remembered()


def _parse_and_remember(name: str) -> Channel | None:
    channel = _parse(name)
    if channel is not None and len(name) <= _REMEMBERED_NAME:
        size = _FIXED_SIZE + sum(map(len, channel.patterns)) + _TEXT_SIZE * (len(channel.patterns) + 2)
        # Strangers choose names: the bound is in bytes, and forgetting costs one parse for each name in use.
        if _remembered.size + size > _REMEMBERED_SIZE:
            _remembered.clear()
            _remembered.size = 0
        _remembered[name] = channel
        _remembered.size += size
    return channel


def _kind(name: str) -> Kind:
    # The whole first segment decides: `/meta` alone and `/metadata/x` are ordinary broadcast channels.
    if name.startswith("/meta/"):
        return Kind.META
    if name.startswith("/service/"):
        return Kind.SERVICE
    return Kind.BROADCAST


def _reply_id(name: str) -> str:
    found = _REPLY.fullmatch(name)
    return found[1] if found is not None else ""


def _patterns(name: str, segments: list[str]) -> tuple[str, ...]:
    parents = [""]
    for segment in segments[:-1]:
        parents.append(f"{parents[-1]}/{segment}")
    deep = [f"{parent}/**" for parent in parents]
    return tuple(dict.fromkeys([*deep, f"{parents[-1]}/*", name]))


def matches(pattern: str, name: str) -> bool:
    """Whether a subscription to `pattern` receives a message on `name`; False if either is not a valid name, and for meta and
    service channels, which no subscription receives."""
    channel = parse(name)
    subscribed = parse(pattern)
    if channel is None or subscribed is None or channel.kind is not Kind.BROADCAST:
        return False
    return subscribed.name in channel.patterns
