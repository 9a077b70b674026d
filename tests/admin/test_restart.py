"""What operators see after a restart of the server is what they saw before."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.admin.desk import SETS, Desk, Receiver, publish
from tests.functional.wire import until
from tests.server_process import Server

pytestmark = pytest.mark.server


def test_after_a_restart_the_findings_and_attempts_are_as_before(tmp_path: Path) -> None:
    settings = ["--port=0", *(f"--set={text}" for text in SETS)]
    server = Server(settings, tmp_path)
    joe, ann = Receiver(server).be("joe/1", persistent=True), Receiver(server).be("ann/1", persistent=True)
    joe.subscribe("/orders")
    ann.subscribe("/orders")  # and takes nothing
    publish(server, "/orders", 2)
    joe.reject(joe.take())
    before = told(Desk(server))
    assert before == (["2 dead letters of the last hour of client/joe/1"], ["waiting", 0])
    server.end_well()

    server = Server([*settings, *(f"--set={text}" for text in server.store_sets)], tmp_path)
    assert told(Desk(server)) == before
    server.end_well()


def test_two_workers_know_the_same_of_a_receiver_after_their_store_was_killed(tmp_path: Path) -> None:
    sets = ("storage.url=", "cluster.workers=2", "cluster.lease_ms=600000")
    server = Server(["--port=0", *(f"--set={text}" for text in (*SETS, *sets))], tmp_path)
    desk, joe = Desk(server), Receiver(server).be("joe/1")
    joe.subscribe("/orders")
    publish(server, "/orders", 2)
    joe.reject(until(joe.take)[:1], "user.update.holdback", "out of paper")
    joe.forget_connections()
    names = ("address", "inFlight", "lastFailure")
    before = desk.get("/sessions/joe/1")
    assert before["address"] == "127.0.0.1"
    assert before["lastFailure"] is not None
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    (store,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith(("valkey", "redis")))
    os.kill(int(store), signal.SIGKILL)
    until(
        lambda: [each for each in desk.get("/timeline")["events"] if each["what"] == "store outage" and each["until"]]
    )
    after = desk.get("/sessions/joe/1")
    assert [after[name] for name in names] == [before[name] for name in names]
    assert abs(after["loggedIn"] - before["loggedIn"]) < 1000  # the clock of the loop, and that of the machine
    server.end_well()


def told(desk: Desk) -> tuple[list[str], list[object]]:
    """The finding about dead letters, and what the message page says of the receiver that took nothing."""
    letters = until(lambda: found if len(found := desk.letters()) == 2 else None)
    [ann] = desk.get(f"/messages/{letters[0]['message']}?receiver=ann")["receivers"]
    titles = [each["title"] for each in desk.get("/overview")["findings"] if each["key"] == "letters"]
    return titles, [ann["state"], ann["attempts"]]
