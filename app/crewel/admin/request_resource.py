"""The remote calls that wait for a result of a service of the server. A REST resource."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from crewel.admin.example import Example
from crewel.admin.merges import Parts, Row
from crewel.admin.operation import About
from crewel.admin.request_fields import PAGE, count_text, text_field
from crewel.admin.route import Ask, Route
from crewel.event_loop import in_turns


async def _list(ask: Ask) -> dict[str, Any]:
    fields, admin = ask.fields, ask.admin
    channel, caller = fields.get("channel", ""), fields.get("caller", "")
    found = [
        (call.since, call.channel, call.session.name, call.id)
        async for call in in_turns(admin.broker.publishing.handler.open_calls)
        if call.channel.startswith(channel) and call.session.name.startswith(caller) and ask.covers(call.channel)
    ]
    longest = heapq.nsmallest(fields.get("count", PAGE), found, key=lambda each: each[0])
    return {
        "requests": [
            {"channel": name, "caller": session, "id": message_id, "since": int(admin.clock_ms(since))}
            for since, name, session, message_id in longest
        ],
        "count": len(found),
    }


def _joined(parts: Sequence[Row], fields: Mapping[str, Any]) -> Row:
    """The calls of all nodes: each waits at the node of its session."""
    every = chain.from_iterable(part["requests"] for part in parts)
    oldest = heapq.nsmallest(fields.get("count", PAGE), every, key=itemgetter("since"))
    return {"requests": oldest, "count": sum(part["count"] for part in parts)}


REQUEST_ROUTES: Final = (
    Route(
        "GET",
        "/requests",
        "List the remote calls that wait for a service of the server, the oldest first.",
        _list,
        "`requests`, a list of `channel`, `caller` (the name of the session, empty if it has none), `id` (of the"
        " message, or null) and `since` (milliseconds since 1970); `count`: their total number. The server does not"
        " list requests between clients, because it does not know which of them are pending.",
        Example({"caller": "client/joe"}, {"requests": [{"channel": "/service/print"}], "count": 1}),
        query=(
            text_field("channel", "Only those on channels that begin with this text."),
            text_field("caller", "Only those of sessions whose name begins with this text: client/joe."),
            count_text("At most this many requests, the oldest."),
        ),
        about=About.MANY,
        merge=Parts(_joined),
    ),
)
