"""A receiver is held back when the server is killed: it still is with the next one, what arrives queues up, and when it is
activated the held message comes first."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.admin.desk import STORED, TOKEN, Desk, Receiver
from tests.conftest import StartServer
from tests.faults.audit import Audit
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.test_server_killed import store_of
from tests.functional.bayeux import data
from tests.functional.people import Person
from tests.functional.wire import until
from tests.server_process import Server

SEEDS = range(1, 11) if IS_FULL else range(1, 3)
SETS = (f"admin.token={TOKEN}", "node.name=heron", "bayeux.max_interval_ms=60000")
CODE = "user.update.holdback"


def publish(server: Server, *numbers: int) -> None:
    person = Person(server).be()
    for number in numbers:
        person.publish("/orders", number, ext=STORED)
    person.disconnect()


def session(server: Server, name: str) -> dict[str, Any]:
    """What the administration says of a session."""
    found: dict[str, Any] = Desk(server).get(f"/sessions/{name}")
    return found


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_holdback_survives_a_kill(seed: int, start_server: StartServer, tmp_path: Path, tell: Tell) -> None:
    rng = random.Random(5000 + seed)
    server = await asyncio.to_thread(start_server, *SETS, *store_of(seed, tmp_path))
    told = await asyncio.to_thread(_hold_and_queue, server, rng)
    server.kill()
    server = await asyncio.to_thread(start_server, *SETS, *server.store_sets, port=server.port)
    await asyncio.to_thread(_find_held_and_activate, server, *told)
    tell(f"seed {seed}: one held back by itself, one by an operator, with {told[2]} messages, and still after the kill")


def _hold_and_queue(server: Server, rng: random.Random) -> tuple[Receiver, Receiver, int, list[dict[str, Any]]]:
    """Joe cannot take message 1 and has got others beside it; ann was held back by an operator just before the kill."""
    joe, ann = Receiver(server).be("joe/1"), Receiver(server).be("ann/1")
    joe.subscribe("/orders")
    ann.subscribe("/orders")
    before = rng.randint(1, 5)
    publish(server, *range(1, before + 1))
    held, *others = joe.take()
    assert held["data"] == 1
    settled = others[: rng.randint(0, len(others))]
    joe.accept(settled)
    joe.reject([held], CODE, "not today")
    until(lambda: not session(server, "joe/1")["active"])
    until(lambda: "d" in Audit(server).sessions["client/joe/1"])
    count = before + rng.randint(1, 4)
    publish(server, *range(before + 1, count + 1))
    Desk(server).post("/sessions/ann/1/hold", {"reason": "she is ill"})
    holdbacks = [session(server, name)["holdback"] for name in ("joe/1", "ann/1")]
    until(lambda: session(server, "joe/1")["waiting"] == count - len(settled))
    until(lambda: len(Audit(server).waiting["client/joe/1"]) == count - len(settled))  # the settled ones are, for good
    return joe, ann, count, holdbacks


def _find_held_and_activate(
    server: Server, joe: Receiver, ann: Receiver, count: int, holdbacks: list[dict[str, Any]]
) -> None:
    audit = Audit(server)
    audit.check()
    waiting = {name: len(audit.waiting[f"client/{name}"]) for name in ("joe/1", "ann/1")}
    for name, holdback in zip(waiting, holdbacks, strict=True):
        there = session(server, name)
        assert (there["active"], there["holdback"]) == (False, holdback)
        assert there["waiting"] == waiting[name]
    assert (holdbacks[0]["code"], holdbacks[0]["reason"]) == (CODE, "not today")
    assert (holdbacks[1]["who"], holdbacks[1]["reason"]) == ("admin", "she is ill")

    publish(server, count + 1, count + 2)
    for receiver in (joe, ann):
        receiver.forget_connections()
        assert receiver.say() == receiver.say() == []
    assert [session(server, name)["waiting"] for name in waiting] == [each + 2 for each in waiting.values()]

    for name, receiver in (("joe/1", joe), ("ann/1", ann)):
        assert Desk(server).post(f"/sessions/{name}/activate")["active"] is True
        messages = receiver.take_all()
        assert data(messages) == sorted(data(messages))
        assert (data(messages)[0], data(messages)[-1]) == (1, count + 2)
        assert len(messages) == waiting[name] + 2
        if receiver is joe:
            assert messages[0]["ext"]["update"]["id"] == holdbacks[0]["id"]
            assert messages[0]["ext"]["update"]["redeliver"] > 0
        receiver.accept(messages)
    until(lambda: not any(Audit(server).waiting.values()))
    Audit(server).check()
