"""Reads settings: defaults < crewel.toml < environment < `--set`.

Each source becomes a flat map from dotted name to what was written there, so
that unknown names are noticed alike and each value's source is known.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import InitSettingsSource

from crewel.errors import SettingsError
from crewel.settings.declared import Settings
from crewel.settings.table import Declared, declared

_PREFIX = "CREWEL_"
DEFAULT_FILE = Path("crewel.toml")

Layer = dict[str, Any]


def load(
    toml_path: Path | str | None = None,
    overrides: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings made of all sources.

    Without `toml_path`, crewel.toml of the working directory is read if there
    is one. `overrides` are the texts of `--set`: "bayeux.timeout_ms=1000".
    `environ` is the process's own unless given. Raises SettingsError, whose
    text is one line for the person who wrote the value.
    """
    layers = {
        "toml": _read_toml(toml_path),
        "env": _read_environment(os.environ if environ is None else environ),
        "--set": _read_overrides(overrides),
    }
    sources = {name: source for source, layer in layers.items() for name in layer}
    strongest_first = tuple(InitSettingsSource(Settings, _nested(layer)) for layer in reversed(layers.values()))
    try:
        settings = Settings(_build_sources=(strongest_first, {}))
    except ValidationError as error:
        raise SettingsError(_explain(error.errors()[0], sources)) from None
    settings.remember_sources(sources)
    return settings


def _read_toml(path: Path | str | None) -> Layer:
    file = DEFAULT_FILE if path is None else Path(path)
    if path is None and not file.exists():
        return {}
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: is not TOML: {error}") from None
    layer: Layer = {}
    for group, table in tables.items():
        if not isinstance(table, dict):
            raise SettingsError(f"{file}: {group}: {_unknown(group)}")
        layer |= {f"{group}.{name}": value for name, value in table.items()}
    for name in layer:
        _require_known(name, f"{file}: {name}")
    return layer


def _read_environment(environ: Mapping[str, str]) -> Layer:
    by_single_underscore = {_PREFIX + known.upper().replace(".", "_"): known for known in declared()}
    layer: Layer = {}
    for variable, text in environ.items():
        if not variable.startswith(_PREFIX):
            continue
        if variable in by_single_underscore:
            meant = _variable(by_single_underscore[variable])
            raise SettingsError(f"{variable}: unknown setting; did you mean {meant}?")
        # Without the double underscore it is somebody else's, such as the
        # CREWEL_PORT that Kubernetes sets for a service of that name.
        if "__" in variable:
            name = variable.removeprefix(_PREFIX).lower().replace("__", ".", 1)
            _require_known(name, variable)
            layer[name] = text
    return layer


def _read_overrides(overrides: Iterable[str]) -> Layer:
    layer: Layer = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        name = name.strip()
        if not equals:
            raise SettingsError(f"--set {override}: expected NAME=VALUE")
        _require_known(name, f"--set {name}")
        layer[name] = text
    return layer


def _require_known(name: str, place: str) -> None:
    if name not in declared():
        raise SettingsError(f"{place}: {_unknown(name)}")


def _unknown(name: str) -> str:
    known = list(declared())
    near = difflib.get_close_matches(name, known, n=1)
    if not near:
        last = name.rpartition(".")[2]
        near = [full for full in known if full.rpartition(".")[2] == last][:1]
    return f"unknown setting; did you mean {near[0]}?" if near else "unknown setting"


def _nested(layer: Layer) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for dotted, value in layer.items():
        group, _, name = dotted.partition(".")
        groups.setdefault(group, {})[name] = value
    return groups


def _explain(error: ErrorDetails, sources: Mapping[str, str]) -> str:
    name = ".".join(str(part) for part in error["loc"][:2])
    setting: Declared | None = declared().get(name)
    if setting is None:  # a rule over several settings
        return str(error["ctx"]["error"]) if "ctx" in error else error["msg"]
    place = {"env": _variable(name), "--set": f"--set {name}"}.get(sources[name], name)
    given = "what was given" if setting.secret else repr(error["input"])  # which may hold a password
    return f"{place}: {given} is not possible: expected {setting.expected}"


def _variable(name: str) -> str:
    return _PREFIX + name.upper().replace(".", "__")
