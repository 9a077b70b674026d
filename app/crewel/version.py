"""The version of Crewel, which `pyproject.toml` says: for `--version`, the metrics, the REST interface and the pages."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("crewel")
