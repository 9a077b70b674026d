"""The REST resource of rates: how many messages a second receivers, groups and topics had lately, for small charts."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.example import Example
from crewel.admin.operation import About
from crewel.admin.request_fields import choice_field
from crewel.admin.route import Ask, Route
from crewel.qos.names import group_of, shown_name
from crewel.storage.recent_rates import KINDS, SLICE_MS, SLICES, RecentRates

_MOST: Final = 1000


async def _rates(ask: Ask) -> dict[str, Any]:
    kind = ask.fields.get("by", KINDS[0])
    found: RecentRates = await ask.admin.rates[kind].get()
    rows = {_named(kind, name): numbers for name, numbers in found.counts.items() if _is_covered(ask, kind, name)}
    largest = sorted(rows, key=lambda name: (-sum(rows[name]), name))[:_MOST]
    ends = [found.start_ms + (at + 1) * SLICE_MS for at in range(SLICES)]
    return {
        "by": kind,
        "at": ends,
        "rates": {name: [_rate(found, at, number) for at, number in enumerate(rows[name])] for name in largest},
    }


def _rate(found: RecentRates, at: int, number: int) -> float | None:
    """Messages a second in this slice; None if the facts do not reach back to it."""
    return None if at < found.known_from else round(number * 1000 / SLICE_MS, 3)


def _named(kind: str, name: str) -> str:
    return shown_name(name) if kind == "group" else name


def _is_covered(ask: Ask, kind: str, name: str) -> bool:
    if ask.covers_all:
        return True
    if kind == "topic":
        return ask.covers(name)
    of = group_of(name)
    if kind == "group":
        return of is not None and ask.covers(of[0])
    return False  # what a receiver has acknowledged is of any channel


RATE_ROUTES: Final = (
    Route(
        "GET",
        "/rates",
        "Show how many stored messages a second receivers acknowledged, groups gave to their members, or topics got in the"
        " last ten minutes.",
        _rates,
        "`by`; `at`: the ends of the slices of time, milliseconds since 1970; `rates`: messages a second, one number for each"
        " slice, by name (client/joe/1, a channel, or pattern and name of a group). Only the 1000 with the most are there. A"
        " slice is null if there are too many facts to reach back to it. What had no message is left out, and receivers are for"
        " an operator of some channels.",
        Example({"by": "receiver"}, {"by": "receiver", "rates": {"client/joe/1": []}}),
        query=(choice_field("by", "Of these", KINDS),),
        about=About.MANY,
    ),
)
