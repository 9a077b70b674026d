"""People chat in Chromium while the nodes behind their balancer are killed one after another: nothing is missing on their pages
or there twice, and no page has to make a new session.

`make test` has one kill, `make faults` a minute of it, and CHAT_S=600 in the environment of that is ten minutes.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Meet
from tests.browser.person import Person
from tests.conftest import StartServer
from tests.faults.nodes import Nodes
from tests.store_process import StoreProcess

T = TypeVar("T")
IS_FULL: Final = os.environ.get("FAULTS") == "full"
SECONDS: Final = float(os.environ.get("CHAT_S", "60")) if IS_FULL else 0.0
EVERY_S: Final = 10.0
"""Between two kills."""
AWAY_S: Final = 2.0
"""Before another node comes in the place of the one that was killed."""
LIMIT_S: Final = 60.0
TALK_MS: Final = 1000 if IS_FULL else 100
"""Between two lines. A page keeps 500 of them."""


class Loop:
    """An event loop on a thread of its own, for what must run while Playwright keeps this one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()


@pytest.fixture
def nodes(start_server: StartServer, tmp_path: Path) -> Iterator[tuple[Nodes, Loop]]:
    """Three nodes on a store of their own, and the loop that their balancer runs in."""
    directory = tmp_path / "store"
    directory.mkdir()
    store, loop = StoreProcess(directory), Loop()
    nodes = Nodes(start_server, 3, random.Random(17), "bayeux.max_interval_ms=60000")
    try:
        loop.run(nodes.begin(store.url))
        yield nodes, loop
    finally:
        loop.run(nodes.__aexit__(None, None, None))
        loop.close()
        store.close()


def test_a_chat_outlives_its_nodes(
    nodes: tuple[Nodes, Loop], meet: Meet, picture: Callable[[Person, str], None]
) -> None:
    cluster, loop = nodes
    base = f"http://127.0.0.1:{cluster.port}"
    people = [meet(base, "joe"), meet(base, "sue")]
    for person, transport in zip(people, ("websocket", "long-polling"), strict=True):
        for expected in ("net::ERR_", "WebSocket connection", "status of 503"):
            person.expect_complaint(expected)
        person.join(transport=transport)
    people[0].sees("sue has joined")
    notices = [person.page.locator("#log .notice").all_inner_texts() for person in people]

    said = talk(people, 2, [])
    begun = killed = cluster.kill(cluster.all[0])
    said = talk(people, 2, said)
    kills = 1
    while monotonic() - begun < SECONDS:
        people[0].page.wait_for_timeout(AWAY_S * 1000)
        loop.run(cluster.start(cluster.all[(kills - 1) % 3]))
        while monotonic() - killed < EVERY_S:
            said = talk(people, 1, said)
        picture(people[kills % 2], f"nodes-killed-{min(kills, 4)}")
        killed = cluster.kill(cluster.all[kills % 3])
        kills += 1
        said = talk(people, 2, said)

    for person, before in zip(people, notices, strict=True):
        assert person.texts() == said
        assert person.page.locator("#log .notice").all_inner_texts() == before
        person.sees_state("Connected")
        picture(person, f"nodes-killed-{person.name}")
    print(f"{kills} kills of 3 nodes in {monotonic() - begun:.0f} s; {len(said)} lines, each once on both pages")


def talk(people: list[Person], lines: int, said: list[str]) -> list[str]:
    """Let both say so many lines in turn, each when the one before it is on both pages; returns all that has been said."""
    said = list(said)
    for _ in range(lines):
        for person in people:
            text = f"{person.name} {len(said)}"
            person.say(text)
            said.append(text)
            for each in people:
                expect(each.line(text)).to_have_count(1, timeout=LIMIT_S * 1000)
            person.page.wait_for_timeout(TALK_MS)
    return said
