"""Subscribing with all that it can ask for, on the wire; and the example of docs/how-to/subscribing.md."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functional.bayeux import Message
from tests.functional.conftest import Serve, one_lane
from tests.functional.people import Person
from tests.house.source import ROOT
from tests.server_process import Server

pytestmark = one_lane

RULES = (
    'topics={"/h/**":{"history":{"max_entries":100}},"/topic/**":{"history":{"max_entries":100},"replay":true}}',
    "bayeux.timeout_ms=60000",
    "delivery.commit_ms=30",
)
PAGE = ROOT / "docs" / "how-to" / "subscribing.md"
_numbers = itertools.count(1)


class Plain(Person):
    """A client without acknowledgements."""

    acknowledges = False


@pytest.fixture
def server(shared: Serve) -> Server:
    return shared(*RULES)


def publish(server: Server, channel: str, *values: Any, **qos: Any) -> None:
    writer = Plain(server).be()
    for value in values:
        reply = writer.send(writer.message(channel, data=value, ext={"publish": qos}))[-1]
        assert reply["successful"] is True, reply
    writer.disconnect()


def subscribe(client: Person, channel: str, **ext: Any) -> tuple[Message, list[Message]]:
    """The reply, and what came with it."""
    *early, reply = client.send(client.message("/meta/subscribe", subscription=channel, ext=ext))
    return reply, early


def data(messages: list[Message]) -> list[Any]:
    return [message["data"] for message in messages if "data" in message]


def test_the_example_of_the_page(serve: Serve, tmp_path: Path) -> None:
    found = re.search(r"^```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    script = found[1].replace("http://127.0.0.1:8080/cometd", serve().url)
    command = [sys.executable, "-W", "error", "-c", script]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "apples\nTrue pears plums\n"), ended.stderr


@pytest.mark.parametrize("make", [Plain, Person])
def test_a_filter_and_a_history_in_one_subscribe(server: Server, make: type[Person]) -> None:
    channel = f"/h/{next(_numbers)}"
    publish(server, channel, *({"n": n} for n in range(6)))
    client = make(server).be()
    asked = {"filter": "data.n > `2`", "history": {"numEntries": 4, "newestFirst": False}}
    reply, early = subscribe(client, channel, subscribe=asked)
    assert reply["successful"] is True
    publish(server, channel, {"n": 2}, {"n": 7})
    assert [each["n"] for each in data([*early, *client.take_all()])] == [3, 4, 5, 7]


def test_a_replay_by_number(server: Server) -> None:
    channel = f"/topic/{next(_numbers)}"
    watcher = Plain(server).be()
    subscribe(watcher, channel, replay={channel: -1})
    publish(server, channel, *({"payload": n} for n in range(3)))
    numbers = [each["event"]["replayId"] for each in data(watcher.take_all())]
    client = Plain(server).be()
    reply, early = subscribe(client, channel, replay={channel: str(numbers[0])})
    assert reply["successful"] is True
    assert [each["payload"] for each in data(early)] == [1, 2]
    reply, early = subscribe(Plain(server).be(), channel, replay={channel: 123})
    assert reply["error"].startswith("400::The replayId {123} you provided was invalid.  Please")
    assert early == []


def test_wishes_and_positions_survive_the_server(serve: Serve) -> None:
    server = serve(*RULES)
    channel = f"/h/{next(_numbers)}"
    publish(server, channel, {"n": 1})
    reader = Person(server).be("reader/1", persistent=True)
    reply, _ = subscribe(reader, channel, subscribe={"filter": "data.n > `2`", "initialUpdate": False})
    position = reply["ext"]["subscribe"]["position"]
    server.kill()
    server = serve(*RULES, *server.store_sets, port=server.port)
    publish(server, channel, {"n": 2}, {"n": 3})
    reader.forget_connections()
    assert data(reader.take_all()) == [{"n": 3}]
    client = Plain(server).be()
    reply, early = subscribe(client, channel, subscribe={"since": position})
    assert reply["ext"]["subscribe"]["recovered"] is True
    assert data(early) == [{"n": 2}, {"n": 3}]
