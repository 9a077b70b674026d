"""What a store has lost that it had answered, as far as the servers know that were answered.

A store that restarts, that was put back, or whose replica has taken its place may have less than it had. It lacks the end of
the log, and all that was done since. Every run and every promotion of a store is a *generation* of its own. The first server
that meets one notes what it has; each server then knows which of the messages that it was answered are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import LogId
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.store_files import moment

_REMEMBERED_MS: Final = 86_400_000
"""How long a generation is remembered: longer than any server is without the store and still lives."""
_MOST_GROUPS: Final = 16_384
_MOST_RANGES: Final = 1000  # in one fact
_MOST_NAMED: Final = 10  # in the log of the server

_Range = tuple[LogId, LogId]
"""The first and the last of ids without a gap."""


class AnsweredIds:
    """The ids of the newest messages that this server was answered as stored: what it would miss."""

    __slots__ = ("_former", "_groups", "seen")

    def __init__(self) -> None:
        self._groups: deque[_Range] = deque(maxlen=_MOST_GROUPS)
        self._former: list[_Range] = []
        self.seen = LogId(0)
        """The newest log id that the server had seen at the last `turn`."""

    def note(self, prev: LogId, ids: Sequence[LogId]) -> None:
        """One step has stored these, where `prev` was the newest id before it; what is not beyond that was stored earlier."""
        if ids and ids[0] > prev and ids[-1] > prev:
            self._groups.append((ids[0], ids[-1]))
        elif new := [log_id for log_id in ids if log_id > prev]:
            self._groups.append((new[0], new[-1]))

    def turn(self, seen: LogId) -> None:
        """The store has changed, and has not been asked for anything yet: what was answered so far may be missing in it."""
        self._former += self._groups
        self._groups.clear()
        self.seen = max(self.seen, seen)

    def missing(self, kept: LogId) -> list[_Range]:
        """Return what was answered before the last `turn` and is beyond this id: ranges without a gap, rising."""
        found: list[_Range] = []
        for first, last in sorted(self._former):
            if last <= kept:
                continue
            start = LogId(max(first, kept + 1))
            if found and start <= found[-1][1] + 1:
                found[-1] = (found[-1][0], max(found[-1][1], last))
            else:
                found.append((start, last))
        return found

    def forget(self) -> None:
        """What was answered before the last `turn` is settled, one way or the other."""
        self._former.clear()
        self.seen = LogId(0)


class Met(NamedTuple):
    """What a generation of the store had when it was first met."""

    last: LogId
    """The newest log id."""
    fact: str
    """The id of the newest fact."""
    ms: int
    """By its clock, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What one server misses in the store."""

    node: str
    """The `node.name` of the server."""
    met: Met
    """What the store has of before."""
    seen: LogId
    """The newest log id that the server has seen."""
    ranges: list[_Range]
    """The messages that it was answered and that are missing."""

    @property
    def count(self) -> int:
        """How many messages these are."""
        return sum(last - first + 1 for first, last in self.ranges)

    def __str__(self) -> str:
        kept = self.met.last
        since = f"{kept} of {moment(kept)}" if kept else "the first"
        until = f"up to {self.seen} of {moment(self.seen)}"
        if not self.ranges:
            return f"what came after {since}, {until}; this server had published none of it"
        named = ", ".join(
            str(first) if first == last else f"{first} to {last}" for first, last in self.ranges[:_MOST_NAMED]
        )
        more = ", ..." if len(self.ranges) > _MOST_NAMED else ""
        return f"what came after {since}, {until}; of this server {self.count} messages: {named}{more}"


def meet(k: Keys, generation: str) -> Step[Met]:
    """Note what this generation of the store has, if no server has met it yet. Returns what it had then."""
    return Step("meet", (k.last, k.met(generation), k.facts), (_REMEMBERED_MS,), _met)


def _met(answer: Any) -> Met:
    last, fact, ms = answer
    return Met(LogId(int(last)), fact.decode(), int(ms))


def note(k: Keys, token: str, generation: str, loss: Loss, facts_max: int) -> Step[bool]:
    """Record a loss, under the token that the server had before; returns whether it was unknown. May be repeated."""
    fact = {
        "node": loss.node,
        "from": loss.met.last,
        "until": loss.seen,
        "messages": loss.count,
        "fact": loss.met.fact,
        "met": loss.met.ms,
        "first": [first for first, _ in loss.ranges[:_MOST_RANGES]],
        "last": [last for _, last in loss.ranges[:_MOST_RANGES]],
    }
    keys = (k.last, k.met(generation), k.losses, k.facts, k.topics)
    arguments = (k.base, token, loss.seen, loss.count, facts_max, orjson.dumps(fact))
    return Step("lose", keys, arguments, bool)


@dataclass(frozen=True, slots=True)
class Losses:
    """What a store is known to have lost ever."""

    times: int
    messages: int
    newest: dict[str, Any]
    """The fact of the newest loss."""


def losses_of(record: dict[bytes, bytes]) -> Losses | None:
    """Return what the hash `losses` says; None if nothing was ever lost."""
    if not record:
        return None
    return Losses(int(record[b"times"]), int(record[b"messages"]), orjson.loads(record[b"newest"]))
