"""That the documentation says what the code does. `make check` asks whether its generated tables are fresh, and looks at the
prose."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from crewel.cli.main import app
from crewel.pipeline.cli import app as pipeline
from tests.house.source import ROOT, shown, tracked_files
from tools import sync_client


@pytest.mark.server
def test_no_name_that_each_version_keeps_has_gone() -> None:
    command = [sys.executable, "docs/stable.py", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, f"docs/reference/stability.md says what stays: {ended.stdout}{ended.stderr}"


def test_only_a_name_of_python_may_be_somewhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    stable = importlib.import_module("stable")
    now: dict[str, set[str]] = {kind: set() for kind in stable.KINDS}
    names = {"http.client", "crewel.client.Delivery.data"}  # a module of Python's own, and a member of a base class
    assert stable.lost(now | {"settings": names, "python": names | {"crewel.client.Gone"}}, now) == [
        "crewel.client.Delivery.data", "http.client", "crewel.client.Gone",
    ]  # fmt: skip


@pytest.mark.parametrize("kept", ["", "    # Written by tools/sync_client.py, as crewel.client.Client has it\n"])
def test_a_file_without_the_marks_of_its_region_is_not_written(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sync").mkdir()
    (tmp_path / "sync" / "sync_client.py").write_text(f"class Client:\n{kept}    pass\n")
    monkeypatch.setattr(sync_client, "CLIENT", tmp_path)
    missing = (
        "# End of what is written" if kept else "# Written by tools/sync_client.py, as crewel.client.Client has it"
    )
    with pytest.raises(SystemExit, match=f"^sync_client.py lacks the comment `{missing}`"):
        sync_client.written("sync_client")


def command_lines() -> Iterator[tuple[str, str]]:
    """Yield (page, line) for each line in a code block that a reader would type."""
    for page in tracked_files():
        if page.suffix != ".md":
            continue
        for block in re.findall(r"```(?:console|sh|bash)?\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                yield shown(page), line.strip().removeprefix("$ ")


def commands() -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield the words of each command, `doctor` or `sessions list`, and the options that it takes."""
    # The pipeline's are made when they are asked for, so that the server does not import them.
    for words, typed in (((), app), (("pipeline",), pipeline)):
        yield from walk(get_command(typed), words)


def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield the commands of a group, those of groups in it too; or the command itself."""
    named = getattr(command, "commands", {})
    for name, inner in named.items():
        if words or name != "pipeline":
            yield from walk(inner, (*words, name))
    if not named:
        yield words, {"--help"}.union(*((*each.opts, *each.secondary_opts) for each in command.params))


def test_documented_commands_exist_with_their_options() -> None:
    takes = dict(commands())
    groups = {command[0] for command in takes if len(command) > 1}
    wrong = [
        f"{page}: {line}"
        for page, line in command_lines()
        if (words := line.partition(" | ")[0].split())[:1] == ["crewel"]
        and words[1:]
        and words[1] not in {"--version", "--help"}
        and (
            (command := tuple(words[1 : 3 if words[1] in groups else 2])) not in takes
            or not {word.partition("=")[0] for word in words[1:] if re.match(r"--[a-z]", word)} <= takes[command]
        )
    ]
    assert not wrong


def test_tests_that_pages_name_exist_where_they_point() -> None:
    named = [
        (shown(page), name, page.parent / target)
        for page in tracked_files()
        if page.suffix == ".md"
        for name, target in re.findall(r"\[`(test_\w+)`\]\((\S+?\.py)\)", page.read_text("utf-8"))
    ]
    assert named
    assert not [
        f"{page}: {name}" for page, name, file in named if not re.search(rf"def {name}\(", file.read_text("utf-8"))
    ]


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    typed = {line.split()[1] for _, line in command_lines() if line.startswith("make ")}
    assert typed <= targets


@pytest.mark.server
@pytest.mark.parametrize("target", ["run", "test", "check", "bench"])
def test_what_people_remember_works_by_name(target: str) -> None:
    """`make -n` reads the whole chain of set-up steps without doing them."""
    ended = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, ended.stderr


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
CHANGES = (
    "A new PublishQos field",
    "Another policy for full queues",
    "A transport",
    "A REST route",
    "A Bayeux extension",
    "A new dead letter reason",
    "Another store step",
    "A new setting",
    "A column in a silver table",
    "A CLI option",
    "A finding of the overview",
    "A metric",
)


def contributing_paths() -> list[str]:
    """Return what stands as code and begins with a directory of the repository."""
    return sorted(set(re.findall(r"`((?:app|docs|extensions|pipeline|tests)/[\w./-]*)`", CONTRIBUTING)))


@pytest.mark.parametrize("path", contributing_paths())
def test_a_path_in_the_contributing_page_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_names_in_code_that_the_page_mentions_exist() -> None:
    """A table or class that the page sends its reader to is in a file of the same section."""
    for section in CONTRIBUTING.split("\n## ")[1:]:
        files = [ROOT / path for path in re.findall(r"`((?:app|extensions|pipeline|tests)/[\w./-]*\.\w+)`", section)]
        text = "".join(file.read_text("utf-8") for file in files)
        for name in re.findall(r"`([A-Z][A-Za-z]*[A-Z_]\w*|_[A-Z]+)`", section):
            assert name in text, f"{section.splitlines()[0]}: {name}"


def test_the_page_has_a_section_for_each_change_that_begins_with_its_test() -> None:
    sections = {section.splitlines()[0]: section for section in CONTRIBUTING.split("\n## ")[1:]}
    assert tuple(sections) == CHANGES
    for section in sections.values():
        assert section.splitlines()[2].startswith("First the test: ")
