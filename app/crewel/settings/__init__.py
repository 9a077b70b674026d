"""Every setting of Crewel, where its value comes from, and what each one means.

`declared` owns the names, types, units, defaults and bounds; `sources` reads
crewel.toml, the environment and `--set`; `table` lists the settings for people
and for the documentation. Nothing here knows what a setting does.
"""

from crewel.errors import SettingsError
from crewel.settings.declared import Settings
from crewel.settings.sources import load

__all__ = ["Settings", "SettingsError", "load"]
