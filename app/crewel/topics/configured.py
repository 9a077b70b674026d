"""What a topic is configured to be: by the first publish, by rules for its channel, and by administrative publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from crewel.qos.publish import DEFAULT, PublishQos

HISTORY_MAX: Final = "historyMax"
"""The one of the settings that the store obeys: a history that is longer is cut."""

_NAMES: Final = {"history_max": HISTORY_MAX, "is_readonly": "readonly", "destroy_delay_ms": "destroyDelay"}
"""Attribute -> name in the store."""


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
        """These, with what the store has; names that nobody knows are left alone."""
        return TopicSettings(*(stored.get(short, getattr(self, name)) for name, short in _NAMES.items()))


USUAL: Final = TopicSettings()
"""Those of a topic of which nobody has said anything."""
