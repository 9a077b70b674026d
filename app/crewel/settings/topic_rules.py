"""Rules for the topics of all channels that a pattern matches: what a publish has that does not say otherwise.

A rule is not a group of settings, for its pattern is part of its name: `topics."/chat/**".history.max_entries`. Here such
names are read and written, in whatever form they come.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from crewel.settings.types import Group, GroupNames, Number, setting

TOPICS = "topics"
"""What the names of all rules begin with."""

PRIORITIES = {"MIN": 0, "LOW": 3, "NORM": 5, "HIGH": 7, "MAX": 9}
"""The priorities that have a name."""

_NAME = re.compile(
    r'topics\.(?:"(?P<quoted>[^"]+)"|(?P<bare>/.+?))\.(?P<field>(?:history|groups)\.[A-Za-z_]+|[A-Za-z_]+)'
)
_NESTED = {"history": "max_entries", "groups": "keep"}
_UNITS = {"life_time": "life_time_ms", "destroy_delay": "destroy_delay_ms"}


def _priority(given: object) -> object:
    if isinstance(given, bool):
        raise ValueError("a Boolean is not a priority")  # noqa: TRY004 - pydantic collects ValueErrors
    return PRIORITIES.get(given.upper(), given) if isinstance(given, str) else given


class History(Group):
    """The history of a topic."""

    max_entries: Number = setting(0, "How many messages the history keeps. 0: no history.", unit="messages", ge=0)


class Groups(Group):
    """The consumer groups on the pattern of the rule."""

    keep: GroupNames = setting(
        (), "Consumer groups on exactly this pattern whose messages wait while the group has no member."
    )


class TopicRule(Group):
    """What a publish has that does not say otherwise; the names are those of `ext.publish`, written as settings are."""

    persistent: bool = setting(False, "Store each message before the reply to its publish.")
    priority: Annotated[int, BeforeValidator(_priority)] = setting(
        5,
        "Order in queues: messages of higher priority come first.",
        ge=0,
        le=9,
        expected="a whole number from 0 to 9, or one of MIN, LOW, NORM, HIGH, MAX",
    )
    life_time_ms: Number = setting(
        -1, "How long a message lives. 0: the history does not keep it; -1: no limit.", ge=-1
    )
    force_destroy: bool = setting(False, "Remove expired messages from queues too, not only from the history.")
    force_update: bool = setting(True, "false: do not deliver a publish that equals the newest message of the history.")
    readonly: bool = setting(False, "Accept only one message for the topic.")
    destroy_delay_ms: Number = setting(60000, "How long a topic lives when nothing refers to it. -1: no limit.", ge=-1)
    history: History = Field(default_factory=History)
    groups: Groups = Field(default_factory=Groups)
    subscribable: bool = setting(True, "Deliver messages with a destination to subscribers too.")
    replay: bool = setting(False, "Number the messages and keep them for the replay extension.")


def rule_name(pattern: str, field: str) -> str:
    """The name of a rule: `field` is written with dots."""
    return f'{TOPICS}."{pattern}".{field}'


def split_rule_name(name: str) -> tuple[str, str] | None:
    """Pattern and field of a rule, however its name is written: the pattern may do without quotes, and the field may be
    called as on the wire. None for what is no name of a rule."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match["quoted"] or match["bare"], _as_setting(match["field"]))


def _as_setting(field: str) -> str:
    """`lifeTime` is `life_time_ms` here: the names of the wire do."""
    snake = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", field)
    return _UNITS.get(snake, snake)


def flatten(rules: object) -> dict[str, Any]:
    """The rules of a table of tables by their names. Raises ValueError for anything else."""
    layer: dict[str, Any] = {}
    for pattern, fields in _table(rules, "a table for each channel or pattern").items():
        for name, value in _table(fields, f'a table of fields for "{pattern}"').items():
            inner = value if name in _NESTED and isinstance(value, Mapping) else {"": value}
            layer |= {
                rule_name(pattern, _as_setting(f"{name}.{last}" if last else name)): each
                for last, each in inner.items()
            }
    return layer


def _table(given: object, expected: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"expected {expected}")  # noqa: TRY004 - one error for all that does not fit
    return given


def read_json(text: str) -> dict[str, Any]:
    """The rules of such a table that is written as JSON. Raises ValueError."""
    try:
        rules = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    return flatten(rules)


def nested(layer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The rules among these settings, as `Settings.topics` takes them."""
    topics: dict[str, dict[str, Any]] = {}
    for name, value in layer.items():
        found = split_rule_name(name)
        if found is not None:
            pattern, field = found
            group, _, last = field.partition(".")
            fields = topics.setdefault(pattern, {})
            if last:
                fields.setdefault(group, {})[last] = value
            else:
                fields[group] = value
    return topics


def fields_set(rule: TopicRule) -> Iterator[tuple[str, Any]]:
    """The fields that are set in this rule, with their values."""
    for name in TopicRule.model_fields:
        if name in rule.model_fields_set:
            value, inner = getattr(rule, name), _NESTED.get(name)
            if inner is None:
                yield name, value
            elif inner in value.model_fields_set:
                yield f"{name}.{inner}", getattr(value, inner)
