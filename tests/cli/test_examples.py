"""The examples in the help of the commands."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from crewel.cli.examples import EXAMPLES
from crewel.cli.main import app
from crewel.pipeline.cli import app as pipeline


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the words of each command."""
    named = getattr(command, "commands", None)
    if named is None:
        yield " ".join(words)
    for name, inner in (named or {}).items():
        yield from leaves(inner, (*words, name))


def test_each_command_has_an_example_and_each_example_a_command() -> None:
    of_server = set(leaves(get_command(app))) - {"pipeline"}  # it hands its words to the commands below
    assert of_server | set(leaves(get_command(pipeline), ("pipeline",))) == EXAMPLES.keys() - {"settings"}


@pytest.mark.parametrize("words", EXAMPLES)
def test_an_example_is_right_usage_of_its_command(words: str) -> None:
    """Each word is read as a command or an option, up to where the command would begin its work."""
    program, *typed = shlex.split(EXAMPLES[words])
    assert program == "crewel"
    assert typed[: len(words.split())] == words.split()
    command: Any = get_command(pipeline if typed[0] == "pipeline" else app)
    if typed[0] == "pipeline":
        typed.pop(0)
    while typed and typed[0] in getattr(command, "commands", {}):
        command = command.commands[typed.pop(0)]
    command.make_context(words, typed)  # raises UsageError


def test_the_help_of_a_command_shows_its_example() -> None:
    command: Any = get_command(app)
    pub = command.commands["pub"]
    assert EXAMPLES["pub"] in pub.get_help(pub.make_context("pub", ["/a", "1"]))
