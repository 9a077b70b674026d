"""That CONTRIBUTING.md leads to files that exist, and covers the changes that it promises."""

import re

import pytest

from tests.house.source import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
CHANGES = (
    "A new PublishQos field",
    "Another policy for full queues",
    "A REST route",
    "A Bayeux extension",
    "A new dead letter reason",
    "Another store step",
    "A new setting",
    "A column in a silver table",
    "A CLI option",
    "A metric",
)


def named_paths() -> list[str]:
    """Return what stands as code and begins with a directory of the repository."""
    return sorted(set(re.findall(r"`((?:app|docs|extensions|pipeline|tests)/[\w./-]*)`", PAGE)))


@pytest.mark.parametrize("path", named_paths())
def test_a_path_in_the_contributing_page_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_names_in_code_that_the_page_mentions_exist() -> None:
    """A table or class that the page sends its reader to is in a file of the same section."""
    for section in PAGE.split("\n## ")[1:]:
        files = [ROOT / path for path in re.findall(r"`((?:app|extensions|pipeline)/[\w./-]*\.\w+)`", section)]
        text = "".join(file.read_text("utf-8") for file in files)
        for name in re.findall(r"`([A-Z][A-Za-z]*[A-Z_]\w*|_[A-Z]+)`", section):
            assert name in text, f"{section.splitlines()[0]}: {name}"


def test_the_page_has_a_section_for_each_change_that_begins_with_its_test() -> None:
    sections = {section.splitlines()[0]: section for section in PAGE.split("\n## ")[1:]}
    assert tuple(sections) == CHANGES
    for section in sections.values():
        assert section.splitlines()[2].startswith("First the test: ")
