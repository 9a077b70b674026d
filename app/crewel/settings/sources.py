"""Reads settings: defaults < crewel.toml < environment < `--set`; and changes some while the server runs.

Each source becomes a flat map from dotted name to what was written there, so
that unknown names are noticed alike and each value's source is known.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import InitSettingsSource

from crewel.errors import SettingsError
from crewel.settings.server_settings import Settings
from crewel.settings.table import Declared, declared, declared_as, declared_rules, shown
from crewel.settings.topic_rules import TOPICS, flatten, nested, read_json, rule_name, split_rule_name
from crewel.settings.types import Group

_PREFIX = "CREWEL_"
_OF_PIPELINE = f"{_PREFIX}PIPELINE__"  # options of `crewel pipeline`, which often has the environment of the server
_RULES = _PREFIX + TOPICS.upper()  # the rules for topics, as JSON: their names would not do as names of variables
DEFAULT_FILE = Path("crewel.toml")
OPERATOR = "operator"
"""The source of a value that an operator has set while the server runs."""

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
    # Later layers win, here and in the list below.
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
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        if path is None and isinstance(error, FileNotFoundError):
            return {}
        # Of a directory that this user may not enter, it is not known whether it has such a file.
        is_closed = path is None and isinstance(error, PermissionError)
        advice = ": run this in the server's directory, as its user" if is_closed else ""
        raise SettingsError(f"{file}: cannot be read: {error.strerror}{advice}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: is not TOML: {error}") from None
    layer: Layer = {}
    for group, table in tables.items():
        if group == TOPICS:
            layer |= _rules(flatten, table, f"{file}: {TOPICS}")
        elif isinstance(table, dict):
            layer |= {f"{group}.{name}": value for name, value in table.items()}
        else:
            raise SettingsError(f"{file}: {group}: {unknown(group)}")
    for name in layer:
        require_known(name, f"{file}: {name}")
    return layer


def _read_environment(environ: Mapping[str, str]) -> Layer:
    by_single_underscore = {_PREFIX + known.upper().replace(".", "_"): known for known in declared()}
    layer: Layer = {}
    for variable, text in environ.items():
        if not variable.startswith(_PREFIX) or variable.startswith(_OF_PIPELINE):
            continue
        if variable == _RULES:
            layer |= _rules(read_json, text, variable)
            continue
        if variable in by_single_underscore:
            meant = variable_of(by_single_underscore[variable])
            raise SettingsError(f"{variable}: unknown setting; did you mean {meant}?")
        # Without the double underscore it belongs to another program, such as the
        # CREWEL_PORT that Kubernetes sets for a service of that name.
        if "__" in variable:
            name = variable.removeprefix(_PREFIX).lower().replace("__", ".", 1)
            if declared_as(name) is None:
                raise SettingsError(f"{variable}: {unknown(name, spelled=variable_of)}")
            layer[name] = text
    return layer


def _read_overrides(overrides: Iterable[str]) -> Layer:
    layer: Layer = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        name = name.strip()
        if not equals:
            raise SettingsError(f"--set {override}: expected NAME=VALUE")
        if name == TOPICS:
            layer |= _rules(read_json, text, f"--set {TOPICS}")
            continue
        require_known(name, f"--set {name}")
        rule = split_rule_name(name)
        layer[name if rule is None else rule_name(*rule)] = text
    return layer


def _rules(read: Callable[[Any], Layer], given: Any, place: str) -> Layer:
    try:
        layer = read(given)
    except ValueError as error:
        raise SettingsError(f"{place}: {error}") from None
    for name in layer:
        require_known(name, f"{place}: {name}")
    return layer


def require_known(name: str, place: str) -> None:
    """Raise SettingsError, which suggests the nearest name, if there is no such setting; `place` is where it stands."""
    if declared_as(name) is None:
        raise SettingsError(f"{place}: {unknown(name)}")


def unknown(name: str, known: Iterable[str] = (), spelled: Callable[[str], str] = str) -> str:
    """What is wrong with the name of a setting that there is not, with the nearest one: of those that are `known`, or else of
    all, as `spelled` writes it."""
    rule = split_rule_name(name)
    if rule is not None:
        near = difflib.get_close_matches(rule[1], declared_rules(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(declared_rules())}"
        return f"a rule for topics has no such field; {hint}"
    if name.startswith(f"{TOPICS}."):
        return f"expected a channel or pattern and a field, such as {rule_name('/chat/**', 'history.max_entries')}"
    found = _nearest(name, list(known) or list(declared()))
    return f"unknown setting; did you mean {spelled(found)}?" if found else "unknown setting"


def _nearest(name: str, known: Sequence[str]) -> str:
    """The setting that is most like this name; or whose last part is, for the group is what people leave out or mix up. Empty
    if there is none."""
    last = name.rpartition(".")[2]
    by_last = {full.rpartition(".")[2]: full for full in reversed(known)}
    if last in by_last:
        return by_last[last]
    near = difflib.get_close_matches(name, known, n=1)
    return near[0] if near else next((by_last[each] for each in difflib.get_close_matches(last, by_last, n=1)), "")


def _nested(layer: Layer) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    rules = nested(layer)
    if rules:
        groups[TOPICS] = rules
    for dotted, value in layer.items():
        if split_rule_name(dotted) is None:
            group, _, name = dotted.partition(".")
            groups.setdefault(group, {})[name] = value
    return groups


def _explain(error: ErrorDetails, sources: Mapping[str, str]) -> str:
    name = _name(error["loc"])
    setting = declared_as(name)
    if setting is None:  # a rule over several settings
        return str(error["ctx"]["error"]) if "ctx" in error else error["msg"]
    place = {"env": variable_of(name), "--set": f"--set {name}"}.get(sources[name], name)
    given = "what was given" if setting.secret else repr(error["input"])  # which may hold a password
    return f"{place}: {given} is not possible: expected {_expected(setting, error)}"


def _name(place: tuple[int | str, ...]) -> str:
    parts = [str(part) for part in place]
    if parts[:1] == [TOPICS] and len(parts) > 2:
        return rule_name(parts[1], ".".join(parts[2:]))
    return ".".join(parts[:2])


def variable_of(name: str) -> str:
    """The variable of the environment that sets this setting, or this field of a rule for topics."""
    if split_rule_name(name) is not None:
        return f"{_RULES}: {name}"
    return _PREFIX + name.upper().replace(".", "__")


def change(settings: Settings, asked: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Set these values, by dotted name: typed, or a text as after `--set NAME=`. Returns what was and what is now, as everyone
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
    try:
        settings.model_copy(update=groups).require_fit()
    except ValueError as error:
        raise SettingsError(str(error)) from None
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
    return str(details["ctx"]["error"]) if is_of_group else f"expected {_expected(declared()[name], details)}"


def _expected(setting: Declared, error: ErrorDetails) -> str:
    return f"{setting.expected}, {error['msg']}" if error["type"] == "too_large" else setting.expected
