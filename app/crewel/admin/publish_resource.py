"""The REST resource by which an operator publishes a test message to a channel."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.example import SAMPLES, Example
from crewel.admin.operation import About
from crewel.admin.request_fields import WITH_REASON, flag_field, json_field
from crewel.admin.route import Ask, Route
from crewel.bayeux.channel import parse
from crewel.bayeux.codec import encode
from crewel.errors import IllegalArgument
from crewel.security.grants import Role


async def _publish(ask: Ask) -> dict[str, Any]:
    name, fields, broker = "/" + ask.path["channel"], ask.fields, ask.admin.broker
    channel = parse(name)
    if channel is None or not channel.is_publishable or not channel.is_broadcast or channel.is_system:
        raise IllegalArgument(
            "channel", f"must be a channel of topics without a wildcard, such as /orders, not {name[:128]}"
        )
    size, most = len(encode(fields["data"])), ask.admin.settings.bayeux.max_message_bytes
    if size > most:
        raise IllegalArgument("data", f"takes {size} bytes; the most is {most}")
    persistent = fields.get("persistent", False)
    with ask.action("publish", about=channel.name, reason=fields.get("reason", ""), persistent=persistent) as action:
        log_id = None
        if persistent:
            log_id = await broker.publish_stored(channel.name, fields["data"])
        else:
            broker.publish(channel.name, fields["data"])
        action.count = 1
        action.details |= {} if log_id is None else {"message": log_id}
    return {"channel": channel.name, "id": log_id}


PUBLISH_ROUTES: Final = (
    Route(
        "POST",
        "/publish/{channel}",
        "Publish a test message to a channel, as the server itself.",
        _publish,
        "`channel`; `id`: the id of the stored message, or null if it was not to be stored.",
        Example({"data": {"dish": "pizza"}, "persistent": True}, {"id": SAMPLES["message"]}),
        body=(
            json_field("data", "The data of the message, any JSON.", "any JSON"),
            flag_field("persistent", "Store it: subscribers that are away get it too."),
            WITH_REASON,
        ),
        role=Role.OPERATE,
        action="publish",
        about=About.CHANNEL,
    ),
)
