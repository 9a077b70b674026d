"""The reference of what can be called: commands, REST resources, Python and TypeScript names, for docs/generate.py."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from typer.main import get_command

import crewel
from crewel import client
from crewel.admin.rest import ROUTES
from crewel.admin.route import API, document
from crewel.cli.examples import EXAMPLES
from crewel.cli.main import app
from crewel.client import sync

ROOT = Path(__file__).parents[1]
_CLIENT_PARTS: Final = {
    "client": "Client",
    "publish_options": "Publishing",
    "subscription": "Subscriptions",
    "client_presence": "Presence",
    "client_message": "Messages",
    "consumer": "Workers",
    "worker_options": "Options of a worker",
    "app": "Programs of workers",
    "outbox": "Outbox",
    "inbox": "Inbox",
    "client_responder": "Requests",
    "resume": "Secrets of sessions",
    "states": "States",
    "retry": "Backoff",
    "client_extension": "Extensions",
    "errors": "Errors",
}
"""The headings of the names of `crewel.client`, by the modules that define them."""
MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "crewel.Message": ("data", "ext", "client_id"),
    "crewel.Broker": (
        "publish",
        "publish_stored",
        "send",
        "deliver",
        "disconnect",
        "session",
        "transports",
    ),
    "crewel.client.Consumer": ("run", "batch", "stop", "close", "client", "fetched", "retrying", "invalid"),
    "crewel.DeadLetter": ("as_json",),
    "crewel.client.Outbox": ("waiting", "drained", "refused", "forget_refused"),
    "crewel.Session": ("subject", "is_operator", "attributes", "deliver", "disconnect", "advise"),
    "crewel.client.Presence": ("members", "id", "enter", "update", "leave", "dropped"),
    "crewel.client.Subscription": (
        "receive",
        "unsubscribe",
        "position",
        "recovered",
        "queued",
        "dropped",
        "invalid",
        "is_ended",
    ),
}
"""The members of these classes that applications use; the others are for the rest of the package."""
SERVER_PARTS: Final = {
    "Services": ("Service", "Message", "Accepted", "Session", "DeadLetter", "RemoteCallError", "Broker"),
    "Access rules": ("SecurityPolicy", "Refusal", "Identity", "Operation", "GRANT", "IGNORE", "Deny"),
    "Extensions": ("Extension", "SessionPart"),
}
_TYPES: Final = ("connect", "session", "update", "request", "outbox", "presence")
"""The modules of @crewel/client, in the order of docs/reference/browser.md."""
_WIDTH: Final = 100
"""Characters in a line of an example."""
_EVERYWHERE: Final = ("200", "400", "401", "403", "429", "503")


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def command_line() -> str:
    """Return each command with its usage, its help and its options."""
    return "\n\n".join(_command(words, command) for words, command in _commands(get_command(app), ("crewel",)))


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    named = getattr(command, "commands", None)
    if named is None or command.invoke_without_command:
        yield words, command
    for name, inner in (named or {}).items():
        yield from _commands(inner, (*words, name))


def _command(words: tuple[str, ...], command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join([*words, *(_argument(each) for each in arguments), *(["[OPTIONS]"] if options else [])])
    rows = [(f"`{_argument(each)}`", "", _sentence(each.help)) for each in arguments if each.help]
    rows += [(_option(each), _default(each), _sentence(each.help)) for each in options]
    parts = [f"## `{' '.join(words)}`", f"```text\n{usage}\n```", " ".join((command.help or "").split())]
    example = EXAMPLES.get(" ".join(words[1:]))
    parts += [f"```console\n$ {example}\n```"] if example else []
    return "\n\n".join([*parts, *([table(("argument", "default", "meaning"), rows)] if rows else [])])


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _option(parameter: Any) -> str:
    takes = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.rpartition('_')[2].upper()}"
    names = ", ".join(f"`{name}{takes}`" for name in [*parameter.opts, *parameter.secondary_opts])
    return f"{names} (also `{parameter.envvar}`)" if parameter.envvar else names


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    return f"`{default}`" if isinstance(default, int | float | str) and default not in ("", True, False) else ""


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def rest() -> str:
    """Return each REST resource with its parameters and answers, as the OpenAPI document has them."""
    paths: Mapping[str, Mapping[str, Any]] = document(ROUTES, "")["paths"]
    sections: dict[str, list[str]] = {}
    for path, methods in paths.items():
        below = path.removeprefix(API)
        for method, operation in methods.items():
            sections.setdefault(below.split("/")[1], []).append(_resource(method.upper(), below, operation))
    return "\n\n".join(f"## `/{name}`\n\n" + "\n\n".join(found) for name, found in sections.items())


def _resource(method: str, path: str, operation: Mapping[str, Any]) -> str:
    role = next((each["token"][0] for each in operation["security"]), "")
    needs = f"Needs the role `{role}`." if role else "Needs no token."
    answers: Mapping[str, Any] = operation["responses"]
    further = {status: each["description"] for status, each in answers.items() if status not in _EVERYWHERE}
    parts = [f"### `{method} {path}`", f"{operation['summary']} {needs}", *_takes(operation)]
    parts.append(
        "\n".join([f"- 200: {answers['200']['description']}", *(f"- {_answer(*each)}" for each in further.items())])
    )
    return "\n\n".join([*parts, f"```http\n{_example(method, path, operation)}\n```"])


def _example(method: str, path: str, operation: Mapping[str, Any]) -> str:
    """The example of a request, and below an empty line some of its answer."""
    given = [each for each in operation.get("parameters", ()) if "example" in each]
    for each in given:
        path = path.replace(f"{{{each['name']}}}", str(each["example"]))
    query = [f"{each['name']}={_in_query(each['example'])}" for each in given if each["in"] == "query"]
    request = "?".join([f"{method} {API}{path}", *(["&".join(query)] if query else [])])
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    (answer,) = operation["responses"]["200"]["content"].values()
    sent = [json.dumps(body["example"])] if "example" in body else []
    return "\n".join([request, *sent, "", json.dumps(answer["example"])])


def _in_query(value: Any) -> str:
    return quote(value if isinstance(value, str) else json.dumps(value), safe="/*,:")


def _answer(status: str, meaning: str) -> str:
    return f"{status}: {meaning}"


def _takes(operation: Mapping[str, Any]) -> Iterator[str]:
    fields = [
        (each["name"], each["in"], each["schema"], each["description"]) for each in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    fields += [(name, "body", schema, schema["description"]) for name, schema in body.get("properties", {}).items()]
    if len(fields) > 40:
        yield "The fields of the body are the live [settings](reference/settings.md)."
    elif fields:
        rows = ((f"`{name}`", place, _type(schema), meaning) for name, place, schema, meaning in fields)
        yield table(("field", "in", "type", "meaning"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array":
        return f"array of {schema.get('items', {}).get('type', 'any')}"
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = f", {low} to {high}" if low is not None and high is not None else ""
    return f"{kind}{bounds}" + (f", default `{schema['default']}`" if "default" in schema else "")


def python_client() -> str:
    """Return a block of mkdocstrings for each public name of `crewel.client`, below the heading of its module."""
    found: dict[str, list[str]] = {heading: [] for heading in _CLIENT_PARTS.values()}
    for home, name in re.findall(r"^from crewel\.client\.(\w+) import (\w+)", _text(client.__file__), re.MULTILINE):
        found[_CLIENT_PARTS[home]].append(name)
    waiting = re.findall(r"^from crewel\.client\.sync\.\w+ import (\w+)", _text(sync.__file__), re.MULTILINE)
    return "\n\n".join([_headed("crewel.client", found), _headed("crewel.client.sync", {"Without asyncio": waiting})])


def python_server() -> str:
    """Return a block of mkdocstrings for each public name of `crewel`, below its heading."""
    imported = re.findall(r"^    from [\w.]+ import (\w+)", _text(crewel.__file__), re.MULTILINE)
    listed = [name for names in SERVER_PARTS.values() for name in names]
    assert sorted(imported) == sorted(listed), "a public name of `crewel` has no heading"
    return _headed("crewel", SERVER_PARTS)


def _block(path: str) -> str:
    """Return the block of one name, with the members that are for applications if the class has others too."""
    members = MEMBERS.get(path)
    return f"::: {path}" + (f"\n    options:\n      members: [{', '.join(members)}]" if members else "")


def _headed(package: str, found: Mapping[str, Iterable[str]]) -> str:
    """Return a section for each heading: how its names are imported, and their blocks."""
    return "\n\n".join(
        "\n\n".join([f"## {heading}", _imports(package, names), *(_block(f"{package}.{name}") for name in names)])
        for heading, names in found.items()
    )


def _imports(package: str, names: Iterable[str]) -> str:
    """Return the statement that imports these names, as the formatter writes it."""
    line = f"from {package} import {', '.join(names)}"
    if len(line) > _WIDTH:
        line = f"from {package} import (\n" + "".join(f"    {name},\n" for name in names) + ")"
    return f"```python\n{line}\n```"


def typescript() -> str:
    """Return the declarations of `@crewel/client`, module by module."""
    return "\n\n".join(
        f"### {heading}\n\n```ts\n{_text(ROOT / 'browser' / f'{name}.d.ts').strip()}\n```"
        for name, heading in [*((each, f"{each}.js") for each in _TYPES), ("messages", "Messages and replies")]
    )


def _text(file: str | Path | None) -> str:
    assert file is not None
    return Path(file).read_text("utf-8")
