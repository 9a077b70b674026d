"""The figures of all workers, as one of them answers `/metrics`."""

from __future__ import annotations

import os
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
