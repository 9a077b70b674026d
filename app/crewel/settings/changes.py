"""Settings that change while the server runs: all that are asked for at once, or none."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from crewel.errors import SettingsError
from crewel.settings.declared import Settings
from crewel.settings.kinds import Group
from crewel.settings.sources import require_known
from crewel.settings.table import declared, shown

OPERATOR = "operator"
"""The source of a value that an operator has set while the server runs."""


def change(settings: Settings, asked: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Set these values, by dotted name: typed, or a text as after `--set NAME=`. Returns what was and what is now, as everybody
    may see it, of those that differ. They hold until the server ends. Raises SettingsError, and then nothing has changed."""
    groups: dict[str, Group] = {}
    for name, value in asked.items():
        require_known(name, name)
        if name not in declared() or not declared()[name].live:
            raise SettingsError(f"{name}: cannot change while the server runs; set it for the next start")
        group, _, field = name.partition(".")
        changed = groups.setdefault(group, getattr(settings, group).model_copy())
        try:
            setattr(changed, field, value)
        except ValidationError as error:
            given = "what was given" if declared()[name].secret else repr(value)
            raise SettingsError(f"{name}: {given} is not possible: {_why(name, error)}") from None
    before = {name: shown(settings, name) for name in asked}
    for name in asked:
        group, _, field = name.partition(".")
        setattr(getattr(settings, group), field, getattr(groups[group], field))
    settings.remember_sources({**settings.sources, **dict.fromkeys(asked, OPERATOR)})
    after = {name: shown(settings, name) for name in asked}
    return {name: (before[name], after[name]) for name in asked if before[name] != after[name]}


def _why(name: str, error: ValidationError) -> str:
    details = error.errors()[0]
    is_of_group = details["type"] == "value_error" and not details["loc"]
    return str(details["ctx"]["error"]) if is_of_group else f"expected {declared()[name].expected}"
