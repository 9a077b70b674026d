"""What the data pipeline leaves in the store: how far it has read, and its alerts. The server only reads these keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from crewel.storage.answers import unless_refused
from crewel.storage.keys import Keys
from crewel.storage.steps import Step
from crewel.storage.store import Store


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the pipeline is with one stream, and how far the stream goes, both at one instant."""

    stream: str
    read: int
    """How many entries the stream had ever got up to what the pipeline has in its tables."""
    added: int
    """How many it ever got."""
    trimmed: int
    """How many of them are gone: always the oldest."""

    @property
    def missed(self) -> int:
        """How many are gone that the pipeline had not read."""
        return max(self.trimmed - self.read, 0)


def progress(k: Keys) -> Step[list[Progress]]:
    """Return how far the pipeline is with the streams; those of which it has told nothing, or not how many it had read, are
    left out. It changes nothing."""
    return Step("followed", (k.positions, k.facts, k.events), (), _progress)


@unless_refused
def _progress(answer: Any) -> list[Progress]:
    found = []
    for position, added, length, stream in answer:
        count = _object(position).get("count")
        if type(count) is int:
            found.append(Progress(stream.decode(), count, added, added - length))
    return found


@dataclass(frozen=True, slots=True)
class Alert:
    """A receiver that has been held back for too long, as the pipeline tells."""

    session: str
    fields: dict[str, Any]


async def alerts(store: Store) -> list[Alert]:
    """Return the alerts in the order of their sessions. What is no alert is left out. Raises StoreError."""
    found: Any = await store.reader.hgetall(store.keys.alerts)
    made = [Alert(name.decode("utf-8", "replace"), _object(value)) for name, value in found.items()]
    return sorted((alert for alert in made if alert.fields), key=lambda alert: alert.session)


def _object(text: bytes | None) -> dict[str, Any]:
    """The JSON object that somebody else has written; an empty one if it is none."""
    try:
        value = orjson.loads(text or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
