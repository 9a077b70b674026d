"""REST resources of scheduled messages: which there are, when they are due, why one was not published; and to cancel them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from crewel.admin.example import SAMPLES, Example
from crewel.admin.operation import About
from crewel.admin.request_fields import PAGE, WITH_REASON, cursor, list_field, page_fields, pattern, text_field
from crewel.admin.role_scopes import refused
from crewel.admin.route import Ask, NotThere, Route
from crewel.bayeux.codec import reread
from crewel.event_loop import in_turns
from crewel.qos.fields import text_that
from crewel.security.grants import Role
from crewel.security.masks import masked, masked_ext, masked_properties
from crewel.storage import scheduled_messages
from crewel.storage.scheduled_messages import ScheduledMessage, is_id, place_of

_NOTED: Final = 20
"""Messages that the audit names."""

_place: Final = text_that(place_of, "`next` of the previous page")
_id: Final = text_that(is_id, "the id of a scheduled message, such as 1795324804876345")


def scheduled_content(scheduled: ScheduledMessage, masks: frozenset[str]) -> dict[str, Any]:
    """What its publisher said, masked."""
    message = scheduled.message
    fields = reread(message.body)
    return {
        "data": masked(fields.get("data"), masks),
        "ext": masked_ext(fields.get("ext", {}), masks),
        "qos": masked_properties(reread(message.asked), masks),
        "sender": message.sender,
        "to": "",
    }


def _view(ask: Ask, scheduled: ScheduledMessage) -> dict[str, Any]:
    message = scheduled.message
    content = scheduled_content(scheduled, ask.admin.masks)
    return {
        "id": scheduled.id,
        "channel": message.channel,
        "deliverAt": message.due_ms,
        "nextAttempt": scheduled.next_ms,
        "refusal": scheduled.refusal,
        "account": message.account,
        "bytes": len(message.body),
        **{name: content[name] for name in ("data", "ext", "qos", "sender")},
    }


async def _list(ask: Ask) -> dict[str, Any]:
    fields, store = ask.fields, ask.admin.store
    page = await scheduled_messages.page(
        store, fields.get("channel", ""), ask.after(_place), fields.get("count", PAGE), ask.sight
    )
    return {
        "messages": [_view(ask, each) async for each in in_turns(page.messages)],
        "next": ask.following(page.next),
        "total": await scheduled_messages.count(store) if ask.covers_all else None,
    }


async def _show(ask: Ask) -> dict[str, Any]:
    message_id = ask.path["scheduled"]
    found = await scheduled_messages.get(ask.admin.store, [message_id])
    if not found or not ask.covers(channel := found[0].message.channel):
        raise NotThere(f"there is no scheduled message {message_id[:64]}, or it has been published or cancelled")
    return _view(ask, found[0]) | {"may": ask.may(lambda role: ask.covers(channel, role))}


async def _cancel(ask: Ask) -> dict[str, Any]:
    ids = list(dict.fromkeys(ask.fields.get("ids", ())))
    if not ask.covers_all or not ask.scope.allows(Role.DESTROY):
        ids = _within(ask, await scheduled_messages.get(ask.admin.store, ids))
    with ask.action("cancel scheduled messages", reason=ask.fields.get("reason", ""), ids=ids[:_NOTED]) as action:
        cancelled = await ask.admin.broker.publishing.scheduler.cancel(ids, ask.who)
        action.count = cancelled
    return {"cancelled": cancelled}


def _within(ask: Ask, found: Iterable[ScheduledMessage]) -> list[str]:
    """Those that the operator sees and may cancel. Raises NotCovered for one that the operator only sees."""
    seen = [each for each in found if ask.covers(each.message.channel)]
    if any(not ask.covers(each.message.channel, Role.DESTROY) for each in seen):
        raise refused(Role.DESTROY, About.MANY)
    return [each.id for each in seen]


_MESSAGE: Final = (
    "`id`, `channel`, `deliverAt`, `nextAttempt`, `refusal`, `account`, `bytes`, `data`, `ext`, `qos` and `sender`. `deliverAt`"
    " is when it is to be published, and `nextAttempt` when the server tries it: then, or a minute after it was refused."
    " `refusal`: why it could not be published; empty if it was not tried. `account`: which is charged for it; empty for the"
    " server. `bytes`: the size of its JSON. `qos`: what its publisher asked for"
)

_SAMPLE: Final = {"id": SAMPLES["scheduled"], "channel": "/kitchen/orders", "data": {"word": "pizza"}, "refusal": ""}

SCHEDULED_ROUTES: Final = (
    Route(
        "GET",
        "/scheduled-messages",
        "List scheduled messages, those that are due first, first, a page at a time.",
        _list,
        f"`messages`, a list. A message has {_MESSAGE}. `next`: the cursor of the next page, empty if this is the last."
        " `total`: how many there are in all; null for an operator of some channels.",
        Example({"channel": "/kitchen/**"}, {"messages": [_SAMPLE], "next": ""}),
        query=(
            text_field("channel", "Only those on this channel or pattern.", pattern),
            *page_fields("messages", cursor(_place)),
        ),
        about=About.MANY,
    ),
    Route(
        "GET",
        "/scheduled-messages/{scheduled}",
        "Show one scheduled message.",
        _show,
        f"{_MESSAGE}. Also `may`, the highest role of the operator on its channel.",
        Example({}, _SAMPLE),
        refusals={404: "There is no such scheduled message: it has been published or cancelled."},
        about=About.MANY,
    ),
    Route(
        "POST",
        "/scheduled-messages/cancel",
        "Cancel scheduled messages: they are not published.",
        _cancel,
        "`cancelled`: how many were there. The others had been published or cancelled.",
        Example({"ids": [SAMPLES["scheduled"]], "reason": "wrong oven"}, {"cancelled": 1}),
        body=(list_field("ids", "Ids of scheduled messages.", _id), WITH_REASON),
        role=Role.DESTROY,
        action="cancel scheduled messages",
        about=About.MANY,
    ),
)
