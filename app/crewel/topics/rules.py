"""Rules for the topics of many channels: what a publish has that does not say otherwise, and what else is done there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from crewel.qos.publish import DEFAULT, PublishQos

REPLAY: Final = "replay"
"""The one field of a rule that no publish has: whether its messages are numbered and can be asked for by number."""


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
