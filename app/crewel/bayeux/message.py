"""One message as a client sent it, checked at the door; and the message that its subscribers get.

Only `data` and unknown fields stay opaque. A wrong type in a field that the protocol names is never an exception of Python's.
It is a `Refused` with the error that the reply carries, or it counts as absent where the reference asks for it.
"""

from __future__ import annotations

from typing import Any, Final

from crewel.bayeux.channel import Channel, parse
from crewel.errors import BayeuxCode, IllegalArgument, Refused

Fields = dict[str, Any]
"""A JSON object: a message on the wire."""

AWAITS: Final = "awaits"
"""`ext.busy` of a connect whose client is busy and waits for an answer, and of the reply that brings only what is new."""
MAX_ADVICE_MS: Final = 86_400_000
"""A client may ask for a longer hold or pause than the server's own, but not for more than a day. Each is a session that the
server has to remember."""

# Bayeux 1.0 gives these a meaning in what a server sends; a publisher that sets them would speak with the server's voice.
_SERVER_FIELDS: Final = frozenset(("clientId", "id", "advice", "successful", "error", "subscription"))
_KINDS: Final = {
    str: "a string",
    list: "a list",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}
_SERVER_EXT: Final = frozenset(("publish", "update", "session", "ack", "subscribe"))


class _NoExt(Fields):
    """The `ext` of a message that has none. What is written there would be lost, so that it is an error."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this message has no ext: set message.fields['ext'] to a dictionary instead")

    __setitem__ = setdefault = update = __ior__ = _refuse


_NO_EXT: Final = _NoExt()


class Message:
    """A message from a client. `fields` is what was sent, and an extension may change it; `channel` and `id` are checked."""

    __slots__ = ("channel", "fields", "id")

    def __init__(self, fields: Fields, channel: Channel, message_id: str | None) -> None:
        self.fields = fields
        self.channel = channel
        self.id = message_id

    @classmethod
    def read(cls, fields: Fields) -> Message:
        """The message, or Refused: first the channel is there, then its grammar, then the id, then that `ext` is an
        object: the order in which CometD checks."""
        name = fields["channel"] if "channel" in fields else None  # noqa: SIM401 - not a call
        if name is None:
            raise Refused(BayeuxCode.CHANNEL_MISSING)
        channel = parse(name) if type(name) is str else None
        if channel is None:
            raise Refused(BayeuxCode.CHANNEL_INVALID)
        message_id = fields["id"] if "id" in fields else None  # noqa: SIM401 - not a call
        if message_id is not None:
            if type(message_id) is not str:
                message_id = echoed_id(fields) or ""
            if not (message_id.isalnum() and message_id.isascii()):
                raise Refused(BayeuxCode.MESSAGE_ID_INVALID)
        # The server adds its own fields to `ext`.
        if "ext" in fields and type(fields["ext"]) is not dict:
            raise no_object(fields["ext"])
        return cls(fields, channel, message_id)

    @property
    def client_id(self) -> str | None:
        """The `clientId`; None if it is missing or not a string."""
        value = self.fields.get("clientId")
        return value if isinstance(value, str) else None

    @property
    def data(self) -> Any:
        """The `data`, None if there is none."""
        return self.fields.get("data")

    @property
    def ext(self) -> Fields:
        """The `ext` object; if there is none, an empty one that takes nothing (TypeError)."""
        value = self.fields.get("ext")
        return value if isinstance(value, dict) else _NO_EXT

    @property
    def says_busy(self) -> bool:
        """Whether a connect says that its client is busy: what it got and does not acknowledge is not lost, and the reply,
        which comes at once, brings no more."""
        return self.ext.get("busy") is True

    @property
    def awaits_answer(self) -> bool:
        """Whether a connect says that its client is busy, and waits for an answer all the same. What it got and does not
        acknowledge is not lost, and the reply brings what is new."""
        return bool(self.ext.get("busy") == AWAITS)

    @property
    def has_advice(self) -> bool:
        """Whether the request carried an `advice` object, be it empty."""
        return isinstance(self.fields.get("advice"), dict)

    def advised_ms(self, name: str) -> float | None:
        """The request's `advice.timeout` or `advice.interval` in milliseconds; None if unset, negative or no number."""
        advice = self.fields.get("advice")
        value = advice.get(name) if isinstance(advice, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            return None
        return min(value, MAX_ADVICE_MS)

    def subscriptions(self) -> list[Channel]:
        """The channels named by `subscription`, or Refused: one bad name refuses the whole request, before any is
        subscribed."""
        value = self.fields.get("subscription")
        if type(value) is str and (channel := parse(value)) is not None:
            return [channel]
        if value is None:
            raise Refused(BayeuxCode.SUBSCRIPTION_MISSING)
        return named(value if isinstance(value, list) else [value])


def named(names: list[object]) -> list[Channel]:
    """The channels of these names, or Refused: one at least, and all valid."""
    channels = []
    for name in names:
        channel = parse(name) if isinstance(name, str) else None
        if channel is None:
            raise Refused(BayeuxCode.SUBSCRIPTION_INVALID)
        channels.append(channel)
    if not channels:
        raise Refused(BayeuxCode.SUBSCRIPTION_INVALID)
    return channels


class Accepted(Message):
    """A message that the server has accepted, as services get it. `sender` is the public name of the session that published
    it; empty for the server itself, and for a session without a name."""

    __slots__ = ("sender",)

    def __init__(self, fields: Fields, channel: Channel, sender: str = "") -> None:
        super().__init__(fields, channel, None)
        self.sender = sender


def no_object(ext: object) -> IllegalArgument:
    """The refusal of an `ext` that is no object: the server could not add its own fields to it."""
    return IllegalArgument("ext", f"must be an object, not {_KINDS.get(type(ext), type(ext).__name__)}")


def echoed_id(fields: Fields) -> str | None:
    """The `id` that a reply echoes, as a string: clients compare strings. None if there is none to echo."""
    value = fields.get("id")
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


def delivered(message: Message) -> Fields:
    """The message that subscribers get: what was published, less what is the publisher's own affair (`id`, `clientId`) and what
    only a server may say. It always has `data`, for clients take a message without it for an acknowledgement."""
    fields: Fields = {}
    for name, value in message.fields.items():
        if name not in _SERVER_FIELDS:
            fields[name] = value
    fields["channel"] = message.channel.name
    if "data" not in fields:
        fields["data"] = None
    ext = fields["ext"] if "ext" in fields else None  # noqa: SIM401 - not a call
    # An empty `ext` says nothing; the official client's AckExtension puts one into every message.
    if type(ext) is dict:
        kept = {name: value for name, value in ext.items() if name not in _SERVER_EXT}
        if kept:
            fields["ext"] = kept
        else:
            del fields["ext"]
    return fields
