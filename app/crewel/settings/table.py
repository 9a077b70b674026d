"""The declared settings as a table, for error messages, `crewel settings` and the docs."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from crewel.settings.server_settings import Settings
from crewel.settings.topic_rules import TOPICS, TopicRule, fields_set, rule_name, split_rule_name
from crewel.settings.types import Expected, Group

_PASSWORD = re.compile(r"(?<=://)([^:@/?]*:)[^/?]*(?=@)|([?&](?:sentinel_)?password=)[^&]*")
_CREDENTIALS = re.compile(r"(?<=://)[^/?#]*(?=@)|(?<=\?).+", re.DOTALL)
_NUMBERS = {"ms": "milliseconds", "s": "seconds"}
_UNIT = re.compile(r"_(ms|bytes)(?:_per_\w+)?$")


@dataclass(frozen=True, slots=True)
class Declared:
    """One setting as declared. `default` is the typed value, `expected` words for what fits."""

    name: str
    unit: str
    default: Any
    live: bool
    secret: bool
    why: str
    expected: str


@cache
def declared() -> dict[str, Declared]:
    """Return all settings by dotted name, in the order of their declaration."""
    table: dict[str, Declared] = {}
    for group_name, group_field in Settings.model_fields.items():
        if group_name != TOPICS:
            table |= _declared_in(group_field, f"{group_name}.")
    return table


@cache
def declared_rules() -> dict[str, Declared]:
    """Return what a rule for topics can set, by its name in the rule, in the order of their declaration."""
    return _declared_in(TopicRule, "")


def declared_as(name: str) -> Declared | None:
    """Return how the setting or the rule of this name is declared; None if there is no such one."""
    rule = split_rule_name(name)
    return declared().get(name) if rule is None else declared_rules().get(rule[1])


def _declared_in(group: object, prefix: str) -> dict[str, Declared]:
    if isinstance(group, FieldInfo):
        group = group.annotation
    assert isinstance(group, type)
    assert issubclass(group, Group)
    table: dict[str, Declared] = {}
    for name, field in group.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Group):
            table |= _declared_in(field, f"{prefix}{name}.")
        else:
            table[prefix + name] = _declare(prefix + name, field)
    return table


def rules_of(settings: Settings) -> dict[str, Any]:
    """Return the rules for topics that were given, by name, with their values."""
    return {
        rule_name(pattern, field): value
        for pattern, rule in settings.topics.items()
        for field, value in fields_set(rule)
    }


def value_of(settings: Settings, name: str) -> Any:
    """Return the value that the setting with this dotted name has in `settings`."""
    group, _, last = name.partition(".")
    return getattr(getattr(settings, group), last)


def shown(settings: Settings, name: str) -> Any:
    """Return the value of a setting as everyone may see it: a password in it is replaced by ***. Of a web address, whose path
    may be all the secret that there is, the server is left."""
    value = value_of(settings, name)
    if name == "security.jwt_keys" and value:
        return without_credentials(value)
    if not value or not declared()[name].secret:
        return value
    if name.endswith("webhook"):
        parts = urlsplit(value)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/***"
    return _PASSWORD.sub(r"\1\2***", value) if "://" in value else "***"


def without_credentials(keys: str) -> str:
    """The address of a key set without user, password and query; the name of a file as it is."""
    return _CREDENTIALS.sub("***", keys) if "://" in keys else keys


def rows(settings: Settings) -> list[dict[str, Any]]:
    """Return all settings and rules for topics as JSON can say them, in the order of declaration. Each has `name`, `value`,
    `unit`, `default`, `source`, `live` (whether it can change while the server runs) and `why`."""
    values = {name: shown(settings, name) for name in declared()} | rules_of(settings)
    return [
        {
            "name": name,
            "value": value,
            "unit": setting.unit,
            "default": setting.default,
            "source": settings.source(name),
            "live": setting.live,
            "why": setting.why,
        }
        for name, value in values.items()
        if (setting := declared_as(name)) is not None
    ]


def as_text(value: Any) -> str:
    """Return a value as it can be written after `--set NAME=`; nothing set is the empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _declare(name: str, field: FieldInfo) -> Declared:
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    named = _UNIT.search(name)  # the unit of a time or a size is in its name
    unit = str(extra["unit"]) or (named[1] if named else "")
    return Declared(
        name=name,
        unit=unit,
        default=field.default,
        live=bool(extra["live"]),
        secret=bool(extra["secret"]),
        why=field.description or "",
        expected=str(extra["expected"] or _expected(field, unit)),
    )


def _expected(field: FieldInfo, unit: str) -> str:
    words = next((mark.text for mark in field.metadata if isinstance(mark, Expected)), None)
    if words is not None:
        return words
    if field.annotation is bool:
        return "true or false"
    if field.annotation is int:
        return _expected_number(field, unit)
    return "one of " + ", ".join(get_args(field.annotation))


def _expected_number(field: FieldInfo, unit: str) -> str:
    low = next((mark.ge for mark in field.metadata if isinstance(mark, Ge)), None)
    high = next((mark.le for mark in field.metadata if isinstance(mark, Le)), None)
    of = f" of {_NUMBERS.get(unit, unit)}" if unit else ""
    if high is not None:
        return f"a whole number{of} from {low} to {high}"
    return f"a whole number{of}, {low} or more"
