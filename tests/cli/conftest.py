"""A server that the tests of operators' commands share, one after the other: each finds it without sessions and letters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.desk import SETS, Desk, Receiver
from tests.cli.operators import Post
from tests.functional.wire import close_connections, until
from tests.server_process import Server, serving


@pytest.fixture(scope="session")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("office"), *SETS) as server:
        yield server


@pytest.fixture
def post(office: Server, tmp_path: Path) -> Iterator[Post]:
    """An operator at the shared server."""
    yield Post(office, tmp_path)
    close_connections()
    desk = Desk(office)
    for subject in desk.cmd("__cmd:?clientList"):
        desk.cmd(f"__cmd:client/{subject}/?killClient")
    until(lambda: desk.cmd("__cmd:?numWaiting") == 0)
    until(lambda: not desk.post("/dead-letters/discard", {"all": True})["discarded"])
    assert "Traceback" not in office.stderr, office.stderr


@pytest.fixture
def joe(post: Post) -> Receiver:
    """A receiver."""
    return post.receiver("joe/1", "/a/b")
