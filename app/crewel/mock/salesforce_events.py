"""The events of an org: their ids, how long they are retained, and their forms. Pure; times are seconds.

Ids rise over the whole org and have gaps, as at Salesforce, so that a client that counts instead of remembering fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

SHORT_S: Final = 24 * 3600.0
"""How long PushTopic and generic events are retained."""
LONG_S: Final = 72 * 3600.0
"""How long platform events and change events are retained."""
_GAPS: Final = (1, 1, 3, 2, 5)
"""By how much one id is larger than the one before, in turn."""
ALL_CHANGES: Final = "/data/ChangeEvents"


@dataclass(frozen=True, slots=True)
class Event:
    """One event, as the org retains it."""

    replay_id: int
    channel: str
    created_at: float
    """Seconds since 1970, in virtual time."""
    fields: dict[str, Any]
    """The message."""
    user_ids: frozenset[str] = frozenset()
    """Ids of the only users that get it; empty for all."""

    def sent_on(self, subscription: str) -> dict[str, Any]:
        """The message as a subscriber gets it. Its channel is the subscription, which clients compare, except for the wildcards
        of generic streaming, which they know."""
        is_same = "?" in subscription or subscription == ALL_CHANGES
        return {**self.fields, "channel": subscription} if is_same else self.fields


def retention(channel: str) -> float:
    """Seconds for which the events of this channel are retained."""
    return LONG_S if channel.startswith(("/event/", "/data/")) else SHORT_S


def is_well_formed(channel: str) -> bool:
    """Whether Salesforce could have a channel of this name, or a PushTopic with such a filter."""
    prefix, _, name = channel[1:].partition("/")
    match prefix:
        case "topic":
            return bool(name) and "/" not in topic_of(name)
        case "u":
            return bool(name) and "?" not in name
        case "event":
            return name.endswith(("__e", "__chn", "Event"))
        case "data":
            return name == "ChangeEvents" or name.endswith(("ChangeEvent", "__chn"))
    return False


def matches(pattern: str, channel: str) -> bool:
    """Whether a subscription to `pattern` gets the events of `channel`. Only generic streaming has wildcards."""
    if pattern == channel:
        return True
    if pattern == ALL_CHANGES:
        return channel.startswith("/data/")
    if pattern.startswith("/u/") and pattern.endswith(("/*", "/**")):
        parent, _, star = pattern.rpartition("/")
        rest = channel.removeprefix(parent + "/") if channel.startswith(parent + "/") else ""
        return bool(rest) and (star == "**" or "/" not in rest)
    return False


def change_channel(entity: str) -> str:
    """The channel of the changes of an object: that of `Employee__c` is `/data/Employee__ChangeEvent`."""
    return f"/data/{re.sub('__c$', '__', entity)}ChangeEvent"


def topic_of(subscription: str) -> str:
    """The channel of a subscription to a PushTopic with a filter; any other as it is."""
    return subscription.partition("?")[0]


def filter_of(subscription: str) -> list[tuple[str, str]]:
    """The conditions of a subscription to a PushTopic: `/topic/Leads?Industry='Energy'&City='Rome'`. Empty: no filter."""
    _, mark, expression = subscription.partition("?")
    if not mark:
        return []
    conditions = [each.partition("=") for each in expression.split("&")]
    return [(name.strip(), value.strip().strip("'")) for name, _, value in conditions]


def selects(subscription: str, event: Event, user_id: str = "") -> bool:
    """Whether a subscription gets this event: its channel matches, one of its conditions is met, it is for this user."""
    if not matches(topic_of(subscription), event.channel) or (event.user_ids and user_id not in event.user_ids):
        return False
    conditions = filter_of(subscription)
    record = event.fields["data"]["sobject"] if conditions else {}
    return not conditions or any(name in record and _shown(record[name]) == value for name, value in conditions)


def _shown(value: object) -> str:
    """A value as a filter has it: `true`, `null`, `5`, `Energy`."""
    return value if isinstance(value, str) else json.dumps(value)


class EventLog:
    """The retained events of one org."""

    def __init__(self, first_id: int = 80) -> None:
        self._events: dict[int, Event] = {}
        self._last_id = first_id
        self._count = 0

    def publish(
        self,
        channel: str,
        data: Any,
        now: float,
        age: float = 0.0,
        *,
        user_ids: Iterable[str] = (),
        type: str = "created",  # noqa: A002 - as in the event
        header: Mapping[str, Any] | None = None,
    ) -> Event:
        """A new event, `age` seconds old. `type` is for a PushTopic, `header` for a change event. Raises ValueError for a gap
        event with fields."""
        self._last_id += _GAPS[self._count % len(_GAPS)]
        self._count += 1
        created = now - age
        fields = {"channel": channel, "data": form(channel, data, self._last_id, created, type, header or {})}
        event = Event(self._last_id, channel, created, fields, frozenset(user_ids))
        self._events[event.replay_id] = event
        return event

    def retained(self, subscription: str, now: float, user_id: str = "") -> Iterator[Event]:
        """The events that a subscription can still get, in the order of their ids."""
        return (
            event
            for event in self._events.values()
            if selects(subscription, event, user_id) and event.created_at > now - retention(event.channel)
        )

    def after(self, subscription: str, replay_id: int, now: float, user_id: str = "") -> list[Event] | None:
        """What a subscription with this replay id is sent first; None if the id is invalid or has expired."""
        if replay_id == -1:
            return []
        if replay_id != -2:
            # A filter selects events and not ids: that of any event of the channel is valid.
            ids = [event.replay_id for event in self.retained(topic_of(subscription), now, user_id)]
            if not ids or not ids[0] <= replay_id <= self._last_id:
                return None
        return [event for event in self.retained(subscription, now, user_id) if event.replay_id > replay_id]

    def newest(self, channel: str) -> int:
        """The id of the newest event that was ever published there; 0 if there is none."""
        return max(
            (each.replay_id for each in self._events.values() if matches(topic_of(channel), each.channel)), default=0
        )

    def channel_of(self, replay_id: int) -> str:
        """The channel of the event with this id."""
        return self._events[replay_id].channel


# Forms


def form(
    channel: str, data: Any, replay_id: int, created: float, change: str, header: Mapping[str, Any]
) -> dict[str, Any]:
    """The `data` of a delivered event. `change` is the type of a PushTopic's event."""
    kind = channel[1:].partition("/")[0]
    if kind == "topic":
        event = {"createdDate": moment(created), "replayId": replay_id, "type": change}
        return {"event": event, "sobject": data}
    if kind == "u":
        return {"event": {"createdDate": moment(created), "replayId": replay_id}, "payload": data}
    event = {"replayId": replay_id, "EventUuid": str(UUID(int=replay_id, version=4))}
    if kind == "data":
        full = _header(channel, created, replay_id, data or {}, header)
        if data and full["changeType"].startswith(GAP):
            raise ValueError(f"an event of the type {full['changeType']} has only a header, no fields")
        changed = {"ChangeEventHeader": full, **(data or {})}
        return {"schema": _schema(channel), "payload": changed, "event": event}
    payload = {"CreatedDate": moment(created), "CreatedById": USER_ID, **(data or {})}
    return {"schema": _schema(channel), "payload": payload, "event": event}


USER_ID: Final = "005000000000001AAA"
ORG_ID: Final = "00D000000000001EAA"
GAP: Final = "GAP_"
"""What the `changeType` of a change event without fields begins with."""
NO_RECORD: Final = "000000000000000AAA"
"""The record id of an overflow event, which is about records that it does not name."""


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


def _header(
    channel: str, created: float, replay_id: int, fields: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """A ChangeEventHeader. Only that of an update names the fields that have changed, and which of them are empty now."""
    kind, name = str(given.get("changeType", "CREATE")), channel.rpartition("/")[2]
    is_joint = channel == ALL_CHANGES or name.endswith("__chn")
    usual: dict[str, Any] = {
        "entityName": "Account" if is_joint else re.sub("__$", "__c", name.removesuffix("ChangeEvent")),
        "recordIds": [NO_RECORD if kind == "GAP_OVERFLOW" else f"001{replay_id:012d}AAA"],
        "changeType": kind,
        "changeOrigin": "" if kind.startswith(GAP) else "com/salesforce/api/rest/68.0",
        "transactionKey": f"{replay_id:08x}-0000-0000-0000-000000000000",
        "sequenceNumber": 1,
        "commitTimestamp": int(created * 1000),
        "commitNumber": 10_000_000_000 + replay_id,
        "commitUser": USER_ID,
        "changedFields": [*fields] if kind == "UPDATE" else [],
        "nulledFields": [name for name, value in fields.items() if value is None] if kind == "UPDATE" else [],
        "diffFields": [],
    }
    return {**usual, **given}
