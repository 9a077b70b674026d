"""No long-lived task is started but by the supervisor: one that fails would end without a word."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import modules, shown, tree

STARTERS = {"create_task", "ensure_future", "spawn", "_spawn"}
# Tasks with a loop that belong to one connection or to one piece of work, and end with it: what follows when they fail.
SHORT_LIVED = {
    "app/crewel/broker/mailboxes/backlog_loader.py: _load": "the next connect of its session starts another",
    "app/crewel/broker/inbound.py: _process_later": "it belongs to one request, which it answers",
    "app/crewel/broker/addressing/shared_queues.py: _hand_over": "the next look at its queue starts another",
    "app/crewel/broker/durability/durability.py: _read_again": "it ends when all has been read again",
    "app/crewel/broker/topics/endings.py: _end_all": "the next sweep starts another",
    "app/crewel/broker/publishing/scheduler.py: publish_due": "the next sweep starts another",
    "app/crewel/nodes/remote_topics.py: _go_on": "the next question starts another",
    "app/crewel/nodes/stored_groups.py: _write": "the next change of a group starts another",
    "app/crewel/nodes/stored_groups.py: _until_known": "it belongs to one subscribe, and ends in time",
    "app/crewel/security/token_keys.py: _fetch": "the next token that needs a key starts another",
}
ELSEWHERE = ("app/crewel/cli/", "app/crewel/client/", "app/crewel/conformance/", "pipeline/")  # no part of the server


def names(node: ast.AST) -> Iterator[str]:
    """Yield the last names of all functions that are called in here."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            function = call.func
            yield function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def loops(module: ast.Module) -> set[str]:
    """Return the names of the coroutine functions that wait in a `while`."""
    return {
        function.name
        for function in ast.walk(module)
        if isinstance(function, ast.AsyncFunctionDef)
        for loop in ast.walk(function)
        if isinstance(loop, ast.While) and any(isinstance(each, ast.Await | ast.AsyncWith) for each in ast.walk(loop))
    }


def served() -> list[Path]:
    return [file for file in modules() if not shown(file).startswith(ELSEWHERE)]


def test_no_long_lived_task_is_started_outside_the_supervisor() -> None:
    looping = {name for file in served() for name in loops(tree(file))}
    found = {
        f"{shown(file)}: {name}"
        for file in served()
        for call in ast.walk(tree(file))
        if isinstance(call, ast.Call) and shown(file) != "app/crewel/supervision.py"
        if isinstance(call.func, ast.Attribute) and call.func.attr in STARTERS
        for argument in call.args
        for name in names(argument)
        if name in looping
    }
    assert found == set(SHORT_LIVED)
