"""An archive of the classes that the jobs need: a Java that finds one maps it into its memory, where it would otherwise unpack,
parse and verify 15,000 classes.

Java calls this class data sharing. An archive fits one build of Java, and one list of jars with their times: its name has a
digest of all of them. It lies in the user's cache beside the links to the jars. The first command of a machine writes it, in a
process of the lowest priority beside its own work; it does not wait for it, and ends it with itself.
"""

from __future__ import annotations

import atexit
import gzip
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Final

CLASSES: Final = Path(__file__).parent / "java_classes.gz"
"""Names of classes, as Java lists those that it has loaded (`make java-classes`). What a Java does not have it leaves out."""

_BUILD: Final = ("java.home", "java.vm.name", "java.vm.vendor", "java.vm.version")
"""Properties of Java that tell one build from another."""

_QUIET: Final = "-Xlog:cds*=off"
"""An archive that does not fit, or is broken, is not used, and nothing is printed about it."""

_LEAST_DISK: Final = 1024**3  # bytes
_LONG_AGO_S: Final = 3600.0
"""After this time no process writes an unfinished archive any more."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one build of Java and of the jars of one home of Spark."""

    path: Path

    @classmethod
    def of(cls, home: Path, java: Mapping[str, str]) -> ClassArchive:
        """Return the one for a home of Spark, whether or not it is there. `java` has Java's properties."""
        digest = sha256(CLASSES.read_bytes())
        for name in _BUILD:
            digest.update(f"{name}={java.get(name, '')}\n".encode())
        for jar in sorted((home / "jars").glob("*.jar")):
            status = jar.stat()
            digest.update(f"{jar.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        return cls(home / f"classes-{digest.hexdigest()[:16]}.jsa")

    @property
    def options(self) -> str:
        """Options of Java: to use it, if it is there and whole."""
        return f'"-XX:SharedArchiveFile={self.path}" -XX:+VerifySharedSpaces {_QUIET}' if self.path.exists() else ""

    def write(self, java_home: str, class_path: str) -> threading.Thread | None:
        """Have it written meanwhile, in place of those of other builds; None if it is there, or cannot be written here.
        `class_path` is that of the Java that is to use it."""
        home = self.path.parent
        if self.path.exists() or not all(Path(each).is_relative_to(home) for each in class_path.split(os.pathsep)):
            return None
        try:
            _remove_abandoned(home)
            if shutil.disk_usage(home).free < _LEAST_DISK:
                return None
            process, thread = self._start(Path(java_home, "bin", "java"), class_path)
        except OSError:
            return None
        atexit.register(_end, process, thread)
        return thread

    def _start(self, java: Path, class_path: str) -> tuple[subprocess.Popen[bytes], threading.Thread]:
        """Start what writes it, and what waits for that. Raises OSError."""
        unfinished = self.path.with_suffix(f".{token_hex(4)}")
        unfinished.touch()
        process = _dump(java, class_path, unfinished)
        thread = threading.Thread(target=self._finish, args=(process, unfinished), name=self.path.name, daemon=True)
        thread.start()
        return process, thread

    def _finish(self, process: subprocess.Popen[bytes], unfinished: Path) -> None:
        """Wait until it is written; then it takes its place."""
        is_written = process.wait() == 0
        with suppress(OSError):
            if is_written:
                with unfinished.open("rb") as written:
                    os.fsync(written.fileno())
                for other in self.path.parent.glob("classes-*.jsa"):
                    other.unlink(missing_ok=True)
                unfinished.replace(self.path)
            else:
                unfinished.unlink(missing_ok=True)


def _dump(java: Path, class_path: str, path: Path) -> subprocess.Popen[bytes]:
    """Start a Java that writes an archive, and does nothing else. Raises OSError."""
    line = [
        *(
            "nice",
            "-n",
            "19",
            str(java),
            "-Xshare:dump",
            "-Xmx512m",
            "-Xlog:disable",
            "-XX:SharedClassListFile=/dev/stdin",
        ),
        *(f"-XX:SharedArchiveFile={path}", "-cp", class_path),
    ]
    with TemporaryFile() as names:
        names.write(gzip.decompress(CLASSES.read_bytes()))
        names.seek(0)
        process = subprocess.Popen(  # noqa: S603
            line, stdin=names, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    with suppress(OSError):  # where memory is short, it is the first to go
        Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
    return process


def _end(process: subprocess.Popen[bytes], thread: threading.Thread) -> None:
    """Leave no process behind, and no half of an archive."""
    process.kill()
    thread.join()


def _remove_abandoned(home: Path) -> None:
    """Remove what commands that were killed have left unfinished."""
    for path in home.glob("classes-*"):
        if path.suffix != ".jsa" and time.time() - path.stat().st_mtime > _LONG_AGO_S:
            path.unlink(missing_ok=True)
