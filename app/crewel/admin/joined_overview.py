"""The overviews of several nodes as one. Pure: what the nodes have answered in, one overview out."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain
from math import isnan, nan
from operator import or_
from typing import Any, Final

from crewel.admin.figures import EmptyGroup, figures_as_one, from_json
from crewel.admin.findings import findings
from crewel.admin.past_findings import over

View = dict[str, Any]

_NEAR_MS: Final = 7500.0
"""How old a sample of another node may be, as one of this moment: nodes take them every five seconds, each in its own beat."""
_MAXIMA: Final = frozenset({"p50", "p95", "p99", "queued"})
"""Columns of which the joined sample has the largest; of all others it has the sum."""


def joined(own: View, others: Sequence[View]) -> View:
    """This node's overview with the figures and samples of the others, and what is wrong by the figures of all. Raises
    ValueError if a node has sent figures that this one cannot read."""
    views = [own, *others]
    working, empty = _groups(views)
    mine, *theirs = (from_json(view["figures"]) for view in views)
    figures = figures_as_one(mine, theirs, empty)
    return {
        **own,
        "nodes": [view["node"] for view in views],
        "samples": _samples(own["samples"], [view["samples"] for view in others]),
        "sessions": _sessions([view["sessions"] for view in views]),
        "groups": {"working": working, "empty": [tuple(each) for each in empty]},
        "queues": reduce(or_, (Counter(view.get("queues", {})) for view in views)),
        "store": _store([view["store"] for view in views]),
        "findings": [each.as_json() for each in findings(figures)],
        "over": [each.as_json() for each in over(figures.past)],
    }


def is_readable(view: View) -> bool:
    """Whether this node can read what another one has sent: earlier versions say less, or other things."""
    try:
        from_json(view["figures"])
    except (KeyError, ValueError):
        return False
    return "groups" in view


def _store(views: Sequence[View]) -> View:
    """What the first node says of the store that all share; if it cannot ask it at present, what another one says."""
    return next((each for each in views if each["trouble"] is None), views[0])


def _sessions(counts: Sequence[Mapping[str, Any]]) -> View:
    """The sessions of all. The queues of subjects and groups are in the store that all share."""
    return {**_summed(counts), "queued": max(each.get("queued", 0) for each in counts)}


def _summed(counts: Sequence[Mapping[str, Any]]) -> View:
    """Numbers, and counts by name, added up."""
    one: View = {}
    for name, value in counts[0].items():
        values = [each[name] for each in counts]
        one[name] = dict(sum(map(Counter, values), Counter())) if isinstance(value, dict) else sum(values)
    return one


def _samples(own: Mapping[str, Sequence[float]], others: Iterable[Mapping[str, Sequence[float]]]) -> View:
    """The samples of this node, each with those of the others that were taken last before it, or just after."""
    columns = {name: list(values) for name, values in own.items()}
    for other in others:
        places = [_near(at, other["at"]) for at in own["at"]]
        for name, values in columns.items():
            if name != "at" and name in other:  # which an earlier version may not have
                merge = _larger if name in _MAXIMA else _sum
                columns[name] = [
                    value if place is None else merge(value, other[name][place])
                    for value, place in zip(values, places, strict=True)
                ]
    return columns


def _near(at: float, times: Sequence[float]) -> int | None:
    """The place of the newest of these times that is not much later; None if there is none, or it is too old."""
    place = bisect_right(times, at + _NEAR_MS / 3) - 1
    return place if place >= 0 and times[place] >= at - _NEAR_MS else None


def _is_known(value: float | None) -> bool:
    return value is not None and not isnan(value)  # what came over a link has null for NaN


def _sum(one: float | None, other: float | None) -> float:
    return sum(filter(_is_known, (one, other))) if _is_known(one) or _is_known(other) else nan  # type: ignore[arg-type]


def _larger(one: float | None, other: float | None) -> float:
    return max(filter(_is_known, (one, other)), default=nan)  # type: ignore[type-var,return-value]


def _groups(views: Sequence[View]) -> tuple[list[tuple[str, str]], list[EmptyGroup]]:
    """The groups that work at any node; and those with messages that work at none, with the members of all."""
    working = {tuple(each) for view in views for each in view["groups"]["working"]}
    empty: dict[tuple[str, str], EmptyGroup] = {}
    for each in chain.from_iterable(view["groups"]["empty"] for view in views):
        group = EmptyGroup(*each)
        key = group.pattern, group.name
        known = empty.get(key, EmptyGroup(*key, 0, 0))
        if key not in working:
            last = max(known, group, key=lambda one: one.since or 0)
            both = max(known.waiting, group.waiting), known.members + group.members
            empty[key] = EmptyGroup(*key, *both, last.since, last.why)
    return sorted(working), list(empty.values())
