"""What must not stand in any file: notes to self, places that exist on one machine only."""

import re
from pathlib import Path

import pytest

from tests.house.source import ROOT, modules, shown, tracked_files

# Put together here, so that this file does not find itself.
NOTES = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "NotImplemented" + "Error")) + r")\b")
PLACES = re.compile("/(?:" + "|".join(("work", "root")) + ")/")
REGISTRIES = re.compile(
    "|".join(("py" + "pi.org", "python" + "hosted", "npm" + "js.(?:org|com)", r'"resol' + 'ved": "http'))
)


@pytest.mark.parametrize(
    "forbidden", [NOTES, PLACES, REGISTRIES], ids=["notes to self", "places of one machine", "registries"]
)
def test_no_file_holds(forbidden: re.Pattern[str]) -> None:
    assert not [
        f"{shown(file)}:{number}: {line.strip()[:100]}"
        for file in tracked_files()
        for number, line in enumerate(file.read_text("utf-8", errors="replace").splitlines(), 1)
        if forbidden.search(line)
    ]


def test_every_test_directory_is_a_package() -> None:
    """Otherwise two test modules of one name would be taken for the same. The examples are projects of their own."""
    directories = {file.parent for file in tracked_files() if file.name.startswith("test_") and file.suffix == ".py"}
    assert not [
        shown(directory)
        for directory in directories
        if not (directory / "__init__.py").exists() and "examples" not in directory.relative_to(ROOT).parts[:1]
    ]


def pages() -> list[Path]:
    """Return the Markdown files."""
    return [file for file in tracked_files() if file.suffix == ".md"]


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = [
        f"{shown(page)}: {target}"
        for page in pages()
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def _anchors(page: Path) -> set[str]:
    """Return the names under which GitHub links to the headings of a page."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_anchor_is_a_heading() -> None:
    """Links of pages, and pages that the code names, such as `how-to/topics.md#rules` in the tables of options."""
    named = [
        (page, (page.parent / target if target else page), anchor)
        for page in pages()
        for target, anchor in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", page.read_text("utf-8"))
        if "://" not in target and (page.parent / target if target else page).suffix == ".md"
    ]
    named += [
        (module, ROOT / "docs" / target, anchor)
        for module in modules()
        for target, anchor in re.findall(r"([\w-]+/[\w-]+\.md)#([\w-]+)", module.read_text("utf-8"))
    ]
    assert named
    assert not [f"{shown(file)}: {to.name}#{anchor}" for file, to, anchor in named if anchor not in _anchors(to)]


def test_every_page_can_be_reached_from_the_index() -> None:
    docs, decisions = ROOT / "docs", ROOT / "docs" / "decisions"
    index = (docs / "index.md").read_text("utf-8")
    unlinked = [
        shown(page)
        for page in pages()
        if page.is_relative_to(docs)
        and page != docs / "index.md"
        and not page.is_relative_to(decisions)
        and f"({page.relative_to(docs).as_posix()})" not in index
    ]
    assert not unlinked


def test_every_decision_has_a_number_of_its_own() -> None:
    decisions = sorted(page.name for page in pages() if page.parent == ROOT / "docs" / "decisions")
    numbers = [name.partition("-")[0] for name in decisions]
    assert all(re.fullmatch(r"\d{4}", number) for number in numbers)
    assert len(set(numbers)) == len(numbers)
