"""What a worker takes of its parent; and the figures of all workers, as one of them answers `/metrics`."""

from __future__ import annotations

import asyncio
import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from crewel import processes
from crewel.errors import NodeFailed, StoreUnavailable
from crewel.nodes.node_requests import Exposition
from crewel.workers.control_channel import Inheritance
from crewel.workers.worker import Serving, Worker

pytestmark = pytest.mark.unit

FIGURE = "# HELP crewel_sessions Sessions.\n# TYPE crewel_sessions gauge\ncrewel_sessions {}\n"
OUTCOMES: dict[str, str | Exception] = {
    "answers": FIGURE.format(2.0),
    "older": NodeFailed("the node does not know the request figures: its version differs"),
    "hangs": StoreUnavailable("the node does not answer"),
    "same pid elsewhere": FIGURE.format(7.0),
}

MACHINE = processes.this_process()[1]


class Others:
    """What a worker knows of the other nodes, and how it asks them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def others(self) -> list[Any]:
        places = (1000, MACHINE), (1001, MACHINE), (1002, MACHINE), (1000, "another")
        return [
            SimpleNamespace(token=token, process=processes.ProcessId(*place, "0"))
            for token, place in zip(OUTCOMES, places, strict=True)
        ]

    async def ask(self, token: str, *_: object) -> Exposition:
        self.asked.append(token)
        outcome = OUTCOMES[token]
        if isinstance(outcome, Exception):
            raise outcome
        return Exposition(outcome)


async def test_the_figures_are_those_of_the_workers_that_answer() -> None:
    worker, nodes = Worker(Inheritance(1, [], 0)), Others()
    unused: Any = None
    registry: Any = nodes
    worker._server = Serving(unused, unused, registry, registry, unused)
    worker._others = {"2": 1000, "3": 1001, "4": 1002, "5": os.getpid()}
    text = (await worker.join(FIGURE.format(1.0).encode())).decode()
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'crewel_sessions{worker="1"} 1.0',
        'crewel_sessions{worker="2"} 2.0',
    ]
    assert sorted(nodes.asked) == ["answers", "hangs", "older"]


async def test_the_figures_are_put_together_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long, and all clients of this worker would wait."""
    threads: list[int] = []

    def joined(by_worker: dict[str, bytes]) -> bytes:
        threads.append(threading.get_ident())
        return b"".join(by_worker.values())

    monkeypatch.setattr("crewel.workers.worker.joined", joined)
    worker, nodes = Worker(Inheritance(1, [], 0)), Others()
    unused: Any = None
    registry: Any = nodes
    worker._server = Serving(unused, unused, registry, registry, unused)
    assert await worker.join(b"own") == b"own"
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def obeyed(worker: Worker, said: bytes) -> list[bytes]:
    """What a worker tells its parent that says this, and then ends."""
    reader, written = asyncio.StreamReader(), list[bytes]()
    reader.feed_data(said)
    reader.feed_eof()
    writer: Any = SimpleNamespace(write=written.append, is_closing=lambda: False)
    store = SimpleNamespace(learn_of_owner=lambda *_: None)
    access: Any = SimpleNamespace(store=store)
    runtime: Any = SimpleNamespace()
    registry: Any = SimpleNamespace(hurry=lambda: None)
    unused: Any = None
    await worker._obey((reader, writer), Serving(runtime, access, registry, unused, unused))
    return written


async def test_a_worker_obeys_a_parent_of_a_later_version() -> None:
    worker = Worker(Inheritance(1, [], 0))
    assert await obeyed(worker, b'{"number":7,"workers":2,"later":1}\n') == [b'{"noted":7}\n']
    assert worker.stop.is_set()


async def test_a_worker_that_cannot_read_its_parent_ends() -> None:
    """Its parent sees that. One that continued would wait for ever, and so would its parent for it."""
    worker = Worker(Inheritance(1, [], 0))
    with pytest.raises(ValueError, match=r"."):
        await obeyed(worker, b"{\n")
    assert worker.stop.is_set()
    assert not worker._is_informed.is_set()
