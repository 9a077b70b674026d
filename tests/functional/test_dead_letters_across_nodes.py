"""Dead letters of nodes that share a store: the bin, an edit for a receiver at the other node, and a test message."""

from __future__ import annotations

import pytest

from tests.admin.desk import Desk, Receiver, publish
from tests.functional.cluster import TOKEN, pair
from tests.functional.wire import until
from tests.server_process import Server

__all__ = ["pair"]


@pytest.mark.timeout(120)
def test_nodes_that_share_a_store_share_the_bin(pair: list[Server]) -> None:
    here, there = (Desk(each, TOKEN) for each in pair)
    person = Receiver(pair[1]).be("joe/1")
    person.subscribe("/orders")
    publish(pair[1], "/orders", 3)
    person.reject(until(lambda: found if len(found := person.take()) == 3 else None))
    made = until(lambda: found if len(found := there.letters("receiver=joe")) == 3 else None)
    first, second = (each["id"] for each in made[:2])
    here.post("/dead-letters/discard", {"ids": [first]})
    assert [each["id"] for each in there.get("/dead-letters/bin?receiver=joe")["letters"]] == [first]
    new = there.post("/dead-letters/restore", {"ids": [first]})["ids"][first]
    assert new in [each["id"] for each in here.letters("receiver=joe")]
    # The receiver is at the other node than the operator.
    told = here.post(f"/dead-letters/{second}/edit", {"data": "fixed"})
    (message,) = until(person.take)
    assert (message["data"], message["ext"]["update"]["id"]) == ("fixed", told["redrivenAs"])
    here.post("/publish/orders", {"data": "test"})
    assert [each["data"] for each in until(person.take)] == ["test"]
