"""Nodes that share a store share the bin of dead letters, and show a group with its members at all of them."""

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


@pytest.mark.timeout(120)
def test_a_group_is_shown_with_its_members_at_both_nodes(pair: list[Server]) -> None:
    for number, server in enumerate(pair, 1):
        member = Receiver(server).be(f"worker/{number}", maxOpen=1)
        subscribe = {"subscription": "/jobs/*", "ext": {"subscribe": {"group": "workers"}}}
        (reply,) = member.send(member.message("/meta/subscribe", **subscribe))
        assert reply["successful"], reply
    publish(pair[0], "/jobs/print", 5)
    for server in pair:
        desk = Desk(server, TOKEN)

        def shown(desk: Desk = desk) -> bool:
            told = desk.get("/groups/jobs/*?name=workers")
            names = [each["name"] for each in told["members"]]
            assert (names, told["unreached"]) == (["client/worker/1", "client/worker/2"], 0)
            return told["waiting"] == 3 and [each["open"] for each in told["members"]] == [1, 1]

        until(shown)
        rates = until(lambda desk=desk: desk.get("/rates?by=group")["rates"].get("/jobs/* workers"))  # type: ignore[misc]
        assert len(rates) == 20
