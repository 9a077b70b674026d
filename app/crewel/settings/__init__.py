"""Every setting of Crewel, where its value comes from, and what each one means.

`server`, `storage`, `access` and `topic_rules` declare the settings with their types, units, defaults and bounds; `sources`
reads crewel.toml, the environment and `--set`; `table` lists them. Nothing here knows what a setting does.
"""

from crewel.errors import SettingsError as SettingsError
from crewel.settings.server import Settings as Settings
from crewel.settings.sources import load as load
