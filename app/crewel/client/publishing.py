"""What a publish may ask for, and the message that says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, Unpack

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields
from crewel.client.message import channel_name

Distribute = Literal["all", "one"]


@dataclass(frozen=True, slots=True)
class Destination:
    """One receiver of a point-to-point message (docs/point-to-point.md)."""

    to: str
    """A session, `client/joe/1`, or a subject, `client/joe`."""
    force_queuing: bool = False
    """Whether a message to a subject that nobody is waits until somebody is."""
    distribute: Distribute = "all"
    """Which of a subject's sessions get it."""


Address = str | Destination
"""A destination, or only its name."""


class PublishOptions(TypedDict, total=False):
    """What a publish may ask for beside its data; what is not given, or None, is as the server has it.

    Times are in milliseconds and go to the server as they are.
    """

    persistent: bool | None
    """Answered when it is stored."""
    priority: int | str | None
    """0 to 9, or MIN, LOW, NORM, HIGH, MAX."""
    life_time_ms: int | None
    """How long it lives; -1: for ever, 0: it is in no history."""
    force_destroy: bool | None
    """Whether it goes out of queues too when its life is over."""
    force_update: bool | None
    """False: subscribers do not hear it if it says the same as the newest of the topic's history."""
    to: Address | Iterable[Address] | None
    """Its destinations."""
    force_queuing: bool | None
    """As in `Destination`, for those that are names only."""
    distribute: Distribute | None
    """As in `Destination`, for those that are names only."""
    subscribable: bool | None
    """False: only the destinations get it."""
    reply_to: str | None
    """The channel on which an answer is awaited."""
    key: str | None
    """Publishing again with the same key within two minutes does nothing and answers the first one's id."""
    properties: Fields | None
    """JSON values that travel with it."""
    readonly: bool | None
    """Of the topic: it takes no second message."""
    history_max: int | None
    """Of the topic: how many messages its history keeps."""
    destroy_delay_ms: int | None
    """Of the topic: how long it lives when nothing refers to it; -1: for ever."""
    administrative: bool | None
    """It configures the topic anew and is delivered to nobody."""


_CALLED: Final = {
    "persistent": "persistent",
    "priority": "priority",
    "life_time_ms": "lifeTime",
    "force_destroy": "forceDestroy",
    "force_update": "forceUpdate",
    "subscribable": "subscribable",
    "reply_to": "replyTo",
    "key": "key",
    "properties": "clientProperties",
    "readonly": "readonly",
    "destroy_delay_ms": "destroyDelay",
    "administrative": "administrative",
}
"""The options that are fields of `ext.publish` as they are, by their names there."""


def publication(channel: str, data: Any, ext: Fields | None = None, **options: Unpack[PublishOptions]) -> Fields:
    """The message that publishes `data`. Raises ValueError if nobody can publish to this channel, TypeError for an option
    that there is not."""
    name = channel_name(channel)
    parsed = parse(name)
    if parsed is None or parsed.is_wildcard or name.startswith("/meta/"):
        raise ValueError(f"nothing can be published to {channel}")
    message: Fields = {"channel": name, "data": data}
    qos = _qos(**options)
    if qos:
        asked = ext.get("publish") if ext is not None else None
        ext = {**(ext or {}), "publish": {**(asked if isinstance(asked, dict) else {}), **qos}}
    return message if ext is None else {**message, "ext": ext}


def _qos(
    *,
    to: Address | Iterable[Address] | None = None,
    force_queuing: bool | None = None,
    distribute: Distribute | None = None,
    history_max: int | None = None,
    **same: Any,
) -> Fields:
    unknown = same.keys() - _CALLED.keys()
    if unknown:
        raise TypeError(f"a publish has no option {', '.join(sorted(unknown))}")
    qos = {_CALLED[name]: value for name, value in same.items() if value is not None}
    if history_max is not None:
        qos["history"] = {"maxEntries": history_max}
    if to is not None:
        addresses = [to] if isinstance(to, str | Destination) else to
        qos["destination"] = [_destination(each, force_queuing, distribute) for each in addresses]
    elif force_queuing is not None or distribute is not None:
        raise ValueError("force_queuing and distribute say something of `to`, which is not given")
    return qos


def _destination(address: Address, force_queuing: bool | None, distribute: Distribute | None) -> Fields:
    if isinstance(address, Destination):
        fields = {"to": address.to, "forceQueuing": address.force_queuing, "distribute": address.distribute}
    else:
        fields = {"to": address, "forceQueuing": force_queuing or False, "distribute": distribute or "all"}
    return {name: value for name, value in fields.items() if value not in (False, "all")}
