"""A node of today beside one of an earlier release, as during an update one by one: they share a store, forward to each other,
and each takes over the sessions of the other.

The release is checked out of the history of the repository; `make faults` runs this where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.admin.desk import Desk, Receiver
from tests.faults.conftest import Tell
from tests.functional.bayeux import Client, data
from tests.functional.cluster import LONG, NODE, OPERATED, PATIENT, TOKEN
from tests.functional.frames import SocketClient
from tests.functional.people import Person
from tests.functional.test_groups_across_nodes import drained, member
from tests.functional.wire import figures, until
from tests.server_process import Server
from tests.store_process import StoreProcess
from tests.upgrade.releases import Release, earlier  # noqa: F401 - a fixture

PERSISTENT: Final[dict[str, Any]] = {"ext": {"publish": {"persistent": True}}}


class Pair:
    """A node of an earlier version and one of today on one store."""

    def __init__(self, release: Release, directory: Path, *, is_earlier_first: bool) -> None:
        (directory / "store").mkdir()
        self.store = StoreProcess(directory / "store")
        self._sets = [
            f"--set={each}"
            for each in (NODE, LONG, OPERATED, PATIENT, f"storage.url={self.store.url}", "storage.prefix=mixed:")
        ]
        self._directory = directory
        self.release = release
        if is_earlier_first:
            self.old, self.new = self.start("old"), self.start("new")
        else:
            self.new, self.old = self.start("new"), self.start("old")
        until(lambda: all(figures(each)["crewel_nodes"] == 2 for each in (self.old, self.new)))

    def start(self, name: str) -> Server:
        """Start the node of this name."""
        arguments = ["--port=0", *self._sets, f"--set=node.name={name}"]
        return Server(arguments, self._directory, self.release.environ if name == "old" else {})

    def close(self) -> None:
        """End all."""
        for server in (self.old, self.new):
            with suppress(ProcessLookupError):
                server.close()
        self.store.close()


@pytest.fixture(params=["the earlier one first", "today's first"])
def pair(request: pytest.FixtureRequest, earlier: Release, tmp_path: Path) -> Iterator[Pair]:  # noqa: F811
    """Both, started in either order."""
    pair = Pair(earlier, tmp_path, is_earlier_first=request.param == "the earlier one first")
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


def test_two_versions_share_a_store(pair: Pair, tell: Tell) -> None:
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
    ways = "both ways of publishing, addressed, repeats, forwarded, taken over and back"
    tell(f"a node of {pair.release.version} and one of today: {ways}")


def test_two_versions_share_dead_letters_groups_and_what_is_scheduled(pair: Pair, tell: Tell) -> None:
    nodes = (pair.old, pair.new)
    desks = [Desk(each, TOKEN) for each in nodes]
    # A dead letter of each is sent again by the other one.
    for number, (here, there) in enumerate((desks, desks[::-1])):
        receiver = Receiver(here.server).be(f"client/bob{number}/1")
        receiver.subscribe("/bills")
        Client(there.server).start().publish("/bills", number, **PERSISTENT)
        receiver.reject(until(partial(receiver.take, timeout=5000)))
        (letter,) = until(partial(there.letters, f"receiver={receiver.login['name']}"))
        assert there.post("/dead-letters/redrive", {"ids": [letter["id"]]})["redriven"] == 1
        assert drained([receiver], 1) == [number]
        receiver.disconnect()
    # The messages of a group go to members at both, and wait for the next one if both have gone.
    members = [member(each, f"client/{name}/1", "/work") for each, name in zip(nodes, ("old", "new"), strict=True)]
    for first, node in zip((0, 10), nodes, strict=True):
        client = Client(node).start()
        for job in range(first, first + 10):
            client.publish("/work", job, **PERSISTENT)
    assert sorted(drained(members, 20)) == [*range(20)]
    # A scheduled message is published by the first node of the store. If that one knows of none, the next one does it.
    later = {"ext": {"publish": {"persistent": True, "deliverAfter": 1}}}
    (reply,) = Client(pair.new).start().publish("/work", "later", **later)
    assert reply["successful"], reply
    pair.old.kill()
    members[0].server, members[0].batch = pair.new, 0
    members[0].forget_connections()
    while drained(members, 1) != ["later"]:  # before it may come again what the node that died had not yet stored
        pass
    tell(
        f"a node of {pair.release.version} and one of today: dead letters sent again, members of one group, scheduled messages"
    )
