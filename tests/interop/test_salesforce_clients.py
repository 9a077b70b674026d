"""Clients of Salesforce's streaming API, as published, against the stand-in: each goes through its own flow.

The clients of the example projects (`requests`, jsforce, CometD's Java client) run in tests/interop/test_examples.py.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from crewel.mock import Salesforce
from tests.interop.peers import HERE

ORDERS = "/event/Order__e"
LIMIT_S = 60.0
PROGRAMS = HERE / "salesforce"

FAMILIES: dict[str, Callable[[Salesforce], list[str]]] = {
    "cometd": lambda org: ["node", str(PROGRAMS / "cometd.mjs"), org.streaming_url, org.token, ORDERS],
    "faye": lambda org: ["node", str(PROGRAMS / "faye.mjs"), org.streaming_url, org.token, ORDERS],
    "aiosfstream-ng": lambda org: [
        sys.executable,
        str(PROGRAMS / "aiosfstream_consumer.py"),
        # aiohttp's cookie jar ignores the cookies of a numeric address.
        org.login_url.replace("127.0.0.1", "localhost"),
        ORDERS,
    ],
}


class Consumer:
    """A program that prints the numbers of the orders that it got."""

    def __init__(self, command: list[str]) -> None:
        self.orders: list[int] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.orders.append(int(line))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def consume(installed_clients: None) -> Iterator[Callable[[list[str]], Consumer]]:
    running: list[Consumer] = []

    def start(command: list[str]) -> Consumer:
        running.append(Consumer(command))
        return running[-1]

    yield start
    for each in running:
        each.end()


@pytest.mark.salesforce(host="localhost")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_client_goes_through_its_own_flow_and_misses_nothing(
    family: str, salesforce: Salesforce, consume: Callable[[list[str]], Consumer]
) -> None:
    consumer = consume(FAMILIES[family](salesforce))
    salesforce.wait_for_subscriber(ORDERS, LIMIT_S)
    salesforce.publish(ORDERS, {"No__c": 1})
    salesforce.wait_for(lambda _: consumer.orders == [1], LIMIT_S)
    salesforce.publish_while_away(ORDERS, {"No__c": 2})
    salesforce.wait_for(lambda _: consumer.orders == [1, 2], LIMIT_S)
    salesforce.publish(ORDERS, {"No__c": 3})
    salesforce.wait_for(lambda _: consumer.orders == [1, 2, 3], LIMIT_S)
    salesforce.assert_nothing_missed(LIMIT_S)
