"""The message an application gets, the one it publishes, and the tests that tell received messages apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields
from crewel.client.settling import Part

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"
DISCONNECT = "/meta/disconnect"
SUBSCRIBE = "/meta/subscribe"
UNSUBSCRIBE = "/meta/unsubscribe"


@dataclass(frozen=True, slots=True)
class Message:
    """A delivered message. `fields` is everything the server sent, `data` its opaque payload.

    In a client with `update` the application settles it (docs/client.md): by asking for the next one, or with the
    methods here, of which the first one counts. Elsewhere they do nothing.
    """

    channel: str
    data: Any
    fields: Fields
    part: Part | None = field(default=None, repr=False, compare=False)
    """What the client keeps of it until it is settled."""

    @property
    def ext(self) -> Fields:
        """The message's `ext`; empty if it has none."""
        ext = self.fields.get("ext")
        return ext if isinstance(ext, dict) else {}

    @property
    def id(self) -> str | None:
        """Its id, the same whenever it comes again; None for a transient one in a client without `update`."""
        message_id = self.fields.get("id", self.update.get("id"))
        return message_id if isinstance(message_id, str) else None

    @property
    def update(self) -> Fields:
        """What the server tells of the delivery, without what is as usual; empty in a client without `update`."""
        return update_of(self.fields)

    @property
    def sender(self) -> str | None:
        """The public name of the session that published it, if told."""
        sender = self.update.get("sender")
        return sender if isinstance(sender, str) else None

    @property
    def redeliver(self) -> int:
        """How often it may have been sent before."""
        count = self.update.get("redeliver")
        return count if isinstance(count, int) else 0

    @property
    def is_persistent(self) -> bool:
        """Whether it was stored before it was answered."""
        return self.update.get("persistent") is True

    @property
    def is_initial(self) -> bool:
        """Whether it is from a history, and old."""
        return self.update.get("initial") is True

    @property
    def client_properties(self) -> Fields:
        """What the publisher sent along, and what the server adds: `__redriveOf`, or all that a dead letter tells."""
        properties = self.update.get("clientProperties")
        return properties if isinstance(properties, dict) else {}

    def settle(self) -> None:
        """It is done."""
        if self.part is not None:
            self.part.settle()

    def reject(self, code: str, text: str = "") -> None:
        """It cannot be done: `code` decides what the server does with it (docs/errors.md)."""
        if self.part is not None:
            self.part.reject(code, text)

    def working(self) -> None:
        """It takes longer: `ack_wait_ms` begins anew."""
        if self.part is not None:
            self.part.working()

    def defer(self) -> None:
        """Do not settle it when the next one is asked for: the application will, with `settle` or `reject`."""
        if self.part is not None:
            self.part.is_deferred = True


def update_of(fields: Fields) -> Fields:
    """The `ext.update` of a delivery or reply; empty if it has none."""
    ext = fields.get("ext")
    update = ext.get("update") if isinstance(ext, dict) else None
    return update if isinstance(update, dict) else {}


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
