"""What a row of Architecture names is in the file that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.house.source import ROOT

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PLACE = re.compile(
    r"(?P<names>`[\w.`, ]+?(?:and `[\w.]+`)?)(?: there)? (?:in|of) \[[^\]]+\]\(\.\./\.\./(?P<file>[\w/]+\.py)\)"
)


def places() -> Iterator[tuple[str, str]]:
    """Each name, and the file in which a row says that it is."""
    for found in PLACE.finditer(PAGE.read_text("utf-8")):
        for name in re.findall(r"`([A-Za-z_][\w.]*)`", found["names"]):
            yield name, found["file"]


@pytest.mark.parametrize(("name", "file"), sorted(set(places())))
def test_a_name_is_defined_where_the_page_says(name: str, file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    for part in name.split("."):
        assert re.search(rf"^\s*(class|def|async def) {part}\b|^{part}\b", text, re.MULTILINE), f"{file} has no {part}"


def test_a_subject_has_one_row() -> None:
    index = PAGE.read_text("utf-8").partition("## Where to change what")[2].partition("\n## ")[0]
    subjects = re.findall(
        r"^\| (.+?) \|", re.sub(r"^\| (?:subject|---) \|", "", index, flags=re.MULTILINE), re.MULTILINE
    )
    assert len(subjects) == len(set(subjects)) > 100


def test_most_rows_name_a_place() -> None:
    assert len(set(places())) > 100
