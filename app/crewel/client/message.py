"""The message an application gets, and the tests that tell received messages apart."""

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

_ADDRESSED = "__subId:PtP"
_ERASED = "ERASED"


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
        return self._number("redeliver", 0)

    @property
    def priority(self) -> int:
        """0 to 9; the higher ones come first."""
        return self._number("priority", 5)

    @property
    def life_time_ms(self) -> int:
        """How long it was published for; -1: for ever."""
        return self._number("lifeTime", -1)

    @property
    def remaining_life_ms(self) -> int | None:
        """How much of that was left when it was sent; None if it lives for ever."""
        told = self.update.get("remainingLife")
        return told if isinstance(told, int) else None

    @property
    def received_ns(self) -> int | None:
        """When the server got it, in nanoseconds since 1970: no two messages of a server have the same; None if not told."""
        digits = self.update.get("rcvTimestamp")
        return int(digits) if isinstance(digits, str) and digits.isascii() and digits.isdigit() else None

    @property
    def subscription(self) -> str:
        """The channel or wildcard that it was delivered for; `__subId:PtP` if it was addressed to this session."""
        told = self.update.get("subscription")
        return told if isinstance(told, str) else self.channel

    @property
    def is_addressed(self) -> bool:
        """Whether it was addressed to this session or its subject, as far as the server tells."""
        return self.subscription == _ADDRESSED

    @property
    def state(self) -> str:
        """`OK`, or `ERASED` for the notice that the topic is gone."""
        told = self.update.get("state")
        return told if isinstance(told, str) else "OK"

    @property
    def is_erased(self) -> bool:
        """Whether this is no message but the notice that the topic is gone. A subscription to just its name ends with it."""
        return self.state == _ERASED

    @property
    def reply_to(self) -> str | None:
        """The channel on which its publisher waits for an answer, if it does."""
        for told in (self.update.get("replyTo"), self.ext.get("replyTo")):
            if isinstance(told, str):
                return told
        return None

    @property
    def backlog(self) -> tuple[int, int] | None:
        """Its place in the response, and how many are left, while what waited during an absence is sent; else None."""
        match self.update.get("queue"):
            case {"index": int(index), "size": int(size)}:
                return index, size
        return None

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

    def _number(self, name: str, usual: int) -> int:
        told = self.update.get(name)
        return told if isinstance(told, int) else usual

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


def channel_name(channel: str) -> str:
    """The name without a trailing slash. Raises ValueError if it is none."""
    parsed = parse(channel)
    if parsed is None:
        raise ValueError(f"not a channel name: {channel!r}")
    return parsed.name
