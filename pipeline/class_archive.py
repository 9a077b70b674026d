"""An archive of the classes that the jobs need: a Java that finds one maps it into its memory, where it would otherwise unpack,
parse and verify 15,000 classes.

Java calls this class data sharing. An archive fits one build of Java, and one list of jars with their times: its name has a
digest of all of them. It lies in the user's cache beside the links to the jars. A command that finds none starts a process that
writes it, when the command ends or has run for a while. That process has the lowest priority, and ends by itself.

python -m crewel.pipeline.class_archive PATH JAVA CLASS_PATH
"""

from __future__ import annotations

import atexit
import gzip
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

CLASSES: Final = Path(__file__).parent / "java_classes.gz"
"""Names of classes, as Java lists those that it has loaded (`make java-classes`). What a Java does not have is left out."""

_BUILD: Final = ("java.home", "java.vm.name", "java.vm.vendor", "java.vm.version")
"""Properties of Java that tell one build from another."""

_QUIET: Final = "-Xlog:cds*=off"
"""An archive that does not fit, or is broken, is not used, and nothing is printed about it."""

_LOADER: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")
_DELAY_S: Final = 60.0
_LEAST_DISK: Final = 1024**3  # bytes
_LONG_AGO_S: Final = 3600.0
"""After this time no process writes an unfinished archive any more."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one build of Java and of the jars of one home of Spark."""

    stem: Path
    """The beginning of its path. The end is its size: Java does not notice if it is cut."""

    @classmethod
    def of(cls, home: Path, java: Mapping[str, str]) -> ClassArchive:
        """Return the one for a home of Spark, whether or not it is there. `java` has Java's properties."""
        digest = sha256(CLASSES.read_bytes())
        for name in _BUILD:
            digest.update(f"{name}={java.get(name, '')}\n".encode())
        for jar in sorted((home / "jars").glob("*.jar")):
            status = jar.stat()
            digest.update(f"{jar.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        return cls(home / f"classes-{digest.hexdigest()[:16]}")

    @property
    def path(self) -> Path | None:
        """Where it is; None if it is not there, or not whole."""
        with suppress(OSError):
            for path in self.stem.parent.glob(f"{self.stem.name}-*.jsa"):
                if path.name == _name(self.stem, path):
                    return path
        return None

    @property
    def options(self) -> str:
        """Options of Java: to use it, if it is there and whole."""
        path = self.path
        return "" if path is None else f'"-XX:SharedArchiveFile={path}" -XX:+VerifySharedSpaces {_QUIET}'

    def write_later(self, java_home: str, class_path: str) -> None:
        """Have it written by a process of its own when this one ends, or after a minute. `class_path` is that of the Java which
        is to use it."""
        home = self.stem.parent
        if self.path is None and all(Path(each).is_relative_to(home) for each in class_path.split(os.pathsep)):
            start = _Once([sys.executable, "-m", __name__, str(self.stem), f"{java_home}/bin/java", class_path])
            timer = threading.Timer(_DELAY_S, start, (True,))
            timer.daemon = True
            timer.start()
            atexit.register(start)


class _Once:
    """Starts a process once, and does not end it."""

    def __init__(self, line: list[str]) -> None:
        self._lines = [line]

    def __call__(self, waits: bool = False) -> None:
        with suppress(IndexError, OSError):
            process = subprocess.Popen(  # noqa: S603
                self._lines.pop(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            if waits:
                process.wait()


def write(archive: ClassArchive, java: str, class_path: str) -> None:
    """Write an archive, in place of those of other builds, unless another process does. Raises OSError."""
    home, unfinished = archive.stem.parent, archive.stem.with_suffix(".unfinished")
    with suppress(FileNotFoundError):
        if time.time() - unfinished.stat().st_mtime > _LONG_AGO_S:
            unfinished.unlink()
    if archive.path is not None or shutil.disk_usage(home).free < _LEAST_DISK:
        return
    try:
        unfinished.touch(exist_ok=False)
    except FileExistsError:
        return
    try:
        if not _load_all(java, class_path, unfinished):
            return
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        for other in home.glob("classes-*.jsa"):
            other.unlink()
        unfinished.replace(home / _name(archive.stem, unfinished))
    finally:
        unfinished.unlink(missing_ok=True)


def _load_all(java: str, class_path: str, path: Path) -> bool:
    """Have a Java load the classes of the list, which it writes to an archive when it ends; return whether it has. Java could
    read the list itself, but then it interprets all code, and takes much longer."""
    from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    line = [java, *_LOADER, f"-XX:ArchiveClassesAtExit={path}", "-cp", class_path, "py4j.GatewayServer"]
    with subprocess.Popen(  # noqa: S603
        [*line, "--die-on-broken-pipe", "--enable-auth", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port, token = (process.stdout.readline().strip() for _ in range(2))
            gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token))
            load = gateway.jvm.org.apache.spark.util.Utils.classIsLoadable
            for name in gzip.decompress(CLASSES.read_bytes()).decode().split():
                load(name.replace("/", "."))
            gateway.close()
        except (ValueError, Py4JError):  # this Java cannot
            process.kill()
    return process.returncode == 0


def _name(stem: Path, path: Path) -> str:
    """Return the name of an archive of so many bytes."""
    return f"{stem.name}-{path.stat().st_size}.jsa"


if __name__ == "__main__":
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # where memory is short, it is the first to go
    with suppress(OSError):
        write(ClassArchive(Path(sys.argv[1])), *sys.argv[2:4])
