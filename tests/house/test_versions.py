"""That every place that names the version of Crewel names the same one."""

import re
import shutil
from pathlib import Path

from crewel.version import VERSION
from tests.house.source import ROOT, tracked_files
from tools.release import versions

DEPRECATED = re.compile(r"deprecated[^.\n]{0,60}until (\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)

PACKAGE = re.compile(r"(?:crewel|crewel-client|create-crewel|crewel-image)-\d[\d.]*\d(?=-py3|\.tgz|\.jar|\.pom|\.tar)")


def test_all_places_name_the_version_of_the_package() -> None:
    assert versions.version_of(ROOT) == VERSION
    assert versions.others(ROOT) == {}


def test_no_other_page_names_the_file_of_a_release() -> None:
    pages = {str(page.relative_to(ROOT)) for page in tracked_files() if page.suffix == ".md"}
    assert not {page for page in pages.difference(versions.COPIES) if PACKAGE.search((ROOT / page).read_text("utf-8"))}


def test_the_command_writes_a_new_version_to_all_places_but_the_changelog(tmp_path: Path) -> None:
    for place in ("pyproject.toml", "CHANGELOG.md", *versions.COPIES):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    package = tmp_path / "pyproject.toml"
    package.write_text(package.read_text("utf-8").replace(f'version = "{VERSION}"', 'version = "98.7.6"', 1), "utf-8")
    said = versions.others(tmp_path)
    assert said == {place: {VERSION} for place in (*versions.COPIES, "CHANGELOG.md")}
    versions.write(tmp_path)
    assert versions.others(tmp_path) == {"CHANGELOG.md": {VERSION}}


def test_nothing_is_deprecated_until_a_version_that_is_two_ahead() -> None:
    major, minor = (int(each) for each in VERSION.split(".")[:2])
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "app" / "crewel").rglob("*.py")]
    told = {number for page in pages for number in DEPRECATED.findall(page.read_text("utf-8"))}
    assert all(tuple(int(each) for each in number.split(".")[:2]) <= (major, minor + 1) for number in told), told
