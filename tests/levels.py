"""The level of a test: what it needs, and so which target of the Makefile runs it.

A directory or a fixture that the test asks for, directly or through others, tells the level; where neither does, a mark of the
test or its module does (`pytestmark = pytest.mark.server`). All others are `unit`. A hook of Python holds `pure` and `unit`
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
    "bayeux": "pure",
    "browser": "browser",
    "cli": "server",
    "delivery": "pure",
    "demo": "server",
    "faults": "server",
    "functional": "server",
    "interop": "server",
    "limits": "pure",
    "pipeline": "pipeline",
    "qos": "pure",
    "storage": "store",
    "topics": "pure",
}
"""Directories below `tests` of which all tests have one level."""
_MIXED: Final = ("unit", "store", "server", "pipeline")
"""The levels of the tests in all other directories."""
_FIXTURES: Final = {
    "address": "server",
    "aiohttp_client": "server",
    "make_stored": "store",
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
    return marks in LEVELS and marks not in ([_DIRECTORIES[directory]] if directory in _DIRECTORIES else _MIXED)


def level(item: pytest.Item) -> str:
    """The level of a test."""
    marked = next((name for name in LEVELS if item.get_closest_marker(name)), None)
    directory = item.nodeid.removeprefix("tests/").partition("/")[0]
    asked = {_FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in _FIXTURES}
    return marked or _DIRECTORIES.get(directory) or max(asked, key=LEVELS.index, default="unit")


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
