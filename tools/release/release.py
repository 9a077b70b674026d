"""Builds everything that a release publishes, from a clean clone of HEAD, then installs and runs each part. It publishes
nothing.

`make release` runs it. The files lie in build/release/files afterwards, with SHA256SUMS; the rest of build/release is what they
were built and tried in. A command that this machine lacks is named before anything is built; `--without image` leaves a part
out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trials
import versions
from commands import ReleaseError, missing, run, works

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "release"
SOURCE = WORK / "source"
FILES = WORK / "files"
BIN = Path(sys.executable).parent
"""The commands of tools/release/requirements.lock: `make release` runs this with their Python."""
MKDOCS = ROOT / os.environ.get("VENV", ".venv") / "bin" / "mkdocs"
"""In the environment that `make` has set up for the documentation."""


@dataclass(frozen=True)
class Part:
    """Something that is published: how its files are made, and how they are tried."""

    needs: tuple[str, ...]
    """Commands; of those that are separated by a slash, one is enough. Docker needs its engine, too."""
    build: Callable[[str], None]
    """Puts the files of this version into `FILES`. Raises ReleaseError."""
    try_out: Callable[[trials.Release], None]
    """Installs and runs the files. Raises ReleaseError."""


def build_python(_: str) -> None:
    """The source distribution with the browser client, and the wheel that is made from it."""
    run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", cwd=SOURCE / "static")
    run(BIN / "python", "-m", "build", "--outdir", FILES, SOURCE)
    run(BIN / "twine", "check", "--strict", *FILES.glob("crewel-*"))


def build_npm(_: str) -> None:
    """`@crewel/client`, and `create-crewel`, which starts a page with it."""
    for package in (SOURCE / "browser", SOURCE / "browser" / "create"):
        run("npm", "pack", "--silent", "--pack-destination", FILES, cwd=package)


def build_java(version: str) -> None:
    """The Java module with its sources and its javadoc."""
    module = SOURCE / "clients" / "java"
    run("mvn", "--quiet", "--batch-mode", "-DskipTests", "-Prelease", "package", cwd=module)
    for jar in (module / "target").glob("crewel-client-*.jar"):
        shutil.copy(jar, FILES)
    shutil.copy(module / "pom.xml", FILES / f"crewel-client-{version}.pom")


def build_site(version: str) -> None:
    """The documentation as one archive."""
    run(MKDOCS, "build", "--quiet", "--strict", "--site-dir", WORK / "site", NO_MKDOCS_2_WARNING="1")
    with tarfile.open(FILES / f"crewel-docs-{version}.tar.gz", "w:gz") as packed:
        packed.add(WORK / "site", arcname=f"crewel-docs-{version}")


def build_sbom(version: str) -> None:
    """The bills of materials: of the server as its lock installs it, and of the browser client that it serves."""
    python = trials.environment(WORK / "sbom", SOURCE / "requirements-server.lock")
    made = FILES / f"crewel-{version}.cdx.json"
    run(BIN / "cyclonedx-py", "environment", "--pyproject", SOURCE / "pyproject.toml", "--output-file", made, python)
    pages = WORK / "pages"
    pages.mkdir()
    for name in ("package.json", "package-lock.json"):  # which have no version, and npm asks for one
        content = json.loads((SOURCE / "static" / name).read_text("utf-8"))
        (pages / name).write_text(json.dumps({**content, "version": version}), "utf-8")
    said = run("npm", "sbom", "--sbom-format", "cyclonedx", "--package-lock-only", cwd=pages)
    (FILES / f"crewel-pages-{version}.cdx.json").write_text(said, "utf-8")


def build_image(version: str) -> None:
    """The image of the server, as an archive that `docker load` reads."""
    archive, name = FILES / f"crewel-image-{version}.tar", f"crewel:{version}"
    if works("docker"):
        run("docker", "build", "--quiet", "--tag", name, SOURCE)
        run("docker", "save", "--output", archive, name)
    else:
        run("buildah", "build", "--isolation", "chroot", "--quiet", "--tag", name, SOURCE)
        run("buildah", "push", "--quiet", name, f"docker-archive:{archive}:{name}")


PARTS = {
    "python": Part(("npm",), build_python, trials.try_python),
    "npm": Part(("npm",), build_npm, trials.try_npm),
    "java": Part(("mvn", "javac"), build_java, trials.try_java),
    "site": Part((), build_site, trials.try_site),
    "sbom": Part(("npm",), build_sbom, trials.try_sbom),
    "image": Part(("docker/buildah",), build_image, trials.try_image),
}
"""In the order in which they are built: what is quick to fail comes first."""


def version_of(source: Path) -> str:
    """Return the version that all packages have. Raises ReleaseError if they differ, or if the newest section of the changelog
    is of another one."""
    version = versions.version_of(source)
    for place, said in versions.others(source).items():
        raise ReleaseError(f"{place} has version {' and '.join(sorted(said)) or 'none'}, pyproject.toml {version}")
    return version


def clone() -> None:
    """Put HEAD into `SOURCE`. Raises ReleaseError if the checkout has changes, which would not be in the release."""
    if changes := run("git", "status", "--porcelain", cwd=ROOT):
        raise ReleaseError(f"the checkout has changes; commit them, or take them back:\n{changes}")
    shutil.rmtree(WORK, ignore_errors=True)
    FILES.mkdir(parents=True)
    run("git", "clone", "--quiet", ROOT, SOURCE, cwd=ROOT)


def write_checksums() -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads, and print each file with its size."""
    lines = []
    for file in sorted(FILES.iterdir()):
        with file.open("rb") as content:
            lines.append(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {file.name}\n")
        print(f"  {file.stat().st_size / 1024:>9,.0f} KiB  {file.name}")
    (FILES / "SHA256SUMS").write_text("".join(lines), "ascii")


@contextmanager
def step(words: str) -> Iterator[None]:
    """Print what is done and how long it takes."""
    print(words, end=" ", flush=True)
    start = time.monotonic()
    yield
    print(f"({time.monotonic() - start:.0f} s)", flush=True)


def release(parts: dict[str, Part]) -> None:
    """Build and try these parts. Raises ReleaseError."""
    if lacking := missing([each for part in parts.values() for each in part.needs]):
        raise ReleaseError(f"missing: {', '.join(lacking)}; `--without` leaves out a part that needs it")
    with step("clone"):
        clone()
        version = version_of(SOURCE)
    for name, part in parts.items():
        with step(f"build {name}"):
            part.build(version)
    for name, part in parts.items():
        with step(f"try {name}"):
            part.try_out(trials.Release(version, SOURCE, FILES, WORK))
    print(f"Crewel {version}, in {FILES.relative_to(ROOT)}:")
    write_checksums()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Build and try everything that a release publishes.")
    parser.add_argument(
        "--without", action="append", default=[], choices=PARTS, help="leave this part out; may be repeated"
    )
    without = parser.parse_args().without
    try:
        release({name: part for name, part in PARTS.items() if name not in without})
    except ReleaseError as error:
        print(f"\nno release: {error}", file=sys.stderr)
        return 1
    if without:
        print(f"left out: {', '.join(without)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
