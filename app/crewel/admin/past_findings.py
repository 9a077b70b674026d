"""What was wrong in the last hour and has ended, as an operator wants to read it: what it was, why, and from when to when.

Pure: the troubles of `past_troubles` in, entries out. Many of one kind are one entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from crewel.admin.findings import called, receiver_link
from crewel.admin.past_troubles import LETTERS, PastTrouble
from crewel.admin.receiver_condition import things

_SINGLE: Final = 3
"""Of more troubles of one kind, one entry tells."""
_NAMED: Final = 3
"""Receivers that it names."""


class Words(NamedTuple):
    """How an entry reads: what is said of one receiver, and of several."""

    one: str
    many: str


WORDS: Final[dict[str, Words]] = {
    "rejecting": Words("{} rejected everything", "{} rejected everything"),
    "held": Words("{} was on hold", "{} were on hold"),
    "full": Words("{} was full", "{} were full"),
    "token": Words("{} had an expired token", "{} had an expired token"),
    "rejects": Words("{} rejected messages", "{} rejected messages"),
    "refused": Words("Logins as {} were refused", "Logins of {} were refused"),
    "members": Words("{} had no member that takes messages", "{} had no member that takes messages"),
    "retry": Words("{} waited to retry", "{} waited to retry"),
    "unclaimed": Words("{} had messages that no listener took", "{} had messages that no listener took"),
    "away": Words("{} was away", "{} were away"),
    "slow": Words("{} fell behind", "{} fell behind"),
    LETTERS: Words("{} were redriven or discarded", "{} were redriven or discarded"),
}
"""By the kind of the trouble."""


@dataclass(frozen=True, slots=True)
class Over:
    """One thing that was wrong, or several of one kind."""

    key: str
    title: str
    cause: str
    link: str
    count: int
    since: int
    """When the first of them began: milliseconds since 1970."""
    until: int
    """When the last of them ended."""
    nodes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The object of the answer."""
        names = ("key", "title", "cause", "link", "count", "since", "until")
        return {name: getattr(self, name) for name in names} | {"nodes": list(self.nodes)}


def over(troubles: Sequence[PastTrouble]) -> list[Over]:
    """What has ended, the last first."""
    kinds: dict[str, list[PastTrouble]] = {}
    for each in sorted(troubles, key=lambda each: -each.until):
        kinds.setdefault(each.kind, []).append(each)
    if LETTERS in kinds:
        kinds[LETTERS] = _by_receiver(kinds[LETTERS])
    found = [
        entry
        for kind, some in kinds.items()
        if kind in WORDS  # a node of a later version may have others
        for entry in ([_one(each) for each in some] if len(some) <= _SINGLE else [_many(kind, some)])
    ]
    return sorted(found, key=lambda each: -each.until)


def _by_receiver(letters: Sequence[PastTrouble]) -> list[PastTrouble]:
    """One for each receiver, whose codes it has."""
    found: dict[str, list[PastTrouble]] = {}
    for each in letters:
        found.setdefault(each.name, []).append(each)
    return [
        some[0]._replace(
            text=_listed([each.text for each in some]),
            since=min(each.since for each in some),
            letters=sum(each.letters for each in some),
        )
        for some in found.values()
    ]


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED:,} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


def _one(past: PastTrouble) -> Over:
    what, cause = called(past.name), past.text
    link = receiver_link(past.name)
    if past.kind == LETTERS:
        what, link = f"{things(past.letters, 'dead letter')} of {what}", f"/dead-letters?receiver={quote(past.name)}"
    elif past.has_ended:
        cause = f"{cause}; it has ended"
    title = WORDS[past.kind].one.format(what)
    count = past.letters or 1
    return Over(past.kind, title, cause, link, count, past.since, past.until, (past.node,) if past.node else ())


def _many(kind: str, some: Sequence[PastTrouble]) -> Over:
    count, what = len(some), things(len(some), "receiver")
    link = "/receivers"
    if kind == LETTERS:
        count = sum(each.letters for each in some)
        what, link = f"{things(count, 'dead letter')} of {what}", "/dead-letters"
    named = "; ".join(f"{called(each.name)}: {each.text}" for each in some[:_NAMED])
    return Over(
        kind,
        WORDS[kind].many.format(what),
        f"{named}; and {len(some) - _NAMED:,} more",
        link,
        count,
        min(each.since for each in some),
        max(each.until for each in some),
        tuple(sorted({each.node for each in some} - {""})),
    )
