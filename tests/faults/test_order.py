"""Messages of a channel and messages to sessions, published at all nodes at once and mixed in one request: each receiver gets
them in the order of their ids, also when its node is killed in the middle."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Final

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.functional.bayeux import Client, Message
from tests.functional.cluster import NODE
from tests.functional.people import Person
from tests.functional.wire import close_connections, figures, until
from tests.server_process import Server

MESSAGES: Final = 20_000 if IS_FULL else 600
"""Half of them to the channel, half to sessions."""
PUBLISHERS: Final = 6
MOST_TOGETHER: Final = 8
CHANNEL: Final = "/order"
PATIENCE_S: Final = 60.0
SETS: Final = (
    "bayeux.max_interval_ms=60000",
    "delivery.queue_max_entries=1000000",  # a receiver that falls behind on a busy machine loses nothing
)
KINDS: Final = ("nodes", "workers", "a node is killed")


class Publisher:
    """Publishes a part of the messages, some alone and some together."""

    def __init__(self, server: Server, seed: int, count: int) -> None:
        self._client = Client(server).start()
        self._random = random.Random(seed)
        self._left = count
        self.stored: dict[str, list[str]] = {}
        """By id, the receivers of a message that was answered; empty for all."""

    def run(self) -> None:
        """Publish them all, or until the server has gone."""
        while self._left > 0:
            count = min(self._left, self._random.choice((1, 1, self._random.randint(2, MOST_TOGETHER))))
            self._left -= count
            to = [
                self._random.choice((None, None, None, "client/joe/1", "client/joe/2", "client/joe"))
                for _ in range(count)
            ]
            try:
                replies = self._client.send(*map(self._message, to))
            except (OSError, EOFError):
                return  # its node was killed
            for each, reply in zip(to, replies, strict=True):
                assert reply["successful"] is True, reply
                names = [each] if each and each.count("/") > 1 else []
                self.stored[reply["ext"]["publish"]["id"]] = names

    def _message(self, to: str | None) -> Message:
        publish: Message = {"persistent": True}
        if to is not None:
            publish |= {"destination": [{"to": to}], "subscribable": False}
        return self._client.message(CHANNEL, data=to, ext={"publish": publish})


class Receiver(Person):
    """Takes what comes, and notes what comes in a wrong order."""

    def __init__(self, server: Server, name: str) -> None:
        super().__init__(server)
        self.be(name)
        self.name = name
        self.subscribe(CHANNEL)
        self.ids: dict[str, None] = {}
        self.overtaken: list[tuple[str, str]] = []
        self.duplicates = 0
        self.elsewhere: Server | None = None
        """Where it goes when its node has gone."""
        self.awaited: set[str] = set()
        self.is_over = threading.Event()

    def run(self) -> None:
        """Take all until it has what is awaited. Another client of the session redelivers first, so the first time counts."""
        newest, deadline = "0", monotonic() + PATIENCE_S
        while not (self.is_over.is_set() and self.awaited <= self.ids.keys()):
            taken = self._taken()
            for message in taken:
                place = message["id"]
                if place in self.ids:
                    self.duplicates += 1
                    continue
                self.ids[place] = None
                if int(place) < int(newest):
                    self.overtaken.append((place, newest))
                newest = max(newest, place, key=int)
            if taken:
                deadline = monotonic() + PATIENCE_S
            assert monotonic() < deadline, f"{self.name}: {len(self.awaited - self.ids.keys())} are missing"

    def _taken(self) -> list[Message]:
        try:
            *messages, reply = self.connect(advice={"timeout": 200}, ext={"ack": self.batch})
        except (OSError, EOFError):
            assert self.elsewhere is not None
            self.server = self.elsewhere
            self.forget_connections()
            return []
        if reply["successful"]:
            self.batch = reply["ext"]["ack"]
        else:  # no node has the session yet
            assert reply["error"].startswith("503"), reply
        return messages


def servers(kind: str, start_server: StartServer) -> list[Server]:
    """Where clients connect."""
    if kind == "workers":
        server = start_server("cluster.workers=2", *SETS)
        until(lambda: all(figures(server).get(f'crewel_nodes{{worker="{each}"}}') == 2 for each in (1, 2)))
        return [server, server]
    first = start_server(NODE, *SETS, "node.name=a")
    second = start_server(*first.store_sets, NODE, *SETS, "node.name=b")
    until(lambda: all(figures(each)["crewel_nodes"] == 2 for each in (first, second)))
    return [first, second]


@pytest.mark.parametrize("kind", KINDS)
def test_all_come_in_the_order_of_their_ids(kind: str, start_server: StartServer, tell: Tell) -> None:
    nodes = servers(kind, start_server)
    receivers = [Receiver(nodes[number - 1], f"client/joe/{number}") for number in (1, 2)]
    share = MESSAGES // PUBLISHERS
    publishers = [Publisher(nodes[seed % 2], seed, share) for seed in range(PUBLISHERS)]
    with ThreadPoolExecutor(PUBLISHERS + len(receivers)) as pool:
        receiving = [pool.submit(each.run) for each in receivers]
        publishing = [pool.submit(each.run) for each in publishers]
        if kind == "a node is killed":
            receivers[1].elsewhere = nodes[0]
            # In full, beside other tests, half of them take longer than what is waited for elsewhere.
            until(lambda: sum(len(each.stored) for each in publishers) > MESSAGES // 2, 240.0)
            nodes[1].kill()
        for each in publishing:
            each.result()
        stored = {place: names for each in publishers for place, names in each.stored.items()}
        for receiver in receivers:
            receiver.awaited = {place for place, names in stored.items() if not names or receiver.name in names}
            receiver.is_over.set()
        for future in receiving:
            future.result()
    close_connections()
    overtaken = [pair for each in receivers for pair in each.overtaken]
    received = sum(len(each.ids) for each in receivers)
    addressed = sum(bool(names) for names in stored.values())
    tell(
        f"{kind}: {len(stored)} publishes answered, {addressed} of them to one session; {received} received,"
        f" {sum(each.duplicates for each in receivers)} duplicates, {len(overtaken)} out of order"
    )
    assert not overtaken, overtaken[:10]
    _no_other(receivers, stored, is_whole=kind != "a node is killed")


def _no_other(receivers: Sequence[Receiver], stored: dict[str, Any], *, is_whole: bool) -> None:
    """What was published without an answer may have come as well, where a node was killed."""
    assert not is_whole or all(each.ids.keys() == each.awaited for each in receivers)
    assert stored
