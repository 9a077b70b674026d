"""A worker that is killed again and again does each order once: the book that it keeps tells. With CometD's Java client,
examples/java-worker has the same test."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.random_publisher import RandomPublisher
from tests.functional.wire import until
from tests.interop.conftest import installed_clients  # noqa: F401 - they have to be there
from tests.interop.peers import DRIVERS
from tests.server_process import ROOT

KILLS: Final = 10 if IS_FULL else 3
MOST_BETWEEN: Final = 15
"""Orders between two kills."""
ORDERS: Final = 100_000  # the publisher is stopped after the last kill
LIMIT_S: Final = 60
COMMANDS: Final = {
    "Python": (sys.executable, "-m", "tests.faults.worker"),
    "JavaScript": ("node", str(DRIVERS / "worker.mjs")),
}


class Worker:
    """The process. It prints a line for each order that it has done."""

    def __init__(self, language: str, url: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            [*COMMANDS[language], url, "worker/1", directory], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )

    def does(self, count: int) -> None:
        """Wait until it has done so many more."""
        assert self._process.stdout is not None
        for _ in range(count):
            assert self._process.stdout.readline(), f"the worker has ended with {self._process.wait()}"

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.communicate()


def book_of(language: str, directory: Path) -> list[tuple[str, int]]:
    """The id and the number of each order that was done, as often as it was done."""
    if language == "Python":
        with closing(sqlite3.connect(directory / "book.db")) as book:
            return list(book.execute("SELECT id, n FROM done"))
    lines = (line.split() for line in (directory / "book").read_text("utf-8").splitlines())
    return [(order, int(number)) for order, number in lines]


@pytest.mark.usefixtures("installed_clients")
@pytest.mark.parametrize("language", COMMANDS)
def test_a_worker_that_is_killed_again_and_again_does_each_order_once(
    language: str, start_server: StartServer, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(42)
    server = start_server("delivery.queue_max_entries=10000")
    sets = ("delivery.queue_max_entries=10000", *server.store_sets)
    worker = Worker(language, server.url, tmp_path)
    orders = RandomPublisher(server, rng, ORDERS, choose=lambda _: ("/orders/new", {}))
    try:
        orders.start()
        for kill in range(KILLS):
            worker.does(rng.randint(1, MOST_BETWEEN))
            worker.kill()
            if kill % 3 == 1:
                server.kill()
                server = start_server(*sets, port=server.port)
            worker = Worker(language, server.url, tmp_path)
        worker.does(1)
        orders.stop()
        first = min(number for _, number in book_of(language, tmp_path))  # those before went to no subscription
        owed = {order for order, each in orders.answered.items() if each.data["n"] >= first}
        until(lambda: owed <= {order for order, _ in book_of(language, tmp_path)}, LIMIT_S)
    finally:
        orders.stop()
        worker.kill()
    assert orders.trouble is None
    numbers = [number for _, number in book_of(language, tmp_path)]
    assert len(numbers) == len(set(numbers))
    tell(f"{language}: killed {KILLS} times, the server every third time; {len(owed)} orders owed, each done once")
