"""The level of a test: what it needs, and so which target of the Makefile runs it.

A mark of the test or its module tells the level (`pytestmark = pytest.mark.server`); without one, its directory does, or a
fixture that the test asks for, directly or through others. All others are `unit`. A hook of Python holds `pure` and `unit`
tests to it: one that starts a process or opens a connection fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

LEVELS: Final = ("pure", "unit", "store", "server", "browser", "pipeline")
_DIRECTORIES: Final = {
    "bayeux": ("pure",),
    "broker": ("unit", "store"),
    "browser": ("browser",),
    "cli": ("server", "unit"),
    "delivery": ("pure",),
    "demo": ("server",),
    "errors": ("unit",),
    "extensions": ("unit",),
    "faults": ("server", "store"),
    "functional": ("server",),
    "house": ("unit", "store", "server", "pipeline"),
    "interop": ("server",),
    "limits": ("pure",),
    "pipeline": ("pipeline",),
    "qos": ("pure",),
    "security": ("unit", "server"),
    "storage": ("store",),
    "topics": ("pure",),
    "transports": ("unit", "store"),
    "workers": ("unit",),
}
"""The levels of the tests in a directory below `tests`: other levels do not read it. The first is that of a test without a
mark; where that is `unit`, fixtures tell more."""
_OTHERS: Final = ("unit", "store", "server")
"""The levels of the tests in all other directories, and in none."""
_FIXTURES: Final = {
    "aiohttp_client": "server",
    "make_stored": "store",
    "published_keys": "server",
    "server": "server",
    "start_server": "server",
    "store": "store",
    "stored": "store",
}
_FORBIDDEN: Final = {
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "socket.bind",
    "socket.connect",
    "socket.sendto",
    "subprocess.Popen",
}
"""What no unit test may do, by the names of Python's audit events."""
_watched: list[str] = []
"""The test that runs, if it is held to its level."""


def is_left_out(directory: str, marks: str) -> bool:
    """Whether a directory below `tests` has no test of the level that was asked for with `-m`."""
    return marks in LEVELS and marks not in _DIRECTORIES.get(directory, _OTHERS)


def level(item: pytest.Item) -> str:
    """The level of a test. Raises UsageError if its directory is not read for that level: the test would never run."""
    marked = next((name for name in LEVELS if item.get_closest_marker(name)), None)
    directory = item.nodeid.removeprefix("tests/").partition("/")[0]
    asked = {_FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in _FIXTURES}
    first, *_ = possible = _DIRECTORIES.get(directory, _OTHERS)
    found = marked or (max(asked, key=LEVELS.index, default="unit") if first == "unit" else first)
    if found not in possible:
        raise pytest.UsageError(
            f"{item.nodeid} is of the level {found}, which tests/levels.py does not name for {directory}"
        )
    return found


def needs_nothing(item: pytest.Item) -> bool:
    """Whether a test that was marked is of a level without processes and connections."""
    return any(item.get_closest_marker(name) for name in ("pure", "unit"))


def _audit(event: str, _: tuple[object, ...]) -> None:
    if _watched and event in _FORBIDDEN:
        pytest.fail(f"{event} in {_watched[0]}, which says that it needs nothing: tests/levels.py")


sys.addaudithook(_audit)


@contextmanager
def alone(test: str) -> Iterator[None]:
    """Fail this test as soon as it starts a process or opens a connection."""
    _watched.append(test)
    try:
        yield
    finally:
        _watched.clear()
