"""Who is measured: how each server is made ready, started and named in the report."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
BUILD = BENCH / "build"


class Missing(Exception):
    """The peer cannot be had on this machine; the text says what it lacks."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One server: `prepare` builds it or raises Missing, `command` starts it on a free port.

    The command prints `ready URL` on its standard output once it serves. `warmup_s` is how
    long it is loaded before anything is measured, `prelude` how many clients come in first.
    """

    name: str
    title: str
    prepare: Callable[[], None]
    command: Callable[[], list[str]]
    version: Callable[[], str]
    websocket: bool = True
    ack: bool = True
    stores: bool = False
    warmup_s: float = 3.0
    prelude: int = 2000
    note: str = ""


def tool(name: str) -> str:
    """The path of a program. Raises Missing when it is not installed."""
    if path := shutil.which(name):
        return path
    raise Missing(f"{name} is not installed")


def build(log_name: str, command: list[str], directory: Path) -> None:
    """Run a build command, its output in build/. Raises Missing when it fails."""
    BUILD.mkdir(exist_ok=True)
    log = BUILD / f"{log_name}.build.log"
    try:
        with log.open("w") as output:
            subprocess.run(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT, check=True, timeout=600)
    except (subprocess.SubprocessError, OSError) as error:
        raise Missing(f"`{Path(command[0]).name}` failed ({error}); see {log.relative_to(BENCH.parent)}") from error


def is_older(made: Path, *sources: Path) -> bool:
    """Whether something must be made again from its sources."""
    return not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources)


def _npm(directory: Path) -> Callable[[], None]:
    def prepare() -> None:
        tool("node")
        installed = directory / "node_modules" / ".package-lock.json"
        if is_older(installed, directory / "package-lock.json"):
            build(directory.name, [tool("npm"), "ci"], directory)

    return prepare


def _node_command(directory: Path) -> Callable[[], list[str]]:
    return lambda: [tool("node"), str(directory / "server.js")]


def _npm_version(directory: Path, package: str) -> Callable[[], str]:
    def version() -> str:
        manifest = json.loads((directory / "node_modules" / package / "package.json").read_text())
        return f"{package} {manifest['version']}, Node {output_of('node', '--version')}"

    return version


def output_of(*command: str) -> str:
    """The first line that a command prints, on whichever of its outputs."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ((done.stdout + done.stderr).strip().splitlines() or ["?"])[0]


def npm_peer(name: str, title: str, package: str, **options: Any) -> Peer:
    """A peer whose project is in peers/, with a `server.js` and one package."""
    directory = BENCH / "peers" / name
    return Peer(name, title, _npm(directory), _node_command(directory), _npm_version(directory, package), **options)


def _commit(checkout: Path) -> str:
    return output_of("git", "-C", str(checkout), "log", "-1", "--format=%h")


def _installed(*packages: str) -> str:
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


FAYE = BENCH / "peers" / "faye"
COMETD_NODEJS = BENCH / "peers" / "cometd-nodejs"
COMETD_JAVA = BENCH / "peers" / "cometd-java"


def _maven() -> None:
    tool("java")
    sources = [COMETD_JAVA / "pom.xml", *COMETD_JAVA.rglob("*.java")]
    if is_older(COMETD_JAVA / "target" / "server.jar", *sources):
        build("cometd-java", [tool("mvn"), "-B", "-q", "package"], COMETD_JAVA)


def _java_command() -> list[str]:
    target = COMETD_JAVA / "target"
    return [tool("java"), "-cp", f"{target / 'server.jar'}:{target / 'lib'}/*", "crewel.bench.Main"]


def _java_version() -> str:
    names = (COMETD_JAVA / "target" / "lib").glob("*.jar")
    versions = {name.stem.rpartition("-")[0]: name.stem.rpartition("-")[2] for name in names}
    return (
        f"CometD {versions['cometd-java-server-common']}, Jetty {versions['jetty-server']}, "
        f"{output_of('java', '-version')}"
    )


def earlier(checkout: Path, crewel_settings: list[str]) -> Peer:
    """An earlier state of Crewel, from a checkout of it; the settings are as for `peers`."""
    sets = [word for setting in ["bayeux.max_sessions_per_browser=-1", *crewel_settings] for word in ("--set", setting)]
    path = f"PYTHONPATH={checkout.resolve() / 'app'}"
    return Peer(
        "before",
        "Crewel before",
        prepare=lambda: None,
        command=lambda: ["env", path, sys.executable, "-m", "crewel", "serve", "--port", "0", *sets],
        version=lambda: _commit(checkout),
        stores=True,
    )


def peers(crewel_settings: list[str]) -> tuple[Peer, ...]:
    """Everyone in the order of the report; the settings are for Crewel, as `name=value`."""
    sets = [word for setting in ["bayeux.max_sessions_per_browser=-1", *crewel_settings] for word in ("--set", setting)]
    return (
        Peer(
            "crewel",
            "Crewel",
            prepare=lambda: None,
            command=lambda: [sys.executable, "-m", "crewel", "serve", "--port", "0", *sets],
            version=lambda: (
                f"{_installed('crewel', 'aiohttp', 'uvloop')}, Python {sys.version.split()[0]}; the state {_commit(BENCH)}"
            ),
            stores=True,
            note=f"with {', '.join(crewel_settings)}" if crewel_settings else "",
        ),
        Peer(
            "floor",
            "the floor",
            prepare=lambda: None,
            command=lambda: [sys.executable, str(BENCH / "floor.py")],
            version=lambda: _installed("httptools", "uvloop", "orjson"),
            websocket=False,
            note="a bare asyncio protocol, the same bytes, no features: `bench/floor.py`",
        ),
        Peer(
            "faye",
            "Faye",
            prepare=_npm(FAYE),
            command=_node_command(FAYE),
            version=_npm_version(FAYE, "faye"),
            ack=False,
            note="it has no acknowledgement: in case B it runs without",
        ),
        Peer(
            "cometd-nodejs",
            "cometd-nodejs-server",
            prepare=_npm(COMETD_NODEJS),
            command=_node_command(COMETD_NODEJS),
            version=_npm_version(COMETD_NODEJS, "cometd-nodejs-server"),
            websocket=False,
            note="it has no WebSocket",
        ),
        Peer(
            "cometd-java",
            "CometD Java",
            prepare=_maven,
            command=_java_command,
            version=_java_version,
            warmup_s=30.0,
            prelude=15000,
            note="warmed up for longer, so that the compiler of the JVM has done its work",
        ),
    )
