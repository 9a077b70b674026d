"""What was wrong with receivers and has ended: from when to when, and why. It is known for an hour, so that an operator who
comes later, or looked away, sees what happened and that it has ended.

Pure: the causes of each count in, what has ended out. A trouble has ended when a count does not find it any more. Times are
milliseconds since 1970.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from crewel.admin.level import Level
from crewel.admin.receiver_condition import Cause
from crewel.storage.dead_letter_groups import Pair

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
    """How many dead letters there were."""
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
        self._letters: dict[_Key, Pair] = {}
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

    def note_letters(self, pairs: Iterable[Pair]) -> None:
        """These are all dead letters of the last hour: of those that are missing, some were redriven or discarded, and others
        are too old by now."""
        now, found = self._clock(), {(each.receiver, each.code): each for each in pairs}
        for (receiver, code), pair in self._letters.items():
            if (receiver, code) not in found and now - pair.since < SHOWN_MS - AGAIN_MS:
                past = PastTrouble(LETTERS, receiver, code, pair.since, now, letters=pair.letters)
                self._remember((LETTERS, f"{receiver} {code}"), past)
        self._letters = found

    def _remember(self, key: _Key, past: PastTrouble) -> None:
        self._over[key] = past
        self._over.move_to_end(key)
        if len(self._over) > MOST:
            self._over.popitem(last=False)

    def over(self) -> list[PastTrouble]:
        """What has ended in the last hour, the newest first."""
        now = self._clock()
        return [each for each in reversed(self._over.values()) if now - each.until < SHOWN_MS]
