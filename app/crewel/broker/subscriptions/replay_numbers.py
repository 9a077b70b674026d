"""The numbers of events, as in Salesforce's Streaming API, for the replay extension.

A server counts each channel upwards, beginning at its clock, so that no number comes twice, also after a restart. They are
written into the data, and so lie in the history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from crewel.bayeux.codec import reread
from crewel.bayeux.message import Fields
from crewel.delivery.records import Logged
from crewel.errors import Refused

REPLAY_NEW: Final = -1
"""Asks for events that are yet to come."""
REPLAY_ALL: Final = -2
"""Asks for all events that are retained."""

_DIGITS: Final = re.compile(r"-?[0-9]{1,16}", re.ASCII)


class Numbers:
    """The last number of each channel. `clock` tells seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, int] = {}

    def write(self, fields: Fields) -> None:
        """Give the message its number. Data that is no object has no room for one, and stays as it is."""
        data = fields["data"]
        if not isinstance(data, dict):
            return
        now, channel = self._clock(), fields["channel"]
        number = self._last[channel] = self._last.get(channel, int(now * 1_000_000)) + 1
        created = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = data.get("event")
        said: dict[str, Any] = event if isinstance(event, dict) else {}
        fields["data"] = {**data, "event": {**said, "replayId": number, "createdDate": created}}


def read_number(value: object) -> int:
    """The number that `ext.replay` has for a channel, a number or a string of one. Raises Refused."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if type(value) is not int or value < REPLAY_ALL:
        raise replay_refusal(value)
    return value


def replay_refusal(value: object) -> Refused:
    """What answers a subscribe that asks for a number that there is not. Clients look for these very words."""
    shown = str(value)[:64] if isinstance(value, int | float | str) else "?"
    return Refused(
        f"400::The replayId {{{shown}}} you provided was invalid.  Please provide a valid ID, -2 to replay all events, "
        "or -1 to replay only new events."
    )


def events_after(entries: Sequence[Logged], number: int) -> list[Logged] | None:
    """The events after the one of this number. None if it is not known what they are: neither that one is among the entries,
    oldest first, nor the one that followed it."""
    for place, entry in enumerate(entries):
        if b'"replayId"' not in entry.body:
            continue
        found = _number(entry.body)
        if found == number:
            return list(entries[place + 1 :])
        if found == number + 1:
            return list(entries[place:])
    return None


def _number(body: bytes) -> int | None:
    data = reread(body).get("data")
    event = data.get("event") if isinstance(data, dict) else None
    number = event.get("replayId") if isinstance(event, dict) else None
    return number if type(number) is int else None
