"""What happened to the servers in the last day. A REST resource."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from crewel.admin.example import Example
from crewel.admin.merges import Parts, Row
from crewel.admin.route import Ask, Route
from crewel.admin.server_timeline import together

_PATIENCE_S: Final = 2.0
"""How long the other nodes are waited for: one that hangs must not hide what happened to the others."""


async def _list(ask: Ask) -> dict[str, Any]:
    events, is_whole = await ask.admin.server_timeline.events()
    return {"events": events if ask.is_part else together(events), "whole": is_whole}


def _as_one(parts: list[Row], _: object) -> Row:
    """What happened to all nodes. The store has what has ended; each node knows what lasts there."""
    events = list(chain.from_iterable(each["events"] for each in parts))
    return {"events": together(events), "whole": any(each["whole"] for each in parts)}


TIMELINE_ROUTES: Final = (
    Route(
        "GET",
        "/timeline",
        "Show what happened to the servers in the last day, the newest first. The store keeps it over restarts.",
        _list,
        "`events`; `whole`: false if the store cannot be read, and only what these servers remember is there. An event has"
        " `what` (started, stopped, store outage, store lost data, task failed, out of file descriptors, took over, logins"
        " refused), `at` and `until` (milliseconds since 1970; `until` is null while it lasts), `node` and `nodes` (all that"
        " it happened to). A start has `version` and `after` (stop, crash, or empty: how the run before ended). An outage"
        " has `why`, a list of reasons, and `store` (whether it is the same one). Outages for one reason with less than 5 s"
        " between them are one, with `times`: how many there were. A store that lost data has `count`: how many messages. A"
        " take-over has `sessions`, `of` (nodes) and"
        " `planned` (whether these ended as planned)."
        " Refused logins have `code`, `reason`, `count` and the last `name` and `address`.",
        Example({}, {"events": [{"what": "started", "node": "heron", "after": ""}], "whole": True}),
        merge=Parts(_as_one, patience_s=_PATIENCE_S),
    ),
)
