"""The REST resources of presence: which channels have members, and the members of one. Each node knows those of all nodes."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.example import Example
from crewel.admin.operation import About
from crewel.admin.request_fields import PAGE, page_fields
from crewel.admin.route import Ask, NotThere, Route
from crewel.bayeux.channel import may_have_presence, parse
from crewel.bayeux.numbers import parse as parse_json
from crewel.event_loop import in_turns, sorted_in_turns
from crewel.security.masks import masked

PRESENCE: Final = "/presence"

Row = dict[str, Any]


async def _list(ask: Ask) -> Row:
    after, count = ask.fields.get("after", ""), ask.fields.get("count", PAGE)
    found: dict[str, Row] = {}
    async for members in in_turns(list(ask.admin.presence.entries)):
        name = members.channel
        if name > after and ask.covers(name):
            found[name] = {"channel": name, "members": len(members.members), "sessions": members.sessions}
    names = await sorted_in_turns(found)
    page = names[:count]
    return {"channels": [found[name] for name in page], "next": page[-1] if len(names) > count else ""}


async def _show(ask: Ask) -> Row:
    channel = parse("/" + ask.path["channel"])
    if channel is None or not may_have_presence(channel):
        raise NotThere(f"sessions cannot be present on /{ask.path['channel']}")
    members, masks = ask.admin.presence.members(channel.name), ask.admin.masks
    listed = []
    async for name in in_turns(list(members.members)):
        seen = members.seen(name)
        if seen is not None:  # else it has left meanwhile
            listed.append({"id": name, "sessions": seen.sessions, "data": masked(parse_json(seen.data), masks)})
    return {"channel": channel.name, "sessions": members.sessions, "members": listed}


PRESENCE_ROUTES: Final = (
    Route(
        "GET",
        PRESENCE,
        "List the channels that have members, a page at a time.",
        _list,
        "`channels`, a list; `next`, the cursor of the next page, empty if this is the last. A channel has `channel`,"
        " `members` (how many are present) and `sessions` (how many sessions they have). Members of all nodes are counted.",
        Example({}, {"channels": [{"channel": "/kitchen/orders", "members": 1, "sessions": 1}], "next": ""}),
        query=page_fields("channels"),
        about=About.MANY,
    ),
    Route(
        "GET",
        f"{PRESENCE}/{{channel}}",
        "List the members of one channel.",
        _show,
        "`channel`, `sessions` (how many are present) and `members`, a list. A member has `id` (its subject, or a text that"
        " begins with anonymous/), `sessions` and `data`, with fields that `admin.mask` names as `***`.",
        Example({}, {"sessions": 1, "members": [{"id": "ann", "sessions": 1, "data": {"name": "Ann"}}]}),
        refusals={404: "Sessions cannot be present on this channel."},
        about=About.CHANNEL,
    ),
)
