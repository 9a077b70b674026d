"""Installs each part of a release as its users do, and runs it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

from commands import ReleaseError, run, works

_READY_S = 60


@dataclass(frozen=True)
class Release:
    """What was built."""

    version: str
    source: Path
    """The clone that it was built from."""
    files: Path
    work: Path
    """Where it may be installed."""


def environment(directory: Path, lock: Path, *packages: Path) -> Path:
    """Return the Python of a new virtual environment with what the lock says and these packages."""
    run(sys.executable, "-m", "venv", directory)
    python = directory / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    run(*pip, "--require-hashes", "--requirement", lock)
    if packages:
        run(*pip, "--no-deps", *packages)
    return python


def try_python(release: Release) -> None:
    """Install the wheel and the source distribution, each alone; serve with each, publish, and look at the pages."""
    wheel, sdist = (
        release.files / f"crewel-{release.version}-py3-none-any.whl",
        release.files / f"crewel-{release.version}.tar.gz",
    )
    for package in (wheel, sdist):
        python = environment(
            release.work / f"try-{package.suffix[1:]}", release.source / "requirements-server.lock", package
        )
        crewel = python.parent / "crewel"
        _demand(release.version in run(crewel, "--version"), f"{package.name} says another version")
        data = release.work / f"data-{package.suffix[1:]}"
        words = [crewel, "serve", "--port", "0", "--data-dir", data, "--set", "log.level=warning"]
        with _served(words, release.work) as url:
            _use(crewel, url)


def try_npm(release: Release) -> None:
    """Start a page with the template and the client of this release, and build it."""
    client, create = (release.files / f"{name}-{release.version}.tgz" for name in ("crewel-client", "create-crewel"))
    shutil.rmtree(release.work / "page", ignore_errors=True)
    run(
        "npm", "exec", "--yes", "--package", create, "--", "create-crewel", "page", "--client", client, cwd=release.work
    )
    run("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", cwd=release.work / "page")
    run("npm", "run", "build", cwd=release.work / "page")
    _demand((release.work / "page" / "dist" / "index.html").exists(), "the template builds no page")


def try_java(release: Release) -> None:
    """Build the example worker with the jar of this release, in an empty repository of its own; run it with the server that was
    tried before, if that was."""
    jar, pom = (release.files / f"crewel-client-{release.version}.{kind}" for kind in ("jar", "pom"))
    maven = ("mvn", "--quiet", "--batch-mode", f"-Dmaven.repo.local={release.work / 'maven'}")
    run(*maven, "install:install-file", f"-Dfile={jar}", f"-DpomFile={pom}", cwd=release.work)
    crewel = release.work / "try-whl" / "bin" / "crewel"
    options = () if crewel.exists() else ("-DskipTests",)
    run(*maven, *options, "package", cwd=release.source / "examples" / "java-worker", CREWEL=str(crewel))


def try_site(release: Release) -> None:
    """Look for the front, the search and the reference in the archive."""
    top = f"crewel-docs-{release.version}"
    with tarfile.open(release.files / f"{top}.tar.gz") as packed:
        names = set(packed.getnames())
    for page in ("index.html", "assets/minisearch.js", "search/search_index.json", "reference/protocol.html"):
        _demand(f"{top}/{page}" in names, f"the site has no {page}")


def try_sbom(release: Release) -> None:
    """Look for what the server and its pages cannot do without."""
    for name, needed in (("crewel", {"aiohttp", "orjson", "redis"}), ("crewel-pages", {"cometd"})):
        told = json.loads((release.files / f"{name}-{release.version}.cdx.json").read_text("utf-8"))
        lacking = needed - {each["name"] for each in told["components"]}
        _demand(not lacking, f"the bill of materials of {name} lacks {', '.join(lacking)}")


def try_image(release: Release) -> None:
    """Run the image with the engine that built it, as its users do, and wait until it is ready."""
    image, port = f"crewel:{release.version}", _free_port()
    url = f"http://127.0.0.1:{port}/"
    container = "" if works("docker") else run("buildah", "from", image).strip()
    words = buildah_run(container, port) if container else docker_run(image, port)
    try:
        with _served(words, release.work, url):
            _demand(_status(f"{url}health/ready") == 200, "the image does not become ready")
    finally:
        if container:
            run("buildah", "rm", container)


def docker_run(image: str, port: int) -> list[str | Path]:
    """Return the command that serves an image at this port of the machine. Inside, it listens on all addresses."""
    allowed = "CREWEL_SECURITY__ALLOW_OPEN=true"
    return ["docker", "run", "--rm", "--env", allowed, "--publish", f"127.0.0.1:{port}:8080", image]


def buildah_run(container: str, port: int) -> list[str | Path]:
    """Return the command that serves a container at this port. It shares the network of the machine."""
    address = ("--env", "CREWEL_HTTP__HOST=127.0.0.1", "--env", f"CREWEL_HTTP__PORT={port}")
    return ["buildah", "run", "--isolation", "chroot", *address, container, "crewel", "serve"]


def _use(crewel: Path, url: str) -> None:
    """Send a stored message to a session that is there, and look at what people see first."""
    endpoint = f"{url}cometd"
    receiver = subprocess.Popen(
        [crewel, "sub", "/release", "--count", "1", "--name", "trial/1", "--url", endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert receiver.stderr is not None
        receiver.stderr.readline()  # it has subscribed
        run(crewel, "pub", "/release", '"works"', "--persistent", "--url", endpoint)
        told, _ = receiver.communicate(timeout=_READY_S)
    except subprocess.TimeoutExpired:
        raise ReleaseError("a stored message does not arrive") from None
    finally:
        receiver.kill()
    _demand("works" in told, f"a receiver prints {told!r}")
    for page in ("", "chat/", "static/vendor/cometd/cometd.js", "extensions/update.js", "health/ready"):
        _demand(_status(url + page) == 200, f"GET /{page} answers {_status(url + page)}")


@contextmanager
def _served(words: list[str | Path], directory: Path, url: str = "") -> Iterator[str]:
    """Run a server, which prints `ready http://…/cometd`, and give the root of that address; or `url`, if it has another one
    here."""
    server = subprocess.Popen([str(each) for each in words], cwd=directory, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if line.startswith("ready "):
                yield url or urljoin(line.split()[1], "/")
                return
        raise ReleaseError(f"`{' '.join(map(str, words))}` ends with {server.wait()} before it is ready")
    finally:
        server.terminate()
        server.wait(_READY_S)


def _status(url: str) -> int:
    """Return the status of a GET."""
    try:
        with urllib.request.urlopen(url, timeout=_READY_S) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def _demand(holds: object, words: str) -> None:
    if not holds:
        raise ReleaseError(words)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
