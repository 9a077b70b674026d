"""What a topic is configured to be: by the first publish, by rules for its channel, and by administrative publishes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from crewel.qos.publish import DEFAULT, PublishQos

HISTORY_MAX: Final = "historyMax"
"""The one of the settings that the store obeys: a history that is longer is cut."""

_NAMES: Final = {"history_max": HISTORY_MAX, "is_readonly": "readonly", "destroy_delay_ms": "destroyDelay"}
"""Attribute -> name in the store."""
REPLAY: Final = "replay"
"""The one field of a rule that no publish has: whether its messages are numbered and can be asked for by number."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The part of a PublishQos that is about its topic."""

    history_max: int = DEFAULT.history_max
    """How many messages the history keeps; 0: there is none."""
    is_readonly: bool = DEFAULT.readonly
    """Whether it takes no second message."""
    destroy_delay_ms: int = DEFAULT.destroy_delay_ms
    """How long it lives when nothing refers to it; -1: for ever."""

    @classmethod
    def of(cls, qos: PublishQos) -> TopicSettings:
        """What a publish asks for. What cannot be overwritten must be there to be seen: a topic that takes one message
        only keeps at least that one."""
        history_max = max(qos.history_max, 1) if qos.readonly else qos.history_max
        return cls(history_max, qos.readonly, qos.destroy_delay_ms)

    def differing(self, usual: TopicSettings) -> dict[str, Any]:
        """What is not as usual, as it is stored: JSON. What is as the rules say is not stored with the topic, so that it
        follows the rules when they change."""
        return {
            stored: getattr(self, name)
            for name, stored in _NAMES.items()
            if getattr(self, name) != getattr(usual, name)
        }

    def with_stored(self, stored: Mapping[str, Any]) -> TopicSettings:
        """These, with what the store has; unknown names are ignored."""
        return TopicSettings(*(stored.get(short, getattr(self, name)) for name, short in _NAMES.items()))


USUAL: Final = TopicSettings()
"""Those of a topic that was not configured."""


class Rules:
    """Pattern -> the fields of PublishQos that it sets, by their names there, and `REPLAY`."""

    def __init__(self, rules: Mapping[str, Mapping[str, Any]]) -> None:
        self._rules = {pattern: dict(fields) for pattern, fields in rules.items() if fields}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def apply_to(self, patterns: Iterable[str]) -> bool:
        """Whether one of them is about a channel that these patterns match."""
        return any(pattern in self._rules for pattern in patterns)

    def usual(self, patterns: Iterable[str]) -> PublishQos:
        """What holds for a publish on a channel that these patterns match, the widest first: a narrower one has the last word
        about each field that it sets."""
        fields = self._fields(patterns)
        fields.pop(REPLAY, None)
        return replace(DEFAULT, **fields) if fields else DEFAULT

    def is_replayed(self, patterns: Iterable[str]) -> bool:
        """Whether the messages of such a channel are numbered."""
        return bool(self._fields(patterns).get(REPLAY, False))

    def _fields(self, patterns: Iterable[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for pattern in patterns:
            fields |= self._rules.get(pattern, {})
        return fields
