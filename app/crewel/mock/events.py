"""The events of an org: their ids, how long they are retained, and their forms. Pure; times are seconds.

Ids rise over the whole org and have gaps, as those of Salesforce: a client that counts instead of remembering is found out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

_DAY: Final = 86_400.0
SHORT_S: Final = 24 * 3600.0
"""How long PushTopic and generic events are retained."""
LONG_S: Final = 72 * 3600.0
"""How long platform events and change events are retained."""
_GAPS: Final = (1, 1, 3, 2, 5)
"""By how much one id is larger than the one before, in turn."""
ALL_CHANGES: Final = "/data/ChangeEvents"


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it is retained."""

    replay_id: int
    channel: str
    created_at: float
    """Seconds since 1970, in virtual time."""
    fields: dict[str, Any]
    """The message."""


def retention(channel: str) -> float:
    """Seconds for which the events of this channel are retained."""
    return LONG_S if channel.startswith(("/event/", "/data/")) else SHORT_S


def is_well_formed(channel: str) -> bool:
    """Whether Salesforce could have a channel of this name."""
    prefix, _, name = channel[1:].partition("/")
    match prefix:
        case "topic":
            return bool(name) and "/" not in name
        case "u":
            return bool(name)
        case "event":
            return name.endswith(("__e", "__chn", "Event"))
        case "data":
            return name == "ChangeEvents" or name.endswith(("ChangeEvent", "__chn"))
    return False


def matches(pattern: str, channel: str) -> bool:
    """Whether a subscription to the first gets events of the second. Only generic streaming has wildcards."""
    if pattern == channel:
        return True
    if pattern == ALL_CHANGES:
        return channel.startswith("/data/")
    if pattern.startswith("/u/") and pattern.endswith(("/*", "/**")):
        parent, _, star = pattern.rpartition("/")
        rest = channel.removeprefix(parent + "/") if channel.startswith(parent + "/") else ""
        return bool(rest) and (star == "**" or "/" not in rest)
    return False


class EventLog:
    """The retained events of one org."""

    def __init__(self, first_id: int = 80) -> None:
        self._events: list[Event] = []
        self._last_id = first_id
        self._count = 0
        self._newest: dict[str, int] = {}

    def publish(self, channel: str, data: Any, now: float, age: float = 0.0, **more: Any) -> Event:
        """A new event, `age` seconds old. `more` is for its form: `type` of a PushTopic, `header` of a change event."""
        self._last_id += _GAPS[self._count % len(_GAPS)]
        self._count += 1
        created = now - age
        fields = {"channel": channel, "data": form(channel, data, self._last_id, created, **more)}
        event = Event(self._last_id, channel, created, fields)
        self._events.append(event)
        self._newest[channel] = event.replay_id
        return event

    def retained(self, pattern: str, now: float) -> Iterator[Event]:
        """The events that a subscription can still get, in the order of their ids."""
        return (
            event
            for event in self._events
            if matches(pattern, event.channel) and event.created_at > now - retention(event.channel)
        )

    def after(self, pattern: str, replay_id: int, now: float) -> list[Event] | None:
        """What a subscription with this replay id is sent first; None if the id is invalid or has expired."""
        if replay_id == -1:
            return []
        events = list(self.retained(pattern, now))
        if replay_id == -2:
            return events
        if not events or not events[0].replay_id <= replay_id <= self._last_id:
            return None
        return [event for event in events if event.replay_id > replay_id]

    def all(self, pattern: str) -> list[Event]:
        """Every event that was ever published there, also those that have expired."""
        return [event for event in self._events if matches(pattern, event.channel)]


# Forms


def form(channel: str, data: Any, replay_id: int, created: float, **more: Any) -> dict[str, Any]:
    """The `data` of a delivered event."""
    kind = channel[1:].partition("/")[0]
    if kind == "topic":
        event = {"createdDate": moment(created), "replayId": replay_id, "type": more.get("type", "created")}
        return {"event": event, "sobject": data}
    if kind == "u":
        return {"event": {"createdDate": moment(created), "replayId": replay_id}, "payload": data}
    event = {"replayId": replay_id, "EventUuid": str(UUID(int=replay_id, version=4))}
    if kind == "data":
        header = _header(channel, created, replay_id, more.get("header") or {})
        changed = {"ChangeEventHeader": header, **(data or {})}
        return {"schema": _schema(channel), "payload": changed, "event": event}
    payload = {"CreatedDate": moment(created), "CreatedById": USER_ID, **(data or {})}
    return {"schema": _schema(channel), "payload": payload, "event": event}


USER_ID: Final = "005000000000001AAA"
ORG_ID: Final = "00D000000000001EAA"


def moment(seconds: float) -> str:
    """A time as events have it: `2016-03-29T19:05:28.334Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _schema(channel: str) -> str:
    # 22 characters in the real one, by which a client may fetch the schema.
    return f"{abs(hash_of(channel)):022d}"[:22]


def hash_of(text: str) -> int:
    """A number that is the same in each run."""
    number = 7
    for character in text:
        number = (number * 31 + ord(character)) % (1 << 61)
    return number


def _header(channel: str, created: float, replay_id: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """A ChangeEventHeader. A gap event (`changeType` of `GAP_…`) has nothing beside it."""
    usual: dict[str, Any] = {
        "entityName": channel.rpartition("/")[2].removesuffix("ChangeEvent").replace("__", "__c") or "Account",
        "recordIds": [f"001{replay_id:012d}AAA"],
        "changeType": "CREATE",
        "changeOrigin": f"com/salesforce/api/rest/{68.0}",
        "transactionKey": f"{replay_id:08x}-0000-0000-0000-000000000000",
        "sequenceNumber": 1,
        "commitTimestamp": int(created * 1000),
        "commitNumber": 10_000_000_000 + replay_id,
        "commitUser": USER_ID,
        "changedFields": [],
        "nulledFields": [],
        "diffFields": [],
    }
    return {**usual, **given}
