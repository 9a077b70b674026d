"""Records the names that each version of 1.x keeps: docs/reference/stability.md says which, docs/stable.json has them.

It adds new names to the record, and removes none: that is an edit by hand, in a new major version. `--check` writes nothing,
prints what has gone and what is not recorded, and exits with 1 if there is anything.
"""

import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from interfaces import MEMBERS, SERVER_PARTS
from typer.main import get_command

import crewel
from crewel import client, metrics
from crewel.admin.commands import COMMANDS
from crewel.admin.rest import ROUTES
from crewel.admin.route import document
from crewel.cli.main import app
from crewel.client import sync
from crewel.errors import KNOWN, BayeuxCode
from crewel.pipeline.schemas import TABLES
from crewel.qos.connect import CONNECT, DISPATCHER
from crewel.qos.publish import DESTINATION, PUBLISH
from crewel.qos.subscribe import HISTORY, SUBSCRIBE
from crewel.settings.table import declared, declared_rules
from crewel.storage.facts import FACTS
from crewel.storage.streams import EVENTS, GROUP

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "docs" / "stable.json"
_EXPORT: Final = re.compile(r"^export (?:declare )?(?:class|interface|function|const|type) (\w+)", re.MULTILINE)
_BODY: Final = re.compile(r"^export (?:declare )?(?:class|interface) (\w+)[^{]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_MEMBER: Final = re.compile(r"^    (?:readonly |static |get )*(\w+)\??[(:<]", re.MULTILINE)


def _settings() -> Iterator[str]:
    yield from declared()
    yield from (f"topics.rules: {name}" for name in declared_rules())


def _wire() -> Iterator[str]:
    fields = {
        "ext.session": CONNECT,
        "ext.session.dispatcher": DISPATCHER,
        "ext.publish": PUBLISH,
        "ext.publish.destination": DESTINATION,
        "ext.subscribe": SUBSCRIBE,
        "ext.subscribe.history": HISTORY,
    }
    yield from (f"{place}.{row.wire}" for place, rows in fields.items() for row in rows.rows)
    yield from (f"error {each.value}" for each in BayeuxCode)
    yield from (f"code {each.code}" for each in KNOWN)
    yield from (f"__cmd:{each.level.value}/?{each.name}" for each in COMMANDS)


def _commands(command: Any = None, words: str = "crewel") -> Iterator[str]:
    command = command or get_command(app)
    yield words
    for each in command.params:
        names = [*each.opts, *each.secondary_opts] if each.param_type_name == "option" else [each.name.upper()]
        yield from (f"{words} {name}" for name in names if not getattr(each, "hidden", False))
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{words} {name}")


def _rest() -> Iterator[str]:
    for path, methods in document(ROUTES, "")["paths"].items():
        for method, operation in methods.items():
            place = f"{method.upper()} {path}"
            yield place
            yield from (f"{place} {each['in']} {each['name']}" for each in operation.get("parameters", ()))
            content = operation.get("requestBody", {}).get("content", {}).values()
            yield from (f"{place} body {name}" for each in content for name in each["schema"].get("properties", ()))


def _figures() -> Iterator[str]:
    yield from (f"{row.name}{{{row.label or ''}}}" for row in metrics.DECLARED)


def _tables() -> Iterator[str]:
    yield from (f"{each.layer}.{each.name}.{column.name}" for each in TABLES.values() for column in each.columns)
    yield from (f"fact {each.name}.{field}" for each in FACTS for field in each.fields)
    yield from (f"event {each.name}.{field}" for each in EVENTS for field in (*GROUP, *each.fields))


def _python() -> Iterator[str]:
    names = {"crewel": [name for part in SERVER_PARTS.values() for name in part]}
    names |= {each.__name__: [name for name in vars(each) if name[0].isupper()] for each in (client, sync)}
    for module in (crewel, client, sync):
        for name in names[module.__name__]:
            path = f"{module.__name__}.{name}"
            yield path
            yield from (f"{path}.{member}" for member in _members(path, getattr(module, name)))


def _members(path: str, value: object) -> Iterable[str]:
    """The members that the reference shows."""
    if path in MEMBERS or not inspect.isclass(value):
        return MEMBERS.get(path, ())
    return {member for member in (*vars(value), *inspect.get_annotations(value)) if not member.startswith("_")}


def _is_there(name: str) -> bool:
    """Whether a member of Python that a class had itself is one of its base now."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def _javascript() -> Iterator[str]:
    for file in sorted((ROOT / "browser").glob("*.d.ts")):
        text = file.read_text("utf-8")
        module = file.name.removesuffix(".d.ts")
        yield from (f"{module}.{name}" for name in _EXPORT.findall(text))
        for name, body in _BODY.findall(text):
            yield from (f"{module}.{name}.{member}" for member in _MEMBER.findall(body))


KINDS: Final[dict[str, Callable[[], Iterable[str]]]] = {
    "wire": _wire,
    "settings": _settings,
    "commands": _commands,
    "rest": _rest,
    "metrics": _figures,
    "tables": _tables,
    "python": _python,
    "javascript": _javascript,
}


def lost(recorded: Mapping[str, set[str]], now: Mapping[str, set[str]]) -> list[str]:
    """The names of the record that this version has no more."""
    return [
        name
        for kind in KINDS
        for name in sorted(recorded[kind] - now[kind])
        if kind != "python" or not _is_there(name)  # a setting may have the name of a module of Python
    ]


def main(arguments: list[str]) -> int:
    """Add the new names to the record, or with `--check` compare both."""
    now = {kind: set(names()) for kind, names in KINDS.items()}
    recorded = {kind: set(names) for kind, names in json.loads(RECORD.read_text("utf-8")).items()}
    if "--check" in arguments:
        gone = [f"gone: {name}" for name in lost(recorded, now)]
        new = [f"new, for `make tables`: {name}" for kind in KINDS for name in sorted(now[kind] - recorded[kind])]
        print("\n".join(gone + new))
        return 1 if gone or new else 0
    names = {kind: sorted(recorded[kind] | now[kind]) for kind in KINDS}
    RECORD.write_text(json.dumps(names, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
