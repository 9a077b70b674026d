"""How Java is started: so that it prints nothing that concerns no reader, and starts its processes of Python quickly.

And how its names are looked up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

LOCAL: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java on this machine, which mostly starts, plans and does little. Its second compiler takes half of the
processor until the first batch. Whether it pays for itself in jobs of many million entries has not been measured."""

LOGGING: Final = Path(__file__).parent / "log4j2.properties"

_GREETINGS: Final = (
    b"WARNING: Using incubator modules",
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)
"""How lines begin that Java writes on its own, and PySpark's workers at each look at timers, and that no option prevents."""

_STDERR: Final = 2

_PARTS: Final = ("bin", "conf", "jars")
"""What Java is started with of an installed Spark."""


def java_options(level: str) -> str:
    """Return the options of Java with which Spark logs from this level on, to stderr."""
    return f"-Dlog4j2.configurationFile={LOGGING.absolute().as_uri()} -Dcrewel.spark.level={level}"


def java_properties(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties of the Java that Spark would use; none if there is no Java that works."""
    home = environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    return {} if program is None else _properties(program)


@cache
def _properties(program: str) -> Mapping[str, str]:
    try:
        told = subprocess.run(  # noqa: S603
            [program, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = (line.partition("=") for line in told.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def unpacked_home(installed: Path, environ: Mapping[str, str]) -> Path | None:
    """Return a home of Spark that is the `installed` one without the archive of its Python; None if none can be made.

    Java puts that archive before the package that is installed, and Python compiles what comes from an archive at each start:
    two thirds of the second that a process takes to start, of the ten that Spark gives it.
    """
    try:
        cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "crewel" / f"spark-{sha256(os.fsencode(installed)).hexdigest()[:16]}"
        home.mkdir(parents=True, exist_ok=True)
        for part in _PARTS:
            if (installed / part).is_dir():
                with suppress(FileExistsError):
                    (home / part).symlink_to(installed / part)
    except (OSError, RuntimeError):  # a home that nothing can be written to, or none at all
        return None
    return home


def keep_names() -> None:
    """Have Python keep which package, class or method of Java a name stands for.

    PySpark asks for it twice for each column that it makes. Java looks into all jars of Spark several times before it answers
    that `functions` is a class, and copies all thousand methods of it before it answers that `col` is one.
    """
    from py4j.java_gateway import JavaClass, JavaPackage, JVMView  # type: ignore[import-untyped]

    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _keeping(kind.__getattr__)


def _keeping(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    from py4j.java_gateway import JavaClass, JavaMember, JavaPackage

    @wraps(ask)
    def ask_once(owner: Any, name: str) -> Any:
        found = ask(owner, name)
        if isinstance(found, JavaClass | JavaMember | JavaPackage):  # and not the value of a field, which may change
            vars(owner)[name] = found
        return found

    return ask_once


@contextmanager
def without_greetings() -> Iterator[None]:
    """What is started meanwhile has a stderr on which all appears that it writes, but the greetings and empty lines."""
    sys.stderr.flush()
    before = os.dup(_STDERR)
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading, os.dup(before)), daemon=True).start()
    os.dup2(writing, _STDERR)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(before, _STDERR)
        os.close(before)


def _pass_on(reading: int, stderr: int) -> None:
    """Pass lines on until all who could write are gone."""
    with open(reading, "rb", buffering=0) as lines, open(stderr, "wb", buffering=0) as out:
        rest = b""
        while some := lines.read(65536):
            *whole, rest = (rest + some).split(b"\n")
            shown = [line for line in whole if line and not line.startswith(_GREETINGS)]
            if shown:
                out.write(b"\n".join(shown) + b"\n")
        if rest:
            out.write(rest)
