"""The places that name the version of Crewel: pyproject.toml is the source, and this command writes it to the others."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COPIES: Final = {
    "README.md": r"crewel-(?:client-|image-)?(\d[\d.]+\d)(?=-py3|\.tgz|\.jar|\.pom|\.tar)",
    "browser/package.json": r'^  "version": "([^"]+)"',
    "browser/create/package.json": r'^  "version": "([^"]+)"',
    "browser/create/README.md": r"(?:create-crewel|crewel-client)-([\d.]+)\.tgz",
    "browser/create/template/package.json": r'"@crewel/client": "\^([^"]+)"',
    "browser/README.md": r"crewel-client-([\d.]+)\.tgz",
    "docs/reference/browser.md": r"crewel-client-([\d.]+)\.tgz",
    "docs/how-to/node.md": r"crewel-client-([\d.]+)\.tgz",
    "docs/how-to/react.md": r"crewel-client-([\d.]+)\.tgz",
    "examples/README.md": r"crewel-client-([\d.]+)\.tgz",
    "docs/how-to/docker.md": r"crewel(?:-image-|:)(\d[\d.]+\d)",
    "docs/how-to/kubernetes.md": r"crewel(?:-image-|:)(\d[\d.]+\d)",
    "deploy/kubernetes/cluster.yaml": r"image: crewel:([\d.]+\d)",
    "deploy/kubernetes/single.yaml": r"/crewel:([\d.]+\d)",
    "deploy/kubernetes/maintenance.yaml": r"/crewel:([\d.]+\d)",
    "clients/java/pom.xml": r"^  <version>([^<]+)</version>",
    "examples/java-worker/pom.xml": r"crewel-client</artifactId>\n +<version>([^<]+)</version>",
    "docs/how-to/java.md": r"crewel-client</artifactId>\n +<version>([^<]+)</version>",
}
"""Files, and what surrounds the version in each."""
_RELEASED: Final = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", re.MULTILINE)


def version_of(checkout: Path) -> str:
    """Return the version of the package."""
    version: str = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return version


def others(checkout: Path) -> dict[str, set[str]]:
    """Return what each place says that does not say the version of the package, and nothing else. The changelog says it in its
    newest section of a release."""
    found = {place: set(_found(pattern, checkout / place)) for place, pattern in COPIES.items()}
    found["CHANGELOG.md"] = set(_RELEASED.findall((checkout / "CHANGELOG.md").read_text("utf-8"))[:1])
    return {place: said for place, said in found.items() if said != {version_of(checkout)}}


def write(checkout: Path) -> None:
    """Write the version of the package to its copies."""
    version = version_of(checkout)
    for place, pattern in COPIES.items():
        file = checkout / place
        file.write_text(
            re.sub(pattern, lambda match: _with(match, version), file.read_text("utf-8"), flags=re.M), "utf-8"
        )


def _found(pattern: str, file: Path) -> list[str]:
    return re.findall(pattern, file.read_text("utf-8"), re.MULTILINE)


def _with(match: re.Match[str], version: str) -> str:
    start, end = (at - match.start() for at in match.span(1))
    return match[0][:start] + version + match[0][end:]


if __name__ == "__main__":
    write(ROOT)
