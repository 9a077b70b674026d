"""What a publish asks for in `ext.publish` (xmlBlaster's PublishQos): the fields, their defaults and their bounds.

Everything is checked here, so that no code behind it looks at JSON. Times are milliseconds as on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from crewel.bayeux.channel import parse
from crewel.bayeux.codec import encode
from crewel.errors import IllegalArgument
from crewel.qos.fields import (
    Check,
    Option,
    Options,
    flag,
    json_values,
    member_of,
    one_or_list_of,
    read_fields,
    text,
    whole,
)
from crewel.qos.names import Name, parse_name

NORMAL: Final = 5
"""The priority of a message of which nothing else is said."""
PRIORITIES: Final = {"MIN": 0, "LOW": 3, "NORM": NORMAL, "HIGH": 7, "MAX": 9}
"""The priorities that have a name."""

FOR_EVER: Final = -1
"""The `lifeTime` of a message that never expires."""

MAX_KEY: Final = 256
MAX_DESTINATIONS: Final = 100


class Distribute(StrEnum):
    """Which of a subject's sessions get a message that is addressed to the subject."""

    ALL = "all"
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Destination:
    """One receiver of a point-to-point message."""

    to: Name
    """A session, or a subject."""
    force_queuing: bool = False
    """Whether a message to a subject without a session waits for one."""
    distribute: Distribute = Distribute.ALL

    def as_json(self) -> dict[str, Any]:
        """As the wire has it, less what is as usual."""
        told: dict[str, Any] = {"to": self.to.relative}
        if self.force_queuing:
            told["forceQueuing"] = True
        if self.distribute is not Distribute.ALL:
            told["distribute"] = self.distribute.value
        return told


@dataclass(frozen=True, slots=True)
class PublishQos:
    """How one message is to be handled; `PUBLISH` says what each field means. The defaults are those of a publish without
    `ext.publish`."""

    persistent: bool = False
    priority: int = NORMAL
    life_time_ms: int = FOR_EVER
    force_destroy: bool = False
    force_update: bool = True
    readonly: bool = False
    destroy_delay_ms: int = 60_000
    history_max: int = 0
    destinations: tuple[Destination, ...] = ()
    subscribable: bool = True
    reply_to: str = ""
    key: str = ""
    properties: dict[str, Any] = field(default_factory=dict)
    administrative: bool = False
    deliver_at_ms: int = 0
    """Milliseconds since 1970; 0: this does not say when."""
    deliver_after_ms: int = 0

    is_volatile: bool = field(init=False)
    """Whether no history keeps it. A message with destinations is in no history, unless its publisher gives a life time."""
    is_immediate: bool = field(init=False)
    """Whether it is published at once: it neither configures a topic nor is scheduled."""

    def __post_init__(self) -> None:
        is_volatile = self.life_time_ms == 0 or (self.life_time_ms == FOR_EVER and bool(self.destinations))
        object.__setattr__(self, "is_volatile", is_volatile)
        is_immediate = not (self.administrative or self.deliver_at_ms or self.deliver_after_ms)
        object.__setattr__(self, "is_immediate", is_immediate)

    @property
    def is_scheduled(self) -> bool:
        """Whether it is published later."""
        return bool(self.deliver_at_ms or self.deliver_after_ms)

    def due_ms(self, now_ms: int) -> int:
        """When a message that is accepted now has to be published; both in milliseconds since 1970."""
        return self.deliver_at_ms or now_ms + self.deliver_after_ms

    def leaves_history(self, received: int) -> int:
        """When a message that was accepted at this time goes out of its topic's history; both in microseconds since 1970. 0:
        not by time, or because it never goes in."""
        return 0 if self.is_volatile else life_ends(received, self.life_time_ms)

    def expires(self, received: int) -> int:
        """When it goes out of all queues; both in microseconds since 1970. 0: never."""
        return life_ends(received, self.life_time_ms) if self.force_destroy else 0

    def as_stored(self) -> bytes:
        """What is kept with the message (`differing`) as JSON; empty if there is nothing."""
        differing = self.differing()
        return encode(differing) if differing else b""

    def as_stored_addressed(self) -> bytes:
        """What is kept as JSON with the copy that goes to the destinations. It names them, because a redrive needs them."""
        further: dict[str, Any] = {} if self.subscribable else {"subscribable": False}
        return encode({**self.differing(), "destination": [each.as_json() for each in self.destinations], **further})

    def differing(self) -> dict[str, Any]:
        """What is kept with the message, by the names on the wire: the fields that are not as usual. How it was published
        (`persistent`, `key`) and what it says of the topic is no part of that."""
        fields: dict[str, Any] = {}
        if self.priority != DEFAULT.priority:
            fields["priority"] = self.priority
        if self.life_time_ms != FOR_EVER:
            fields["lifeTime"] = self.life_time_ms
        if self.force_destroy:
            fields["forceDestroy"] = True
        if self.reply_to:
            fields["replyTo"] = self.reply_to
        if self.properties:
            fields["clientProperties"] = self.properties
        return fields


DEFAULT: Final = PublishQos()
_PERSISTENT: Final = PublishQos(persistent=True)


def life_ends(received: int, life_time_ms: int) -> int:
    """When the life of a message ends that was accepted at this time; both in microseconds since 1970. 0: never."""
    return 0 if life_time_ms == FOR_EVER else received + life_time_ms * 1000


def _priority(value: object) -> int:
    if isinstance(value, str) and value.upper() in PRIORITIES:
        return PRIORITIES[value.upper()]
    try:
        return int(whole(0, 9)(value))
    except ValueError:
        raise ValueError(f"a whole number from 0 to 9, or one of {', '.join(PRIORITIES)}") from None


def _address(value: object) -> Name:
    name = parse_name(value) if isinstance(value, str) else None
    if name is None or name.has_dot_segment:
        raise ValueError("a name such as client/joe or client/joe/1")
    return name


def _channel(value: object) -> str:
    channel = parse(value) if isinstance(value, str) else None
    if channel is None or not channel.is_publishable or channel.is_meta:
        raise ValueError("the name of a channel")
    return channel.name


DESTINATION: Final = Options(
    Option(
        "to", "to", _address, "The session, `client/joe/1`, or the subject, `client/joe`, that receives the message"
    ),
    Option("forceQueuing", "force_queuing", flag, "Queue the message while the subject has no session"),
    Option(
        "distribute",
        "distribute",
        member_of(Distribute),
        "`all` sessions of the subject receive the message, or only `one`",
    ),
)
"""The options of one destination."""

_HISTORY: Final[Mapping[str, Check]] = {"maxEntries": whole(0)}


def _history(value: object) -> int:
    if not isinstance(value, dict):
        raise ValueError("an object")  # noqa: TRY004 - one error for all that does not fit
    return int(read_fields(value, _HISTORY, "").get("maxEntries", 0))


PUBLISH: Final = Options(
    Option("persistent", "persistent", flag, "Store the message before the reply", "explanation/guarantees.md"),
    Option(
        "priority",
        "priority",
        _priority,
        "0 to 9, or MIN, LOW, NORM, HIGH, MAX: in a queue, higher priorities come first",
    ),
    Option(
        "lifeTime",
        "life_time_ms",
        whole(0, or_else=FOR_EVER),
        "How long the message lives, ms; -1: no limit, 0: the history does not keep it",
        "how-to/topics.md#how-long-a-message-lives",
    ),
    Option("forceDestroy", "force_destroy", flag, "Remove the message from queues too when it expires"),
    Option(
        "forceUpdate",
        "force_update",
        flag,
        "Deliver the message even if its data equals that of the newest message in the history",
    ),
    Option("readonly", "readonly", flag, "Topic: accept no second message", "how-to/topics.md"),
    Option(
        "destroyDelay",
        "destroy_delay_ms",
        whole(0, or_else=-1),
        "Topic: lifetime without references, ms; -1: no limit",
        "how-to/topics.md",
    ),
    Option("history", "history_max", _history, "Topic: how many messages its history keeps", "how-to/topics.md"),
    Option(
        "destination",
        "destinations",
        one_or_list_of(DESTINATION.part(Destination, "to"), MAX_DESTINATIONS),
        "The session or subject that the message is addressed to, or a list of them",
        "how-to/point-to-point.md",
    ),
    Option("subscribable", "subscribable", flag, "With destinations: deliver the message to subscribers too"),
    Option(
        "replyTo",
        "reply_to",
        _channel,
        "The channel for the answer; delivered as `ext.replyTo`",
        "how-to/request-reply.md",
    ),
    Option(
        "key",
        "key",
        text(MAX_KEY),
        f"Up to {MAX_KEY} characters: idempotency key. A repeat with the same key, channel and subject within two minutes"
        " delivers nothing, even with other data, and returns the first id",
    ),
    Option("clientProperties", "properties", json_values, "JSON values that are delivered with the message"),
    Option("administrative", "administrative", flag, "Configure the topic, deliver nothing", "how-to/topics.md"),
    Option(
        "deliverAt",
        "deliver_at_ms",
        whole(0),
        "Publish the message then, ms since 1970; a persistent one, without destinations",
        "how-to/scheduled-messages.md",
    ),
    Option(
        "deliverAfter",
        "deliver_after_ms",
        whole(0),
        "Publish the message so much later, ms: instead of `deliverAt`",
        "how-to/scheduled-messages.md",
    ),
)
"""The options of a publish, `ext.publish`."""


def read_publish_qos(given: object, usual: PublishQos = DEFAULT) -> PublishQos:
    """What `ext.publish` asks for; what it leaves out is as `usual`. Raises IllegalArgument, which names the field."""
    # On the path of each persistent publish: no table is read for the common case.
    if usual is DEFAULT and given == {"persistent": True} and given["persistent"] is True:
        return _PERSISTENT  # as nearly all of them
    asked = PUBLISH.read(given, "publish")
    qos = PublishQos(**asked) if usual is DEFAULT else replace(usual, **asked)  # `replace` reads all that is as usual
    if not qos.is_immediate:
        _check_schedule(qos)
    return qos


def _check_schedule(qos: PublishQos) -> None:
    """Raise IllegalArgument if the message is to be published later, and cannot be."""
    if not qos.is_scheduled:
        return
    name = "deliverAt" if qos.deliver_at_ms else "deliverAfter"
    if qos.deliver_at_ms and qos.deliver_after_ms:
        raise IllegalArgument("deliverAfter", "must be left out: `deliverAt` is given")
    if qos.administrative:
        raise IllegalArgument(name, "must be left out: a topic is configured at once")
    if qos.destinations:
        raise IllegalArgument(
            name, "must be left out of a message with a destination; a consumer group can receive it later"
        )
    if not qos.persistent:
        raise IllegalArgument(name, "needs `persistent`, because a message that waits is stored")
