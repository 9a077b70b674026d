"""What a publish asks for in `ext.publish` (xmlBlaster's PublishQos): the fields, their defaults and their bounds.

Everything is checked here, so that nobody behind it looks at JSON. A field that asks for something that this server does
not do is refused and never ignored: whoever asks for it relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from crewel.delivery.fields import Check, flag, json_values, list_of, one_of, read_fields, text, whole
from crewel.delivery.names import parse_name
from crewel.errors import IllegalArgument

__all__ = ["DEFAULT", "PRIORITIES", "PublishQos", "read_publish_qos"]

PRIORITIES: Final = {"MIN": 0, "LOW": 3, "NORM": 5, "HIGH": 7, "MAX": 9}
"""The priorities that have a name."""

MAX_KEY: Final = 256
MAX_DESTINATIONS: Final = 100


@dataclass(frozen=True, slots=True)
class PublishQos:
    """How one message is to be handled. The defaults are those of a publish without `ext.publish`."""

    persistent: bool = False
    """Whether it is stored before it is answered."""
    key: str = ""
    """Makes a repeat of the publish harmless: it answers with the id of the first."""
    client_properties: dict[str, Any] = field(default_factory=dict)
    """What the publisher says beside the data; it travels with the message."""

    def differing(self) -> dict[str, Any]:
        """What is kept with the message, by the names on the wire: the fields that are not as usual. How it was published
        (`persistent`, `key`) is no part of that."""
        return {"clientProperties": self.client_properties} if self.client_properties else {}


DEFAULT: Final = PublishQos()
_PERSISTENT: Final = PublishQos(persistent=True)


def _priority(value: object) -> int:
    if isinstance(value, str) and value.upper() in PRIORITIES:
        return PRIORITIES[value.upper()]
    try:
        return int(whole(0, 9)(value))
    except ValueError as error:
        raise ValueError(f"{error}, or one of {', '.join(PRIORITIES)}") from None


def _address(value: object) -> str:
    if not isinstance(value, str) or parse_name(value) is None:
        raise ValueError("a name such as client/joe or client/joe/1")
    return value


_DESTINATION: Final[Mapping[str, Check]] = {"to": _address, "forceQueuing": flag, "distribute": one_of("all", "one")}
_HISTORY: Final[Mapping[str, Check]] = {"maxEntries": whole(0)}


def _destination(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or "to" not in value:
        raise ValueError("an object with `to`")
    return read_fields(value, _DESTINATION, "")


def _history(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object")  # noqa: TRY004 - one error for all that does not fit
    return read_fields(value, _HISTORY, "")


_CHECKS: Final[Mapping[str, Check]] = {
    "persistent": flag,
    "priority": _priority,
    "lifeTime": whole(0, or_else=-1),
    "forceDestroy": flag,
    "forceUpdate": flag,
    "readonly": flag,
    "destroyDelay": whole(0, or_else=-1),
    "history": _history,
    "destination": list_of(_destination, MAX_DESTINATIONS),
    "subscribable": flag,
    "replyTo": text(1024),
    "key": text(MAX_KEY),
    "clientProperties": json_values,
    "administrative": flag,
}

_NOT_YET: Final[Mapping[str, tuple[Any, ...]]] = {
    "priority": (5,),
    "lifeTime": (-1,),
    "forceDestroy": (False,),
    "forceUpdate": (True,),
    "readonly": (False,),
    "destroyDelay": (60_000,),
    "history": ({}, {"maxEntries": 0}),
    "destination": ((),),
    "subscribable": (True,),
    "replyTo": (),
    "administrative": (False,),
}
"""The fields of which this server obeys only these values, the defaults."""


def read_publish_qos(given: object) -> PublishQos:
    """What `ext.publish` asks for. Raises IllegalArgument, which names the field."""
    if given == {"persistent": True} and given["persistent"] is True:
        return _PERSISTENT  # as nearly all of them
    fields = read_fields(given, _CHECKS, "publish")
    for name, usual in _NOT_YET.items():
        if name in fields and fields[name] not in usual:
            raise IllegalArgument(name, "this server does not offer that yet; leave the field out")
    return PublishQos(
        fields.get("persistent", False),
        fields.get("key", ""),
        fields.get("clientProperties", DEFAULT.client_properties),
    )
