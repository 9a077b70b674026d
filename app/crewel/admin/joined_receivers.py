"""Subjects and consumer groups of several nodes, in the list of receivers: the rows of all nodes in, one row of each out.

Each node knows its own members of a group, and how much waits for it in the store that all share. So how a group stands, and
where it belongs in a sorted list, follows from the rows of all nodes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from time import time
from typing import Any, Final

from crewel.admin.backlog_trends import Trend
from crewel.admin.level import Level
from crewel.admin.receiver_condition import Facts, causes_of
from crewel.admin.receiver_facts import standing
from crewel.admin.receiver_resource import MEMBERS
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.event_loop import in_turns

Row = dict[str, Any]

_OF_CLIENTS: Final = ("transport", "address", "client")
"""Filters that only sessions can fit."""
_KINDS: Final = ("subject", "group")


def shared_kinds(fields: Mapping[str, Any]) -> list[str]:
    """The kinds beside sessions that a list with these filters may have."""
    if fields.get("held") or any(fields.get(name) is not None for name in _OF_CLIENTS):
        return []
    return [kind for kind in _KINDS if fields.get("kind") in (None, kind)]


async def joined_shared(rows: Iterable[Row]) -> AsyncIterator[Row]:
    """One row for each subject and each group, with how it stands by the members of all nodes, in turns of the event loop."""
    found: dict[tuple[str, str], Row] = {}
    async for row in in_turns(rows):
        key = row["kind"], row["name"]
        known = found.get(key)
        found[key] = row if known is None else _both(known, row)
    async for row in in_turns(found.values()):
        yield {**row, **_standing(row)}


def _both(one: Row, other: Row) -> Row:
    best = max(one, other, key=_takes_messages)
    return {
        **best,
        "members": one["members"] + other["members"],
        "waiting": max(one["waiting"], other["waiting"]),
        "causes": [*one["causes"], *other["causes"]],
    }


def _takes_messages(row: Row) -> tuple[bool, bool]:
    """A group works if it has a working member at any node; else the members that there are say why not."""
    return row["state"] == DispatcherState.ALIVE.value, bool(row["members"])


def _is_first(kind: str, causes: list[Row]) -> bool:
    """Whether the most urgent cause, as a row, is of this kind and is trouble."""
    return bool(causes) and causes[0]["kind"] == kind and causes[0]["level"] != Level.INFO.value


def _standing(row: Row) -> Row:
    now, most = int(time() * 1000), row.get("maxEntries") or 0
    members, is_group = MEMBERS[row["state"]], row["kind"] == "group"
    stops = (each.get("since") for each in row["causes"] if each["kind"] == "members")
    facts = Facts(now, waiting=row["waiting"], max_entries=most, members=members, is_group=is_group)
    facts.trend, facts.stopped_since = _trend(row, now), max(filter(None, stops), default=None)
    return standing(facts, causes_of(facts))


def _trend(row: Row, now: int) -> Trend | None:
    """How its queue grows or shrinks, as the first node has said that can tell."""
    first = {each["kind"]: each for each in reversed(row["causes"])}
    filling, pace = first.get("filling"), first.get("slow") or first.get("recovering")
    if filling is None and pace is None:
        return None
    per_minute = (pace or filling or {})["perMinute"]
    return Trend(filling and filling["fullAt"], per_minute, now if pace is None else pace["since"])


def is_wanted(row: Row, fields: Mapping[str, Any]) -> bool:
    """Whether the row fits the filters that follow from all nodes."""
    state, condition, cause = fields.get("state"), fields.get("condition"), fields.get("cause")
    return (
        (state is None or row["state"] == state)
        and (condition is None or condition in row["conditions"])
        and (cause is None or _is_first(cause, row["causes"]))
    )
