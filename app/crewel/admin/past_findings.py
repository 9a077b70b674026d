"""What was wrong in the last hour and has ended, as an operator wants to read it: what it was, why, and from when to when.

Pure: the troubles of `past_troubles` in, entries out. Many of one kind are one entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from crewel.admin.cause_words import WORDS
from crewel.admin.findings import called, receiver_link
from crewel.admin.past_troubles import LETTERS, PastTrouble
from crewel.admin.receiver_condition import listed, things
from crewel.qos.names import shown_name

_SINGLE: Final = 3
"""Of more troubles of one kind, one entry tells."""
_NAMED: Final = 3
"""Receivers that it names."""
_LAST: Final = "last seen: "
"""Before a cause, whose words are of the time when it held."""


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
        if kind == LETTERS or (kind in WORDS and WORDS[kind].was)  # a node of a later version may have others
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
            text=listed([each.text for each in some], _NAMED),
            since=min(each.since for each in some),
            letters=sum(each.letters for each in some),
        )
        for some in found.values()
    ]


def _one(past: PastTrouble) -> Over:
    what, cause = called(shown_name(past.name)), past.text
    link, count = receiver_link(past.name), past.letters or 1
    if past.kind == LETTERS:
        title, link = _letters(past.letters, what), f"/dead-letters?receiver={quote(past.name)}"
    else:
        title = WORDS[past.kind].was.format(what)
        cause = f"{_LAST}{cause}; it has ended" if past.has_ended else f"{_LAST}{cause}"
    return Over(past.kind, title, cause, link, count, past.since, past.until, (past.node,) if past.node else ())


def _many(kind: str, some: Sequence[PastTrouble]) -> Over:
    count, what, link = len(some), things(len(some), "receiver"), "/receivers"
    if kind == LETTERS:
        count = sum(each.letters for each in some)
        title, link = _letters(count, what), "/dead-letters"
    else:
        title = WORDS[kind].were.format(what)
    causes = listed([f"{called(shown_name(each.name))}: {each.text}" for each in some], _NAMED, "; ")
    return Over(
        kind,
        title,
        causes if kind == LETTERS else f"{_LAST}{causes}",
        link,
        count,
        min(each.since for each in some),
        max(each.until for each in some),
        tuple(sorted({each.node for each in some} - {""})),
    )


def _letters(count: int, whose: str) -> str:
    """They may have been redriven, discarded or restored, and so be gone from where they were."""
    return f"{whose} had {things(count, 'dead letter')}"
