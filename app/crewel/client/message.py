"""The message an application gets, the one it publishes, and the tests that tell received messages apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"
DISCONNECT = "/meta/disconnect"
SUBSCRIBE = "/meta/subscribe"
UNSUBSCRIBE = "/meta/unsubscribe"


@dataclass(frozen=True, slots=True)
class Message:
    """A delivered message. `fields` is everything the server sent, `data` its opaque payload."""

    channel: str
    data: Any
    fields: Fields

    @property
    def ext(self) -> Fields:
        """The message's `ext`; empty if it has none."""
        ext = self.fields.get("ext")
        return ext if isinstance(ext, dict) else {}

    @property
    def id(self) -> str | None:
        """The id of a persistent message, the same whenever it comes again; None for a transient one."""
        message_id = self.fields.get("id")
        return message_id if isinstance(message_id, str) else None


def is_delivery(fields: Fields) -> bool:
    """Whether this is a message for the application.

    `data` tells a delivered message from the answer to a publish on the same
    channel; meta channels carry answers only.
    """
    channel = fields.get("channel")
    return isinstance(channel, str) and not channel.startswith("/meta/") and "data" in fields


def is_successful(reply: Fields) -> bool:
    """Whether a reply says so; anything but JSON `true` is a refusal."""
    return reply.get("successful") is True


class Reply(dict[str, Any]):
    """The server's reply to a publish: its fields, and the id of the message."""

    @property
    def message_id(self) -> str | None:
        """The message's id; None if the server was not asked for it, by `persistent` or anything else in `ext.publish`."""
        told = self["ext"].get("publish") if isinstance(self.get("ext"), dict) else None
        message_id = told.get("id") if isinstance(told, dict) else None
        return message_id if isinstance(message_id, str) else None


def publication(
    channel: str,
    data: Any,
    ext: Fields | None,
    *,
    persistent: bool = False,
    key: str | None = None,
    properties: Fields | None = None,
) -> Fields:
    """The message that publishes `data`. Raises ValueError if nobody can publish to this channel."""
    asked = {"persistent": persistent, "key": key, "clientProperties": properties}
    qos = {name: value for name, value in asked.items() if value}
    if qos:
        ext = {**(ext or {}), "publish": qos}
    name = channel_name(channel)
    parsed = parse(name)
    if parsed is None or parsed.is_wildcard or name.startswith("/meta/"):
        raise ValueError(f"nothing can be published to {channel}")
    message: Fields = {"channel": name, "data": data}
    return message if ext is None else {**message, "ext": ext}


def channel_name(channel: str) -> str:
    """The name without a trailing slash. Raises ValueError if it is none."""
    parsed = parse(channel)
    if parsed is None:
        raise ValueError(f"not a channel name: {channel!r}")
    return parsed.name
