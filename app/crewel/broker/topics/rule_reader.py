"""The rules for topics as the settings have them."""

from __future__ import annotations

from typing import Any, Final

from crewel.bayeux.channel import parse
from crewel.errors import SettingsError
from crewel.settings import Settings
from crewel.settings.topic_rules import fields_set, rule_name
from crewel.topics import Rules

_CALLED: Final = {"history.max_entries": "history_max"}
"""Field of a rule -> field of PublishQos, where they differ."""
_KEPT: Final = "groups.keep"


def read_rules(settings: Settings) -> Rules:
    """The rules. Raises SettingsError for one whose pattern is none."""
    rules: dict[str, dict[str, Any]] = {}
    for pattern, rule in settings.topics.items():
        channel = parse(pattern)
        if channel is None or channel.is_meta:
            name = rule_name(pattern, "...")
            raise SettingsError(f"{name}: {pattern!r} is not a channel or pattern, such as /chat/** or /news/sport")
        fields = {_CALLED.get(name, name): value for name, value in fields_set(rule) if name != _KEPT}
        if rule.groups.keep and not (channel.is_broadcast and not channel.is_reply):
            raise SettingsError(f"{rule_name(pattern, _KEPT)}: messages on this channel cannot be shared in a group")
        rules.setdefault(channel.name, {}).update(fields)
    return Rules(rules)
