"""Rules for the topics of many channels: what a publish has that does not say otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from crewel.delivery.publish_qos import DEFAULT, PublishQos

__all__ = ["Rules"]


class Rules:
    """Pattern -> the fields of PublishQos that it sets, by their names there."""

    def __init__(self, rules: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._rules = {pattern: dict(fields) for pattern, fields in (rules or {}).items() if fields}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def apply_to(self, patterns: Iterable[str]) -> bool:
        """Whether one of them is about a channel that these patterns match."""
        return any(pattern in self._rules for pattern in patterns)

    def usual(self, patterns: Iterable[str]) -> PublishQos:
        """What holds for a channel that these patterns match, the widest first: a narrower one has the last word about
        each field that it sets."""
        fields: dict[str, Any] = {}
        for pattern in patterns:
            fields |= self._rules.get(pattern, {})
        return replace(DEFAULT, **fields) if fields else DEFAULT
