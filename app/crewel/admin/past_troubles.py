"""What was wrong with receivers and has ended: from when to when, and why. It is known for an hour, so that an operator who
comes later, or looked away, sees what happened and that it has ended.

Pure: the causes of each count in, what has ended out. A trouble has ended when a count does not find it any more. Times are
milliseconds since 1970.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from crewel.admin.level import Level
from crewel.admin.receiver_condition import Cause
from crewel.storage.dead_letter_records import place_of

SHOWN_MS: Final = 3_600_000
"""How long it is known after its end."""
MOST: Final = 2000
"""Troubles that are followed, and as many that are remembered. Of more, those that began later are not, and the newest are."""
BRIEF_MS: Final = 30_000
"""What is only a warning and lasted shorter was no trouble, such as a client that was away for some seconds."""
AGAIN_MS: Final = 60_000
"""What comes back within this time has not ended."""
LETTERS: Final = "letters"
"""The kind of dead letters that were redriven or discarded."""
GOES_ON_AS: Final[dict[str, frozenset[str]]] = {
    "rejecting": frozenset(),
    "held": frozenset(),
    "full": frozenset({"overflow"}),
    "token": frozenset(),
    "rejects": frozenset({"rejecting"}),
    "refused": frozenset(),
    "members": frozenset(),
    "retry": frozenset(),
    "unclaimed": frozenset(),
    "away": frozenset(),
    "slow": frozenset({"recovering"}),
}
"""The causes whose end is noted, by kind, and the causes that continue them. A queue that has room again is said to have been
full for a while, and one that shrinks is still behind."""

_Key = tuple[str, str]


class PastTrouble(NamedTuple):
    """One that has ended."""

    kind: str
    name: str
    """The receiver's."""
    text: str
    """Its cause, as it was seen last; of dead letters their code."""
    since: int
    until: int
    node: str = ""
    """Empty if it was nowhere in particular."""
    letters: int = 0
    """How many dead letters went."""
    has_ended: bool = False
    """Whether it has ended with its receiver."""


@dataclass(slots=True)
class _Trouble:
    """One that lasts."""

    text: str
    since: int
    node: str
    is_bad: bool


class PastTroubles:
    """Those of one server."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._lasting: dict[_Key, _Trouble] = {}
        self._seen: set[_Key] = set()
        self._letters: Mapping[tuple[str, str], Set[str]] = {}
        self._went: dict[tuple[str, str], tuple[int, int]] = {}
        """Of receivers and codes that still have some: how many went, and when the first of these was made."""
        self._over: OrderedDict[_Key, PastTrouble] = OrderedDict()

    def note(self, name: str, node: str, causes: Sequence[Cause]) -> None:
        """The count has found these causes at the receiver of this name."""
        troubles = {each.kind: each for each in causes if each.level is not Level.INFO}
        if not troubles or not name:
            return
        for kind in GOES_ON_AS.keys() & troubles.keys():
            self._see((kind, name), node, troubles[kind])
        for kind, others in GOES_ON_AS.items():
            if not others.isdisjoint(troubles):
                self._seen.add((kind, name))

    def _see(self, key: _Key, node: str, cause: Cause) -> None:
        self._seen.add(key)
        known = self._lasting.get(key)
        if known is not None:
            known.text, known.is_bad = cause.text, known.is_bad or cause.level is Level.BAD
        elif len(self._lasting) < MOST:
            now = self._clock()
            before, since = self._over.get(key), cause.details.get("since") or now
            if before is not None and now - before.until < AGAIN_MS:
                del self._over[key]
                since = before.since
            self._lasting[key] = _Trouble(cause.text, since, node, cause.level is Level.BAD)

    def end_count(self, is_there: Callable[[str], bool]) -> None:
        """The count is complete: what it did not find has ended. `is_there` says whether there is a receiver of this name."""
        now = self._clock()
        for key in self._lasting.keys() - self._seen:
            was = self._lasting.pop(key)
            if was.is_bad or now - was.since >= BRIEF_MS:
                past = PastTrouble(*key, was.text, was.since, now, was.node, has_ended=not is_there(key[1]))
                self._remember(key, past)
        self._seen.clear()

    def note_letters(self, letters: Mapping[tuple[str, str], Set[str]]) -> None:
        """These are the ids of all dead letters of the last hour, by receiver and code. Of those that are missing, some were
        redriven or discarded, and others are too old by now. They have ended when none is left."""
        now = self._clock()
        for pair, before in self._letters.items():
            made_at = [place_of(each)[0] for each in before - letters.get(pair, frozenset())]
            went = [each for each in made_at if now - each < SHOWN_MS - AGAIN_MS]
            if went:
                count, since = self._went.get(pair, (0, now))
                self._went[pair] = count + len(went), min(since, *went)
        for pair in self._went.keys() - letters.keys():
            self._are_gone(*pair, *self._went.pop(pair))
        self._letters = letters

    def _are_gone(self, receiver: str, code: str, count: int, since: int) -> None:
        now, key = self._clock(), (LETTERS, f"{receiver} {code}")
        before = self._over.get(key)
        if before is not None and now - before.until < SHOWN_MS:
            count, since = count + before.letters, before.since
        self._remember(key, PastTrouble(LETTERS, receiver, code, since, now, letters=count))

    def _remember(self, key: _Key, past: PastTrouble) -> None:
        self._over[key] = past
        self._over.move_to_end(key)
        if len(self._over) > MOST:
            self._over.popitem(last=False)

    def over(self) -> list[PastTrouble]:
        """What has ended in the last hour, the newest first."""
        now = self._clock()
        return [each for each in reversed(self._over.values()) if now - each.until < SHOWN_MS]
