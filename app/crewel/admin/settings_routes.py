"""The REST resource of the settings: what the server runs with, and changes while it runs."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.routes import Ask, Field, Route
from crewel.errors import IllegalArgument, SettingsError
from crewel.settings.changes import change
from crewel.settings.table import declared, rows


def _any(value: object) -> object:
    return value


async def _list(ask: Ask) -> dict[str, Any]:
    return {"settings": rows(ask.admin.broker.settings)}


async def _change(ask: Ask) -> dict[str, Any]:
    settings = ask.admin.broker.settings
    try:
        changed = change(settings, ask.fields)
    except SettingsError as error:
        raise IllegalArgument("settings", str(error)) from None
    for name, (before, after) in changed.items():
        ask.admin.note(ask.who, "changed a setting", setting=name, before=before, after=after)
    return {"settings": [row for row in rows(settings) if row["name"] in ask.fields]}


SETTINGS_ROUTES: Final = (
    Route(
        "GET",
        "/settings",
        "The settings that the server runs with.",
        _list,
        "`settings`, a list: `name`, `value`, `unit`, `default`, `source` (default, toml, env, --set, or operator for one that"
        " was changed while the server runs), `live` (whether it can be) and `why`. Secrets are ***.",
    ),
    Route(
        "PATCH",
        "/settings",
        "Change settings while the server runs: all that are given, or none. They hold until it ends.",
        _change,
        "`settings`, as above, of those that were given.",
        body=tuple(Field(each.name, _any, {}, each.why) for each in declared().values()),
    ),
)
