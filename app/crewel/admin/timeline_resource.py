"""What happened to the servers in the last day. A REST resource."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.route import Ask, Route
from crewel.admin.server_timeline import together

TIMELINE: Final = "/timeline"


async def _list(ask: Ask) -> dict[str, Any]:
    events, is_whole = await ask.admin.server_timeline.events()
    # A node that has been handed the request tells what each has noted: the one that asks puts that together.
    return {"events": together(events) if ask.request is not None else events, "whole": is_whole}


TIMELINE_ROUTES: Final = (
    Route(
        "GET",
        TIMELINE,
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
        " Refused logins have `code`, `reason`, `count` and the last `name` and `address`. With `cluster.enabled`, also"
        " `unreached`: how many nodes did not answer, `failed` of them because of an internal error.",
    ),
)
