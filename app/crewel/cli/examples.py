"""An example for the help of each command. tests/cli/test_examples.py reads each as the command line does."""

import shlex
from collections.abc import Mapping
from typing import Any, Final

import typer

from crewel.admin.operation import OPERATIONS, Level, Operation

_NAMES: Final = {Level.SESSION: "joe/1", Level.SUBJECT: "joe", Level.TOPIC: "/kitchen/orders"}


def _of_operation(operation: Operation) -> str:
    """The example of its row, as it is typed."""
    yes = ["--yes"] if operation.verb == "erase" else []
    options = [word for name, text in operation.example.fields.items() for word in (f"--{name}", text)]
    return shlex.join(["crewel", f"{operation.level}s", operation.verb, _NAMES[operation.level], *yes, *options])


EXAMPLES: Final[Mapping[str, str]] = {
    "serve": "crewel serve --port 8081 --data-dir /var/lib/crewel",
    "console": "crewel console --url http://127.0.0.1:8081",
    "doctor": "crewel doctor --config /etc/crewel/crewel.toml",
    "pages": "crewel pages",
    "backup": "crewel backup monday.backup --config /etc/crewel/crewel.toml",
    "restore": "crewel restore monday.backup --config /etc/crewel/crewel.toml",
    "pub": """crewel pub /chat/demo '{"user": "joe", "chat": "hello"}' --persistent""",
    "sub": "crewel sub '/orders/**' --name worker/1 --resume-file worker.secret",
    "request": "crewel request /power 7 --timeout-ms 2000",
    "reply": "crewel reply /upper --command 'tr a-z A-Z' --group upper",
    "conformance": "crewel conformance http://localhost:8080/cometd --html report.html",
    "cmd": "crewel cmd '__cmd:client/joe/1/?dispatcherActive=true'",
    "nodes": "crewel nodes --json",
    "message": "crewel message 1795324804876345",
    "presence": "crewel presence /room",
    "top": "crewel top --every 2",
    "trace": "crewel trace joe/1 --seconds 300",
    "audit-log": "crewel audit-log --since 2h --outcome refused",
    "pipeline live": "crewel pipeline live --dir /srv/crewel/tables",
    "pipeline backfill": "crewel pipeline backfill --from 7d --dir /srv/crewel/tables",
    "pipeline report": "crewel pipeline report --html report.html",
    "pipeline audit": "crewel pipeline audit --from 2026-11-20",
    "pipeline redrive": """crewel pipeline redrive --where "channel like '/orders/%'" --dry-run""",
    "pipeline query": 'crewel pipeline query "SELECT code, count(*) FROM letters GROUP BY ALL"',
    "pipeline compact": "crewel pipeline compact --keep-days 90",
    "pipeline doctor": "crewel pipeline doctor --no-spark",
    "settings": "crewel settings --config /etc/crewel/crewel.toml",
    "settings get": "crewel settings get bayeux.timeout_ms",
    "settings set": "crewel settings set delivery.commit_ms=100 bayeux.max_lazy_ms=2000",
    "sessions list": "crewel sessions list --held",
    "sessions peek": "crewel sessions peek joe/1 --count 5",
    "sessions show": "crewel sessions show joe/1",
    "subjects list": "crewel subjects list",
    "subjects show": "crewel subjects show joe",
    "topics list": "crewel topics list --pattern '/chat/**'",
    "topics show": "crewel topics show /chat/demo",
    "topics history": "crewel topics history /chat/demo --count 10 --newest-first",
    "scheduled list": "crewel scheduled list --channel '/reminders/**'",
    "scheduled show": "crewel scheduled show 1795324804876345",
    "scheduled cancel": "crewel scheduled cancel 1795324804876345 --reason 'wrong oven'",
    "dead-letters list": "crewel dead-letters list --receiver joe/1 --since 2h",
    "dead-letters count": "crewel dead-letters count --since 1h --by receiver,reason",
    "dead-letters show": "crewel dead-letters show 1795324804876345-0",
    "dead-letters redrive": "crewel dead-letters redrive --receiver joe/1 --code user.update.error --dry-run",
    "dead-letters discard": "crewel dead-letters discard 1795324804876345-0 --reason 'order was cancelled'",
    "dead-letters bin": "crewel dead-letters bin --receiver joe/1 --since 2h",
    "dead-letters restore": "crewel dead-letters restore 1795324804876345-0 --reason 'discarded by mistake'",
    "dead-letters edit": "crewel dead-letters edit 1795324804876345-0 --data '{\"order\": 17}' --reason 'a field was missing'",
    "dead-letters export": "crewel dead-letters export --channel '/orders/**' --since 2026-11-20",
    "dead-letters dump": "crewel dead-letters dump --dir letters --receiver joe",
    "jobs list": "crewel jobs list --state running",
    "jobs show": "crewel jobs show 1795335085761-934338",
    "jobs pause": "crewel jobs pause 1795335085761-934338 --reason 'too much load'",
    "jobs resume": "crewel jobs resume 1795335085761-934338",
    "jobs stop": "crewel jobs stop 1795335085761-934338 --reason 'wrong filter'",
    "jobs follow": "crewel jobs follow 1795335085761-934338",
    "mock salesforce": "crewel mock salesforce --port 8090 --edition developer",
    **{f"{each.level}s {each.verb}": _of_operation(each) for each in OPERATIONS},
}
"""By the words of the command."""


def add_examples(app: typer.Typer, words: tuple[str, ...] = ()) -> None:
    """Let the help of each command of this group, and of the groups in it, end with its example."""
    _add(app.info, words)
    for command in app.registered_commands:
        _add(command, (*words, command.name or command.callback.__name__))  # type: ignore[union-attr]
    for group in app.registered_groups:
        inner: Any = group.typer_instance
        add_examples(inner, (*words, inner.info.name))


def _add(command: Any, words: tuple[str, ...]) -> None:
    example = EXAMPLES.get(" ".join(words))
    if example is not None:
        command.epilog = f"\b\nExample:\n  {example}"  # \b keeps the lines as they are
