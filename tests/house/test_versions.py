"""That every place that names the version of Crewel names the same one."""

import re
import tomllib

import pytest

from tests.house.source import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
PLACES = {
    "browser/package.json": r'^  "version": "([^"]+)"',
    "browser/create/package.json": r'^  "version": "([^"]+)"',
    "browser/create/README.md": r"(?:create-crewel|crewel-client)-([\d.]+)\.tgz",
    "browser/create/template/package.json": r'"@crewel/client": "\^([^"]+)"',
    "browser/README.md": r"crewel-client-([\d.]+)\.tgz",
    "docs/reference/browser.md": r"crewel-client-([\d.]+)\.tgz",
    "docs/how-to/kubernetes.md": r"/crewel:([\d.]+\d)",
    "deploy/kubernetes/cluster.yaml": r"image: crewel:([\d.]+\d)",
    "deploy/kubernetes/single.yaml": r"/crewel:([\d.]+\d)",
    "clients/java/pom.xml": r"^  <version>([^<]+)</version>",
    "examples/java-worker/pom.xml": r"crewel-client</artifactId>\n +<version>([^<]+)</version>",
    "docs/how-to/java.md": r"crewel-client</artifactId>\n +<version>([^<]+)</version>",
    "CHANGELOG.md": r"^These changes will be in ([\d.]+\d)\.$",
}
DEPRECATED = re.compile(r"deprecated[^.\n]{0,60}until (\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)


@pytest.mark.parametrize(("place", "pattern"), PLACES.items())
def test_a_place_names_the_version_of_the_package(place: str, pattern: str) -> None:
    found = set(re.findall(pattern, (ROOT / place).read_text("utf-8"), re.MULTILINE))
    assert found == {VERSION}


def test_nothing_is_deprecated_until_a_version_that_is_two_ahead() -> None:
    major, minor = (int(each) for each in VERSION.split(".")[:2])
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "app" / "crewel").rglob("*.py")]
    told = {number for page in pages for number in DEPRECATED.findall(page.read_text("utf-8"))}
    assert all(tuple(int(each) for each in number.split(".")[:2]) <= (major, minor + 1) for number in told), told
