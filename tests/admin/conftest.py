"""A server that the tests of the administration share, each with subjects and channels of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.admin.desk import SETS, Desk, Receiver, publish
from tests.broker.stored_world import StoredWorld
from tests.functional.wire import close_connections, until
from tests.server_process import Server


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # The tests show more wrong tokens than the usual burst.
    arguments = ["--port=0", "--set=limits.failed_tokens_burst=10000", *(f"--set={text}" for text in SETS)]
    server = Server(arguments, tmp_path_factory.mktemp("admin"))
    yield server
    server.end_well()


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """The shared server; the test that makes it complain fails."""
    yield shared
    assert "Traceback" not in shared.stderr, shared.stderr
    assert shared.returncode is None


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture
def desk(server: Server) -> Desk:
    return Desk(server)


_numbers = itertools.count(1)


@pytest.fixture
def subject() -> str:
    """A subject that no other test uses."""
    return f"joe{next(_numbers)}"


@pytest.fixture
def channel() -> str:
    """A channel that no other test uses."""
    return f"/admin/{next(_numbers)}"


@pytest.fixture
def receiver(server: Server, subject: str, channel: str) -> Receiver:
    """A receiver that is subscribed to the channel."""
    person = Receiver(server).be(f"{subject}/1")
    person.subscribe(channel)
    return person


@pytest.fixture
def dead(server: Server, desk: Desk, receiver: Receiver, channel: str, subject: str) -> list[str]:
    """The ids of five letters, the oldest first, that the receiver has made."""
    publish(server, channel, 5)
    receiver.reject(receiver.take())
    query = f"receiver={subject}"
    letters = until(lambda: found if len(found := desk.letters(query)) == 5 else None)
    return [letter["id"] for letter in letters]


@pytest.fixture
def stored() -> Iterator[StoredWorld]:
    """A broker with a store and without sockets, for tests that need no server."""
    world = StoredWorld()
    yield world
    world.close()
