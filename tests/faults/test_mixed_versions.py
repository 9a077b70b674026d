"""A node of today beside one of an earlier release, as during an update one by one: they share a store, forward to each other,
and each takes over the sessions of the other.

The release is checked out of the history of the repository; `make faults` runs this where there is one.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.conftest import Tell
from tests.functional.bayeux import Client, data
from tests.functional.cluster import LONG, NODE, OPERATED, PATIENT
from tests.functional.frames import SocketClient
from tests.functional.people import Person
from tests.functional.wire import figures, until
from tests.server_process import ROOT, Server
from tests.store_process import StoreProcess

PERSISTENT: Final[dict[str, Any]] = {"ext": {"publish": {"persistent": True}}}
RELEASES: Final = ("1.0.0",)
"""Releases with which nodes of today share a store; add each minor release to them (docs/contributing/releasing.md)."""


def git(*words: str) -> bytes:
    """What git answers; nothing if there is no repository."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False).stdout


@pytest.fixture(params=RELEASES)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A release, and where it is checked out: its tag, or the commit that gave the package its version."""
    release = request.param
    words = f'-Sversion = "{release}"', "--", "pyproject.toml"
    commits = git("rev-parse", "--quiet", "--verify", f"v{release}^{{commit}}") or git(
        "log", "--reverse", "--format=%H", *words
    )
    if not commits:
        pytest.skip(f"there is no git history with the release {release}")
    place = tmp_path / "earlier"
    with tarfile.open(fileobj=io.BytesIO(git("archive", commits.split()[0].decode(), "app", "static"))) as files:
        files.extractall(place, filter="data")
    return release, place


class Pair:
    """A node of an earlier version and one of today on one store."""

    def __init__(self, earlier: Path, directory: Path, *, is_earlier_first: bool) -> None:
        (directory / "store").mkdir()
        self.store = StoreProcess(directory / "store")
        self._sets = [
            f"--set={each}"
            for each in (NODE, LONG, OPERATED, PATIENT, f"storage.url={self.store.url}", "storage.prefix=mixed:")
        ]
        self._directory = directory
        self._path = {"PYTHONPATH": str(earlier / "app")}
        if is_earlier_first:
            self.old, self.new = self.start("old"), self.start("new")
        else:
            self.new, self.old = self.start("new"), self.start("old")
        until(lambda: all(figures(each)["crewel_nodes"] == 2 for each in (self.old, self.new)))

    def start(self, name: str) -> Server:
        """Start the node of this name."""
        arguments = ["--port=0", *self._sets, f"--set=node.name={name}"]
        return Server(arguments, self._directory, self._path if name == "old" else {})

    def close(self) -> None:
        """End all."""
        for server in (self.old, self.new):
            with suppress(ProcessLookupError):
                server.close()
        self.store.close()


@pytest.fixture(params=["the earlier one first", "today's first"])
def pair(request: pytest.FixtureRequest, earlier: tuple[str, Path], tmp_path: Path) -> Iterator[Pair]:
    """Both, started in either order."""
    pair = Pair(earlier[1], tmp_path, is_earlier_first=request.param == "the earlier one first")
    yield pair
    pair.close()
    for server in (pair.old, pair.new):
        assert "Traceback" not in server.stderr, server.stderr


def taken(person: Person, count: int) -> list[Any]:
    """The data of the next so many messages."""
    found: list[Any] = []
    while len(found) < count:
        new = data(person.take(timeout=5000))
        assert new, found
        found += new
    return found


def gets(person: Person, last: str) -> None:
    """Take until this comes; before it comes again what the node that died did not know to be acknowledged."""
    person.batch = 0
    while last not in taken(person, 1):
        pass


def test_two_versions_share_a_store(pair: Pair, earlier: tuple[str, Path], tell: Tell) -> None:
    nodes = (pair.old, pair.new)
    people = [Person(each).be(f"{name}/1") for each, name in zip(nodes, ("old", "new"), strict=True)]
    for person in people:
        person.subscribe("/mixed")
    for node in nodes:
        publisher = Client(node).start()
        publisher.publish("/mixed", "transient")
        publisher.publish("/mixed", "stored", **PERSISTENT)
        publisher.publish(
            "/addressed",
            "addressed",
            ext={"publish": {"persistent": True, "destination": [{"to": "client/old"}, {"to": "client/new"}]}},
        )
    for person in people:
        assert sorted(taken(person, 6)) == ["addressed"] * 2 + ["stored"] * 2 + ["transient"] * 2
    # Each knows the keys of the other one.
    publishers = [Person(pair.old).be("publisher/1"), Person(pair.new).be("publisher/2")]
    to_both = {"persistent": True, "destination": [{"to": "client/old"}, {"to": "client/new"}]}
    for key, order in (("old first", publishers), ("new first", publishers[::-1])):
        replies = [each.publish("/keyed", key, ext={"publish": to_both | {"key": key}})[-1] for each in order]
        assert len({each["ext"]["publish"]["id"] for each in replies}) == 1, replies
    for person in people:
        assert taken(person, 2) == ["old first", "new first"]
        assert person.take() == []
    for publisher in publishers:
        publisher.disconnect()
    # Each forwards to the other one, whichever transport.
    for person, other in zip(people, reversed(nodes), strict=True):
        person.server = other
        person.forget_connections()
        person.subscribe("/forwarded")
    for person in people:
        person.publish("/forwarded", person.login["name"], **PERSISTENT)
    for person in people:
        assert len(taken(person, 2)) == 2
    for here, there in ((pair.old, pair.new), (pair.new, pair.old)):
        socket = SocketClient(there)
        socket.id = SocketClient(here).start().id
        assert socket.connect(advice={"timeout": 0})["successful"] is True
        socket.subscribe("/socket")
        socket.ask_connect()
        Client(here).start().publish("/socket", 1)
        assert socket.heard() == [1]
    # And each takes over the sessions of the other.
    pair.old.kill()
    old, new = people
    for person in people:
        person.server = pair.new
        person.forget_connections()
    new.publish("/mixed", "after the earlier one", **PERSISTENT)
    for person in people:
        gets(person, "after the earlier one")
    pair.old = pair.start("old")
    pair.new.kill()
    for person in people:
        person.server = pair.old
        person.forget_connections()
    old.publish("/mixed", "after today's", **PERSISTENT)
    for person in people:
        gets(person, "after today's")
    tell(
        f"a node of {earlier[0]} and one of today: both ways of publishing, addressed, repeats, forwarded, taken over and back"
    )
