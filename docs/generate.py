"""Writes the reference tables of the documentation from the tables in the code.

A page holds `<!-- generated: NAME -->` and `<!-- end of generated -->`; what
stands between them is replaced. `--check` writes nothing, names the pages that
are stale and exits with 1.
"""

import ast
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path

import interfaces
import measured
import yaml
from interfaces import table

from crewel import metrics
from crewel import topics as topic_life
from crewel.admin.command import Access
from crewel.admin.commands import COMMANDS
from crewel.broker.mailboxes.message_states import TRANSITIONS as MESSAGE_TRANSITIONS
from crewel.broker.mailboxes.message_states import MessageState
from crewel.client.states import TRANSITIONS
from crewel.client.time_units import TIMES
from crewel.conformance.runner import CHECKS
from crewel.delivery.outcomes import OUTCOMES, outcome_of, reported_code
from crewel.delivery.records import EndReason
from crewel.errors import CODES, KNOWN, BayeuxCode, Category, Fault
from crewel.pipeline.schemas import BYTES, PLACE, TABLES
from crewel.pipeline.schemas.events import RUN
from crewel.pipeline.schemas.table import Column
from crewel.qos.connect import CONNECT, DISPATCHER, ConnectQos, OverflowPolicy, Retries
from crewel.qos.fields import Option, text
from crewel.qos.filters import FUNCTIONS
from crewel.qos.publish import DESTINATION, PUBLISH, PublishQos
from crewel.qos.subscribe import HISTORY, SUBSCRIBE, Choice, SubscribeQos
from crewel.settings.table import as_text, declared, declared_rules
from crewel.storage.dead_letter_keys import DEAD_LETTER_KEYS
from crewel.storage.facts import FACTS
from crewel.storage.keys import KEYS
from crewel.storage.node_keys import NODE_KEYS
from crewel.storage.operator_keys import OPERATOR_KEYS
from crewel.storage.streams import EVENTS, GROUP

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()(?!https?:)(?P<target>[^)\s#]+)")
_TOPS = ("app/crewel", "extensions", "pipeline", "static")
_KINDS = {".css", ".js", ".lua", ".py"}
_OF_OTHERS = {"node_modules", "vendor"}
_SHEBANG = re.compile(r"\A#!lua.*\n")
_COMMENT = re.compile(r"/\*+(.*?)\*/|((?://[^\n]*\n)+)", re.DOTALL)
BLOCK = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def settings() -> str:
    """Return the table of all settings, with what each one takes and why it is there."""
    rows = (
        (
            f"`{setting.name}`",
            code(as_text(setting.default)),
            setting.expected,
            "yes" if setting.live else "",
            setting.why,
        )
        for setting in declared().values()
    )
    return table(("name", "default", "takes", "live", "meaning"), rows)


def topic_rules() -> str:
    """Return the table of what a rule for topics can set."""
    rows = (
        (f"`{name}`", code(as_text(field.default)), field.expected, field.why)
        for name, field in declared_rules().items()
    )
    return table(("field", "default", "takes", "meaning"), rows)


def filter_functions() -> str:
    """Return the table of what a filter may call."""
    return table(("function", "result"), ((f"`{name}`", meaning) for name, meaning in FUNCTIONS.items()))


def wire_options(options: Iterable[Option], *records: object) -> str:
    """Return the table of the fields of an `ext`; the default of each is that of the record that it is read into."""
    rows = []
    for option in options:
        default = next(getattr(record, option.name) for record in records if hasattr(record, option.name))
        shown = code(json.dumps(default)) if isinstance(default, bool | int | float | str) and default != "" else ""
        more = f" ([more]({option.page}))" if option.page else ""
        rows.append((code(option.wire), shown, f"{option.meaning}{more}."))
    return table(("field", "default", "meaning"), rows)


def publish_options() -> str:
    """Return the table of `ext.publish`."""
    rows = [row._replace(wire="history.maxEntries") if row.wire == "history" else row for row in PUBLISH.rows]
    return wire_options(rows, PublishQos())


def subscribe_options() -> str:
    """Return the table of `ext.subscribe`."""
    history = [row._replace(wire=f"history.{row.wire}") for row in HISTORY.rows]
    others = [row for row in SUBSCRIBE.rows if row.wire != "history"]
    return wire_options([*history, *others], SubscribeQos(), Choice())


def session_options() -> str:
    """Return the table of `ext.session`."""
    return wire_options(CONNECT.rows, ConnectQos())


def dispatcher_options() -> str:
    """Return the table of the `dispatcher` of `ext.session`."""
    return wire_options(DISPATCHER.rows, Retries())


IN_PYTHON = (
    (", ms;", ", in seconds;"),
    ("then, ms since 1970;", "then: a `datetime` with a time zone, or seconds since 1970;"),
    ("so much later, ms: instead of `deliverAt`", "so much later, in seconds: instead of `deliver_at`"),
)
"""How the meaning of an option on the wire differs in Python."""


def client_options(options: Iterable[Option]) -> str:
    """Return the table of the Python client's keywords."""
    in_seconds = {milliseconds: seconds for seconds, milliseconds in TIMES.items()}
    rows = (
        (
            code(in_seconds.get(option.name, option.name)),
            reduce(lambda meaning, words: meaning.replace(*words), IN_PYTHON, f"{option.meaning}."),
        )
        for option in options
    )
    return table(("option", "meaning"), rows)


def client_publish_options() -> str:
    """Return the table of what a publish of the Python client takes."""
    content_type = Option(
        "", "content_type", text(256), "Media type of the data, such as `image/png`; bytes always have one"
    )
    return client_options(
        [*(row for row in PUBLISH.rows if row.wire != "destination"), *DESTINATION.rows, content_type]
    )


def client_subscribe_options() -> str:
    """Return the table of what a subscription of the Python client takes."""
    return client_options([*HISTORY.rows, *(row for row in SUBSCRIBE.rows if row.wire != "history")])


def topic_states() -> str:
    """Return the table of what the state of a topic follows from."""
    rows = (
        (f"`{state.value}`" if state else "impossible", *("yes" if fact else "" for fact in facts))
        for facts, state in topic_life.STATES.items()
    )
    return table(("state", "configured", "in a history", "in a queue", "subscribed to by name"), rows)


def topic_transitions() -> str:
    """Return the table of what may follow each state of a topic."""
    rows = (
        (f"`{state.value}`", event.value, " or ".join(f"`{each.value}`" for each in follows))
        for state, row in topic_life.TRANSITIONS.items()
        for event, follows in row.items()
    )
    return table(("state", "event", "next state"), rows)


def figures() -> str:
    """Return the table of what /metrics shows."""
    rows = ((f"`{row.name}`", row.kind, code(row.label or ""), row.meaning) for row in metrics.DECLARED)
    return table(("name", "kind", "label", "meaning"), rows)


def alerts() -> str:
    """Return the table of the alert rules, with what to do about each."""
    rules = yaml.safe_load((ROOT / "docs" / "how-to" / "monitoring" / "alerts.yml").read_text("utf-8"))
    names = json.loads((ROOT / "docs" / "stable.json").read_text("utf-8"))["commands"]
    command = re.compile(rf"(?:{'|'.join(sorted((name for name in names if ' ' in name), key=len, reverse=True))})\b")

    def action(text: str) -> str:
        labels = re.sub(r"{{ \$labels[.](\w+) }}", lambda label: label[1].upper(), text)
        return command.sub(r"`\g<0>`", labels)

    rows = (
        (
            f"`{rule['alert']}`",
            rule["labels"]["severity"],
            rule.get("for", "at once").replace("m", " min"),
            action(rule["annotations"]["action"]),
        )
        for group in rules["groups"]
        for rule in group["rules"]
    )
    return table(("alert", "severity", "after", "what to do"), rows)


def errors() -> str:
    """Return the table of the fixed `error` texts of Bayeux replies."""
    return table(("error", "cause"), ((code(error.value), error.meaning) for error in BayeuxCode))


def codes() -> str:
    """Return the table of the dotted codes."""
    return table(("code", "meaning"), ((code(name), meaning) for name, meaning in CODES.items()))


def categories() -> str:
    """Return the table of the first words of dotted codes."""
    return table(("first word", "kind"), ((f"`{each.value}`", each.meaning) for each in Category))


def known_codes() -> str:
    """Return the table of all codes that xmlBlaster knows."""
    rows = (
        (f"`{each.code}`", each.meaning, "" if each.is_final else "yes", reported(each.code))
        for each in sorted(KNOWN, key=lambda each: (list(Category).index(each.category), each.code))
    )
    return table(("code", "meaning", "transient", "reported by a receiver"), rows)


def reported(code: str) -> str:
    """Return what happens to a message whose receiver reports this code, in two words."""
    counts_as = reported_code(code)
    outcome = outcome_of(counts_as).value
    return outcome if counts_as == code else f"{outcome}, as `{counts_as}`"


def outcomes() -> str:
    """Return the table of what a reported failure does."""
    rows = (
        (
            f"`{row.prefix}`" + (f", with `delivery.on_user_error={row.on_user_error}`" if row.on_user_error else ""),
            row.message,
            row.dispatcher,
        )
        for row in OUTCOMES
    )
    return table(("code, and all below it", "the message", "the dispatcher"), rows)


def faults() -> str:
    """Return the table of what makes a whole request or frame worthless."""
    rows = ((fault.text, str(fault.http_status), str(fault.close_code or "ignored")) for fault in Fault)
    return table(("fault", "HTTP status", "WebSocket close code"), rows)


def client_states() -> str:
    """Return the table of the client's session: what follows each state, and on which event."""
    rows = (
        (f"`{state.value}`", "; ".join(f"{event.value}: `{after.value}`" for event, after in row.items()) or "the end")
        for state, row in TRANSITIONS.items()
    )
    return table(("state", "event: next state"), rows)


def facts() -> str:
    """Return the table of the types of facts."""
    return table(("type", "written"), ((f"`{each.name}`", each.written) for each in FACTS))


def fact_fields() -> str:
    """Return the table of what the facts hold."""
    rows = ((f"`{each.name}`", f"`{name}`", field.meaning) for each in FACTS for name, field in each.fields.items())
    return table(("type", "field", "meaning"), rows)


def event_groups() -> str:
    """Return the table of what a group of events holds."""
    return table(("field", "meaning"), ((f"`{name}`", meaning) for name, meaning in GROUP.items()))


def events() -> str:
    """Return the table of the types of events."""
    return table(("type", "level", "written"), ((f"`{each.name}`", f"`{each.level}`", each.written) for each in EVENTS))


def event_fields() -> str:
    """Return the table of what the events hold."""
    rows = ((f"`{each.name}`", f"`{name}`", meaning) for each in EVENTS for name, meaning in each.fields.items())
    return table(("type", "field", "meaning"), rows)


def end_reasons() -> str:
    """Return the table of how a message can end for one receiver."""
    return table(("reason", "meaning"), ((f"`{reason.value}`", reason.meaning) for reason in EndReason))


def overflow_policies() -> str:
    """Return the table of what a full queue does."""
    return table(("policy", "what it does"), ((f"`{policy.value}`", policy.meaning) for policy in OverflowPolicy))


def keys() -> str:
    """Return the table of everything that the store holds."""
    rows = (
        (f"`{key.name}`", key.type, key.meaning, key.fields, key.lifetime, key.written_by, key.read_by)
        for key in (*KEYS, *DEAD_LETTER_KEYS, *NODE_KEYS, *OPERATOR_KEYS)
    )
    return table(("key", "type", "meaning", "content", "lifetime", "written by", "read by"), rows)


def commands() -> str:
    """Return the table of the administrative commands."""
    rows = (
        (
            each.level.value,
            f"`{each.name}`" if each.takes is None else f"`{each.name}=`",
            each.access.value,
            each.needs(writes=each.access is Access.WRITE).word,
            each.meaning if each.takes is None else f"{each.meaning} Takes {each.takes.expected}.",
        )
        for each in COMMANDS
    )
    return table(("object", "property", "access", "role", "meaning"), rows)


def pipeline_tables() -> str:
    """Return each table of the pipeline under a heading of its own; columns that many tables share stand once, before them."""
    shared = (*PLACE, BYTES, *RUN)
    tables = [f"### Shared columns\n\n{pipeline_columns(shared)}"]
    tables += (
        f"### {each.layer}: `{each.name}`, version {each.version}\n\n{each.meaning} The key is"
        f" {', '.join(f'`{name}`' for name in each.key)}."
        + (f" Partitioned by {', '.join(f'`{name}`' for name in each.partitions)}." if each.partitions else "")
        + "\n\n"
        + pipeline_columns(
            [column for column in each.columns if column not in shared],
            [column for column in each.columns if column in shared],
        )
        for each in TABLES.values()
    )
    return "\n\n".join(tables)


def pipeline_columns(columns: Sequence[Column], shared: Sequence[Column] = ()) -> str:
    """Return the columns of a pipeline table, with one row for all that it shares with others."""
    names = ", ".join(f"`{column.name}`" for column in shared)
    rows = [(names, "", "", "", "[shared columns](#shared-columns)")] if shared else []
    rows += (
        (f"`{column.name}`", column.type, column.unit, "yes" if column.nullable else "", column.meaning)
        for column in columns
    )
    return table(("column", "type", "unit", "may be null", "meaning"), rows)


def decisions() -> str:
    """Return the list of the decisions, by number."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = (page.read_text("utf-8").partition("\n")[0].removeprefix("# ") for page in pages)
    return "\n".join(f"- [{title}](decisions/{page.name})" for page, title in zip(pages, titles, strict=True))


def benchmark() -> str:
    """Return the table of what was measured side by side, without the servers that the last run did not have."""
    lines = [("measured", *measured.SERVERS), *measured.rows(measured.RESULTS.read_text("utf-8"))]
    head, *rows = zip(*(column for column in zip(*lines, strict=True) if any(column[1:])), strict=True)
    return table(head, rows)


def subsystems() -> str:
    """Return the table of the subsystems of a broker as its constructor makes them, each of those above it."""
    broker = ROOT / "app" / "crewel" / "broker" / "broker.py"
    tree = ast.parse(broker.read_text("utf-8"))
    modules = {name.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names}
    made = {
        target.attr: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    }
    rows = []
    for name, call in made.items():
        module = modules[ast.unparse(call.func)]
        file = Path("app", *f"{module}.py".split(".")[:-1]).with_suffix(".py")
        used = {each.attr if isinstance(each, ast.Attribute) else each.id for each in names_in(call)}
        below = [f"`{each}`" for each in made if each in used and each != name]
        rows.append((f"`{name}`", f"[{ast.unparse(call.func)}](../{file})", ", ".join(below), _opening(ROOT / file)))
    return table(("attribute", "class", "made of", "what it is"), rows)


def modules() -> str:
    """Return a list for each folder of server, client, pipeline and pages: its files, and what each says first of itself."""
    files = (
        file
        for top in _TOPS
        for file in (ROOT / top).rglob("*")
        if file.suffix in _KINDS
        and file.stem not in ("__init__", "__main__")
        and not _OF_OTHERS & {*file.relative_to(ROOT).parts}
    )
    by_folder = sorted(files, key=lambda file: (file.parent, file.name))
    return "\n\n".join(_listed(*each) for each in itertools.groupby(by_folder, key=lambda file: file.parent))


def _listed(folder: Path, files: Iterable[Path]) -> str:
    where = folder.relative_to(ROOT).as_posix().removeprefix("app/")
    lines = (f"- [`{file.name}`](../{file.relative_to(ROOT)}): {_opening(file)}" for file in files)
    return "\n".join((f"### {where}", "", *lines))


def _opening(file: Path) -> str:
    """Return the first paragraph of a module's docstring or of the comment that a file of a page begins with, or the first
    sentence of the header of a script of the store, in one line."""
    text = file.read_text("utf-8")
    if file.suffix == ".lua":
        text = _SHEBANG.sub("", text)
        lines = itertools.takewhile(lambda line: line.startswith("--"), text.splitlines())
        told = " ".join(line.removeprefix("--").strip() for line in lines).partition(". ")[0].removesuffix(".") + "."
    elif file.suffix == ".py":
        told = ast.get_docstring(ast.parse(text)) or ""
    else:
        found = _COMMENT.match(text)
        told = re.sub(r"^ *(?:\*|//) ?", "", (found[1] or found[2]).strip(), flags=re.MULTILINE) if found else ""
    if not told:
        sys.exit(f"{file.relative_to(ROOT)} does not begin with what it is for")
    return " ".join(told.partition("\n\n")[0].split())


def message_states() -> str:
    """Return the diagram of the states of a message in a mailbox."""
    lines = [f"{each.value:<8} {each.meaning}" for each in MessageState] + [""]
    for state, row in MESSAGE_TRANSITIONS.items():
        for after in dict.fromkeys(row.values()):
            events = [event for event, to in row.items() if to is after]
            for index, event in enumerate(events):
                arrow = f"{state.value} ──▶ {after.value}" if not index else ""
                lines.append(f"{arrow:<20} {event.method:<16} {event.meaning}")
        lines += [""] if row else []
    return "\n".join(("```", *lines[:-1], "```"))


def names_in(call: ast.Call) -> Iterator[ast.Attribute | ast.Name]:
    """Yield the names in the arguments of a call."""
    for argument in call.args:
        yield from (each for each in ast.walk(argument) if isinstance(each, ast.Attribute | ast.Name))


def conformance_checks() -> str:
    """Return the table of the checks of `crewel conformance`."""
    rows = ((f"`{each.id}`", each.level.value, each.section, each.text, each.how) for each in CHECKS.values())
    return table(("check", "level", "section", "statement", "how"), rows)


GENERATORS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "topic-rules": topic_rules,
    "filter-functions": filter_functions,
    "publish-options": publish_options,
    "subscribe-options": subscribe_options,
    "session-options": session_options,
    "dispatcher-options": dispatcher_options,
    "client-publish-options": client_publish_options,
    "client-subscribe-options": client_subscribe_options,
    "message-states": message_states,
    "topic-states": topic_states,
    "topic-transitions": topic_transitions,
    "metrics": figures,
    "alerts": alerts,
    "errors": errors,
    "codes": codes,
    "categories": categories,
    "known-codes": known_codes,
    "outcomes": outcomes,
    "faults": faults,
    "client-states": client_states,
    "facts": facts,
    "fact-fields": fact_fields,
    "event-groups": event_groups,
    "events": events,
    "event-fields": event_fields,
    "end-reasons": end_reasons,
    "overflow-policies": overflow_policies,
    "keys": keys,
    "commands": commands,
    "command-line": interfaces.command_line,
    "rest": interfaces.rest,
    "python-client": interfaces.python_client,
    "python-server": interfaces.python_server,
    "typescript": interfaces.typescript,
    "pipeline-tables": pipeline_tables,
    "decisions": decisions,
    "conformance-checks": conformance_checks,
    "subsystems": subsystems,
    "modules": modules,
    "benchmark": benchmark,
}


def code(text: str) -> str:
    """Return `text` as code in a table cell; nothing stays nothing."""
    return f"`{text}`" if text else ""


def renewed(page: Path) -> str:
    """Return the text of a page with its generated blocks as they should be; the generators name pages from docs/."""
    top = os.path.relpath(ROOT / "docs", page.parent)

    def block(found: re.Match[str]) -> str:
        text = LINK.sub(lambda link: link[1] + os.path.normpath(f"{top}/{link['target']}"), GENERATORS[found["name"]]())
        return f"{found[1]}{text}\n{found[3]}"

    return BLOCK.sub(block, page.read_text("utf-8"))


def main(arguments: list[str]) -> int:
    """Write the stale pages, or with `--check` name them."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "extensions" / "README.md"]
    stale = [page for page in pages if page.exists() and renewed(page) != page.read_text("utf-8")]
    for page in stale:
        if "--check" not in arguments:
            page.write_text(renewed(page), "utf-8")
        print(page.relative_to(ROOT))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
