"""The dead letters as operators see them: read, sent again, thrown away. `commits` stores them.

Letters are known by their dead id, their place in the stream `dead`. Each step takes whole letters from there, so that a
letter is in exactly one place whatever happens.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from crewel.delivery.records import LogId
from crewel.storage.answers import unless_refused
from crewel.storage.keys import Keys
from crewel.storage.letter_pages import Page, count, get, page
from crewel.storage.steps import Step
from crewel.storage.store import Store
from crewel.storage.stored_letters import LetterFilter, StoredLetter, is_dead_id

__all__ = [
    "MOST_DISCARDED",
    "LetterFilter",
    "Page",
    "RedriveOutcome",
    "Redriven",
    "StoredLetter",
    "count",
    "discard",
    "dropped",
    "get",
    "is_dead_id",
    "newest",
    "oldest",
    "page",
    "redrive",
    "returned",
]

MOST_DISCARDED: Final = 1000
"""Letters that one step throws away at most: more would hold up the store."""

_TO_RECEIVER, _TO_CHANNEL, _TO_DESTINATION = range(3)
_REMEMBERED_MS: Final = 120_000  # how long a redrive may be asked for again


class RedriveOutcome(StrEnum):
    """What became of a letter that was to be sent again. Unless it was moved, or is gone, it stays where it is."""

    MOVED = "moved"
    """It waits for its receiver, or lies in the log, under a new id."""
    GONE = "gone"
    """Somebody was quicker: it is no dead letter any more."""
    NO_RECEIVER = "no receiver"
    """Its session is not in the store, or is ending."""
    FULL = "full"
    """Its receiver has as much waiting as it may have."""
    EMPTY = "empty"
    """Nothing is left of its message."""


class Redriven(NamedTuple):
    """The answer to a redrive; id and size are 0 unless the letter was moved."""

    outcome: RedriveOutcome
    id: LogId
    size: int
    """Bytes of the body."""


def redrive(
    k: Keys,
    token: str,
    letter: StoredLetter,
    facts_max: int,
    *,
    to_channel: bool = False,
    max_entries: int = 0,
    max_bytes: int = 0,
) -> Step[Redriven]:
    """Send a letter again, to its receiver or, `to_channel`, to the subscribers of its channel; an addressed message goes
    to its destination then (`letter.to`), and to no other. A receiver that would have more than
    `max_entries` or `max_bytes` open gets nothing; 0 is no bound. What opens by other ways may be noticed a second late. To
    find a receiver full takes the store long if it has thousands waiting: do not go on asking for that one.

    The step may be repeated when its outcome is unknown, for two minutes: it answers the same again. Another step for the
    same letter finds it gone. Raises Fenced if the server has been superseded, StoreFull.
    """
    once = k.once(f"redrive {secrets.token_hex(12)}")  # no publish has such a scope: those begin with the channel
    keys = (k.node(token), k.last, k.log, k.dead, k.facts, once)
    where = (_TO_DESTINATION if letter.to else _TO_CHANNEL) if to_channel else _TO_RECEIVER
    arguments = (k.base, letter.dead_id, facts_max, _REMEMBERED_MS, where, max_entries, max_bytes, letter.to)
    return Step("redrive", keys, arguments, _redriven, appends=where == _TO_CHANNEL)


@unless_refused
def _redriven(answer: Any) -> Redriven:
    outcome, log_id, size = (*answer, 0, 0)[:3]
    return Redriven(RedriveOutcome(outcome.decode()), LogId(log_id), size)


def discard(k: Keys, token: str, dead_ids: Sequence[str], facts_max: int, who: str = "") -> Step[int]:
    """Throw letters away, at most `MOST_DISCARDED`; returns how many of them there were. Repeated, it finds fewer. Raises
    Fenced if the server has been superseded."""
    if len(dead_ids) > MOST_DISCARDED:
        raise ValueError(f"dead_ids: expected at most {MOST_DISCARDED}, not {len(dead_ids)}")
    known = filter(is_dead_id, dead_ids)
    return Step("discard", (k.node(token), k.dead, k.facts), (k.base, facts_max, who, *known), _discarded)


_discarded = unless_refused(int)


async def newest(store: Store) -> str:
    """Return the dead id of the newest letter, empty if there is none: the bound of work that must not meet what comes back
    meanwhile. Raises StoreError."""
    found: Any = await store.reader.xrevrange(store.keys.dead, count=1)
    return str(found[0][0].decode()) if found else ""


async def oldest(store: Store) -> str:
    """Return the dead id of the oldest letter, empty if there is none. Raises StoreError."""
    found: Any = await store.reader.xrange(store.keys.dead, count=1)
    return str(found[0][0].decode()) if found else ""


async def dropped(store: Store) -> int:
    """Return how many letters were dropped because there were too many. Raises StoreError."""
    return int(await store.reader.get(store.keys.dropped) or 0)


async def returned(store: Store) -> int:
    """Return how many letters there have been whose message had been sent again. Raises StoreError."""
    return int(await store.reader.get(store.keys.returned) or 0)
