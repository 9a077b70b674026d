"""Every setting of Crewel, with the source of its value and its meaning.

`server`, `storage`, `access` and `topic_rules` declare the settings with their types, units, defaults and bounds; `sources`
reads crewel.toml, the environment and `--set`; `table` lists them. Nothing here knows the effect of a setting.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crewel.errors import SettingsError as SettingsError
    from crewel.settings.server_settings import Settings as Settings
    from crewel.settings.sources import load as load

_HOMES = {
    "SettingsError": "crewel.errors",
    "Settings": "crewel.settings.server_settings",
    "load": "crewel.settings.sources",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a program that needs the address of the store alone needs no model of all
    settings."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
